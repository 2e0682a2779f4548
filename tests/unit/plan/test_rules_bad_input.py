"""The wrong stack files that people write, whole: what each prints, word for word, before anything is registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from huddle.errors import InputError
from infra.program import load_plan, warnings
from plan.azure_facts import VM_SIZES
from tests.unit.stack_values import FILE, KEY, bases, changed, write

MODELS = ", ".join(sorted(bases()))
SIZES = ", ".join(VM_SIZES)
SPOKEN: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": (
        {"serving": {"topologie": "replicas"}},
        "serving.topologie: is not a known key; did you mean topology? "
        "allowed: max_unavailable, models, ports, topology",
    ),
    "all nodes away at once": (
        {"serving": {"max_unavailable": 2}},
        "serving.max_unavailable: 2 nodes away at once would leave nobody for hl, which is on 2; allowed: 1",
    ),
    "all nodes of a model away at once": (
        {
            "nodes": {"count": 4, "quota_vcpus": 160},
            "serving": {"max_unavailable": 3, "models": {"hl": {"nodes": [1, 2, 3]}, "qwen2.5-7b": {"nodes": [4]}}},
            "gateway": {"products": {"developers": {"display_name": "Developers", "models": ["hl"]}}},
        },
        "serving.max_unavailable: 3 nodes away at once would leave nobody for hl, which is on 3; allowed: 1 to 2",
    ),
    "overlapping CIDRs": (
        {"network": {"gateway_subnet": "10.0.0.0/25"}},
        "network.gateway_subnet: 10.0.0.0/25 overlaps nodes_subnet 10.0.0.0/24; ranges must be disjoint",
    ),
    "subnet too small for the nodes": (
        {"network": {"nodes_subnet": "10.0.0.0/29"}, "nodes": {"count": 4, "quota_vcpus": 160}},
        "network.nodes_subnet: 10.0.0.0/29 holds 3 nodes (Azure keeps 5 addresses), nodes.count is 4; "
        "use a larger range",
    ),
    "subnet too small for the gateway tier": (
        {"network": {"gateway_subnet": "10.0.1.0/28"}},
        "network.gateway_subnet: 10.0.1.0/28 is too small for gateway tier StandardV2; allowed: /27 or larger",
    ),
    "more nodes than may share the disk": (
        {"nodes": {"count": 6, "quota_vcpus": 240}},
        "nodes.count: 6 nodes can't share one 1024 GiB Premium_LRS disk; allowed: at most 5 "
        "(or `model_store.sku: PremiumV2_LRS` for 15, or `model_store.kind: azure-files`)",
    ),
    "more nodes than the quota": (
        {"nodes": {"count": 3}},
        "nodes.count: 3 x Standard_NC40ads_H100_v5 needs 120 vCPUs of StandardNCadsH100v5Family, nodes.quota_vcpus is "
        "80; allowed: at most 2, or raise the quota",
    ),
    "unknown size": (
        {"nodes": {"size": "Standard_NC40ads_H100_v6"}},
        "nodes.size: 'Standard_NC40ads_H100_v6' is not a size this program knows; allowed: " + SIZES,
    ),
    "size without a GPU": (
        {"nodes": {"size": "Standard_D8s_v5"}},
        "nodes.size: 'Standard_D8s_v5' is not a size this program knows; allowed: " + SIZES,
    ),
    "Premium SSD v2 without a zone": (
        {"model_store": {"sku": "PremiumV2_LRS"}},
        "model_store.sku: 'PremiumV2_LRS' disks live in one zone; set nodes.zone (allowed: 1, 2, 3) or another sku",
    ),
    "a product that a classic tier brings along": (
        {"gateway": {"tier": "Developer", "products": {"starter": {"display_name": "Starter"}}}},
        "gateway.products.starter: is a product that tier Developer comes with; allowed: any other id",
    ),
    "internal on StandardV2": (
        {"gateway": {"inbound": "internal"}},
        "gateway.inbound: 'internal' is not offered by tier StandardV2; allowed: public, private-endpoint",
    ),
    "a model that the registry does not know": (
        {"serving": {"models": {"llama-3.2-3b-instruct": {}}}},
        "serving.models.llama-3.2-3b-instruct: is not in the model registry; did you mean llama-3.2-3b? "
        "allowed: " + MODELS,
    ),
    "a secret in plain text": (
        {"backend_key": "hunter2"},
        "backend_key: is a secret in plain text; remove it and run "
        "`make pulumi ARGS='config set --secret backend_key -s dev'`",
    ),
}


LONG = "Answer briefly and politely. " * 1120
EVERYTHING_WRONG: dict[str, Any] = {
    "azure-native:location": "atlantis",
    "environment": "prod",
    "nodes": {
        "zone": "1",
        "priority": "spot",
        "quota_vcpus": 79,
        "admin_username": "huddle",
        "auto_shutdown": {"timezone": "W. Europe Standrad Time"},
    },
    "model_store": {"sku": "PremiumV2_LRS", "size_gib": 100, "iops": 80_000, "mbps": 2000},
    "serving": {"models": {"llama-3.2-3b": {"system_prompt": LONG}, "hl": {}}},
    "gateway": {"products": {"developers": {"display_name": "D", "system_prompt": LONG}}},
    "access": {"ssh_public_keys": ["ssh-ed25519 AAAA me", KEY.replace("ssh-ed25519", "ssh-rsa", 1)]},
    "monitoring": {"daily_cap_gb": 0.000001},
    "jupyter": {"enabled": True},
}
"""A stack that nothing in Azure would take, and that once was called valid."""


def test_everything_that_is_wrong_is_told_in_one_go(tmp_path: Path) -> None:
    root = write(tmp_path, changed(**EVERYTHING_WRONG))
    assert spoken(root).replace(f"{FILE}: ", "").splitlines() == [
        "azure-native:location: 'atlantis' is no Azure region that this program knows; `az account list-locations` "
        "shows them, eastus2 is one (a region newer than 2026-06-18 belongs in plan/data/azure_regions.yaml)",
        "nodes.auto_shutdown.timezone: 'W. Europe Standrad Time' is no time zone; did you mean W. Europe Standard "
        "Time? allowed: a Windows id such as W. Europe Standard Time, or an IANA name such as Europe/Berlin",
        "nodes.count: 2 x Standard_NC40ads_H100_v5 needs 80 vCPUs of lowPriorityCores, nodes.quota_vcpus is 79; "
        "allowed: at most 1, or raise the quota",
        "model_store.iops: 80000 is too much for 100 GiB of PremiumV2_LRS; allowed: up to 50000",
        "nodes.admin_username: 'huddle' is the user that services run as; choose another, such as azureuser",
        "access.ssh_public_keys[0]: is cut or damaged; copy the whole line of the .pub file",
        "access.ssh_public_keys[1]: says ssh-rsa, but holds a key of kind ssh-ed25519; copy the whole line of the .pub "
        "file",
        "serving.models.llama-3.2-3b.system_prompt: makes 4480 tokens or more, and llama-3.2-3b takes 4096, "
        "conversation and answer included; shorten it",
        "gateway.products.developers.system_prompt: makes 8960 tokens or more, and llama-3.2-3b takes 4096, "
        "conversation and answer included; shorten it",
    ]
    assert [warning.partition(" ")[0] for warning in warnings("dev", root)] == [
        "nodes.priority:",
        "gateway.publisher_email:",
        "jupyter.enabled:",
        "access.ssh_public_keys:",
        "monitoring.daily_cap_gb:",
        "serving.models.llama-3.2-3b",
    ]


def spoken(root: Path, stack: str = "dev") -> str:
    with pytest.raises(InputError) as caught:
        load_plan(stack, root)
    return str(caught.value).replace(f"{root}/", "")


@pytest.mark.parametrize("case", SPOKEN)
def test_what_a_wrong_setting_says(tmp_path: Path, case: str) -> None:
    changes, expected = SPOKEN[case]
    assert spoken(write(tmp_path, changed(**changes))) == f"{FILE}: {expected}"


def test_what_two_products_with_one_id_say(tmp_path: Path) -> None:
    text = yaml.safe_dump({"config": changed()}, sort_keys=False)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if row.strip() == "developers:")
    twice = text.replace("      developers:\n", "      developers: {display_name: One}\n      developers:\n")
    assert spoken(write(tmp_path, twice)) == (
        f"{FILE}: is not valid YAML: the key 'developers' on line {line + 1} repeats line {line} "
        "(names are compared without case)"
    )


def test_what_a_file_that_is_not_yaml_says(tmp_path: Path) -> None:
    assert spoken(write(tmp_path, "config: {nodes: [1, 2}\n")) == (
        f"{FILE}: is not valid YAML: while parsing a flow sequence expected ',' or ']', but got '}}' "
        "(line 1, column 22)"
    )


def test_what_a_missing_stack_says(tmp_path: Path) -> None:
    assert spoken(write(tmp_path, changed()), "deb") == (
        "stacks/Pulumi.deb.yaml: there is no such stack; did you mean dev? stacks here: dev"
    )
