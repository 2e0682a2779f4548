"""Reads what a status needs from Azure Resource Manager. Nothing is changed, and no node is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from components import alert_rules, gpu_node
from components.attempts import Parameter
from infra.operations import api_versions, arm_alerts, arm_ids, power
from infra.operations.arm import Arm, ArmError, NotThereError
from infra.operations.arm_alerts import Firing
from infra.status.seen import LastApply, Seen, SeenNode
from plan.azure.model import AzurePlan
from plan.vocabulary import Delivery


def seen(arm: Arm, plan: AzurePlan, subscription: str) -> Seen:
    """Ask for nodes, pools and alarms. What is not there is an answer; of alarms, a refusal is one as well.

    Raises:
        ArmError: Azure refused to tell of nodes or gateway, or did not answer.
    """
    gateway = arm_ids.gateway(plan, subscription)
    nodes = tuple(_node(arm, plan, arm_ids.vm(plan, subscription, node.name), node.name) for node in plan.nodes)
    pools = {pool.id: _members(arm, f"{gateway}/backends/{pool.id}") for pool in plan.gateway.pools}
    rules = {plan.names.alert(alert.name).lower() for alert in alert_rules.alerts()}
    firing: tuple[Firing, ...] | None = None
    off: tuple[str, ...] | None = None
    refused = []
    try:
        firing = tuple(arm_alerts.firing(arm, subscription, rules))
    except ArmError as error:
        refused.append(f"alarms: {error}")
    try:
        off = tuple(sorted(arm_alerts.switched_off(arm, arm_ids.group(plan, subscription), rules)))
    except ArmError as error:
        refused.append(f"alarms that are off: {error}")
    return Seen(
        asked_at=datetime.now(UTC),
        stand_in=arm.is_stand_in,
        nodes=nodes,
        pools={pool: members for pool, members in pools.items() if members is not None},
        firing=firing,
        off=off,
        not_told=tuple(refused),
    )


def _node(arm: Arm, plan: AzurePlan, vm_id: str, name: str) -> SeenNode:
    try:
        vm = arm.get(vm_id, api_versions.COMPUTE)
        view = arm.get(f"{vm_id}/instanceView", api_versions.COMPUTE)
    except NotThereError:
        return SeenNode(name, provisioning="", power=power.GONE)
    properties = _properties(vm)
    image = (properties.get("storageProfile") or {}).get("imageReference") or {}
    return SeenNode(
        name,
        provisioning=str(properties.get("provisioningState") or "unknown"),
        power=power.state_in(view),
        image=str(image.get("exactVersion") or image.get("version") or ""),
        agent=str((view.get("vmAgent") or {}).get("vmAgentVersion") or ""),
        apply=_apply(arm, vm_id) if plan.access.delivery is Delivery.RUN_COMMAND else None,
    )


def _apply(arm: Arm, vm_id: str) -> LastApply | None:
    try:
        command = arm.get(
            f"{vm_id}/runCommands/{gpu_node.command_name(gpu_node.APPLY)}", api_versions.COMPUTE, expand="instanceView"
        )
    except NotThereError:
        return None
    properties = _properties(command)
    view = properties.get("instanceView") or {}
    given = {str(one.get("name")): str(one.get("value")) for one in properties.get("parameters") or ()}
    attempt = given.get(Parameter.ATTEMPT, "")
    code = view.get("exitCode")
    return LastApply(
        state=str(view.get("executionState") or properties.get("provisioningState") or "unknown"),
        bundle=str((command.get("tags") or {}).get("bundle") or ""),
        attempt=int(attempt) if attempt.isdecimal() else None,
        exit_code=code if isinstance(code, int) else None,
        began=str(view.get("startTime") or ""),
        ended=str(view.get("endTime") or ""),
        said=_last_line(str(view.get("error") or "")),
        told=_told(str(view.get("output") or "")),
    )


def _told(output: str) -> Mapping[str, Any]:
    """The status that `huddle-apply` writes as its last line; nothing where another program or a cut has the end."""
    try:
        found = json.loads(_last_line(output))
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "state" in found else {}


def _members(arm: Arm, pool_id: str) -> tuple[str, ...] | None:
    try:
        pool = _properties(arm.get(pool_id, api_versions.GATEWAY)).get("pool") or {}
    except NotThereError:
        return None
    return tuple(str(one.get("id") or "").rpartition("/")[2] for one in pool.get("services") or ())


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def _properties(item: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = item.get("properties") or {}
    return found
