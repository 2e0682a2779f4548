"""The stack's outputs: what a person needs right after `up`, ready to paste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from components.gateway import Gateway
from gateway_policies.entities import KeyParameter
from infra.reports import cost
from infra.targets.azure.delivery import Delivered
from plan.azure.model import AzurePlan
from plan.vocabulary import BastionSku


def stack_outputs(
    plan: AzurePlan, gateway: Gateway, nodes: Sequence[Delivered], digest: str, nat_address: pulumi.Output[str]
) -> dict[str, Any]:
    """Outputs by name. Keys are secret; the commands name the output that holds the key instead of containing it."""
    names = [node.name for node in plan.nodes]
    base_url = pulumi.Output.concat(gateway.gateway_url, "/", plan.gateway.api_path)
    return {
        "gateway_url": gateway.gateway_url,
        "openai_base_url": base_url,
        "portal_url": gateway.portal_url,
        "product_keys": pulumi.Output.secret(pulumi.Output.from_input(dict(gateway.product_keys))),
        "product_secondary_keys": pulumi.Output.secret(pulumi.Output.from_input(dict(gateway.secondary_keys))),
        "gateway_id": gateway.service_id,
        "products": [product.id for product in plan.gateway.products],
        "models": [model.name for model in plan.serving.models],
        "nodes": {name: node.address for name, node in zip(names, nodes, strict=True)},
        "node_status": {name: node.status for name, node in zip(names, nodes, strict=True)},
        "outbound_address": nat_address,
        "bundle_digest": digest,
        "curl_command": _curl_command(plan, base_url),
        "tunnel_commands": {name: _tunnel_command(plan, node.vm_id) for name, node in zip(names, nodes, strict=True)},
        "estimated_cost": cost.headline(cost.estimate(plan)),
    }


def _curl_command(plan: AzurePlan, base_url: pulumi.Output[str]) -> pulumi.Output[str]:
    """One chat request; the key goes from the stack's outputs to curl on stdin, never into an argument."""
    body = f'{{"model":"{plan.serving.models[0].name}","messages":[{{"role":"user","content":"Hello"}}]}}'
    header = f"""'"header = \\"{KeyParameter.HEADER}: " + first(.[]) + "\\""'"""
    return pulumi.Output.concat(
        f"make -s pulumi ARGS='stack output product_keys --show-secrets -s {plan.stack}'",
        f" | jq -r {header} | curl -sS -K - ",
        base_url,
        f"/chat/completions -H 'Content-Type: application/json' -d '{body}'",
    )


def _tunnel_command(plan: AzurePlan, vm_id: pulumi.Output[str]) -> pulumi.Output[str]:
    """How an operator reaches a node's loopback services: SSH through Bastion, with port forwards."""
    if plan.access.bastion_sku is BastionSku.NONE or not plan.access.tunnel:
        return pulumi.Output.from_input(
            "none: set access.bastion to {sku: Standard, tunnel: true} for `az network bastion ssh`"
        )
    forwards = [plan.serving.ray_dashboard_port, *([plan.jupyter.port] if plan.jupyter.enabled else [])]
    flags = " ".join(f"-L {port}:127.0.0.1:{port}" for port in forwards)
    return pulumi.Output.concat(
        f"az network bastion ssh --name {plan.names.bastion} --resource-group {plan.names.resource_group}"
        f" --auth-type ssh-key --username {plan.compute.admin_username} --ssh-key ~/.ssh/id_ed25519",
        " --target-resource-id ",
        vm_id,
        f" -- {flags}",
    )
