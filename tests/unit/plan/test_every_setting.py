"""Every setting does something: each leaf of the settings, changed, changes the plan and what the stack makes of it.

The leaves are found in the models, so a new setting is asked for here without anybody thinking of it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from cloud_init import bundle, user_data
from gateway_policies import render
from infra import program
from plan import stack_file
from plan.azure.model import AzurePlan
from tests.unit.builders import arm_id
from tests.unit.recording import Recording, run_program
from tests.unit.stack_values import KEY

STACK = "dev"
BASE = stack_file.load(STACK)
MODEL = "llama-3.2-3b"
HOST_KEY = KEY.removesuffix(" test")
FRAGMENT = '<fragment><set-header name="X-{}" exists-action="delete" /></fragment>'
PRODUCT = "gateway.products.*"
BASTION = {"access.bastion.sku": "Standard"}
OWN_DISK = {"model_store.sku": "PremiumV2_LRS", "nodes.zone": "1"}
TWO_NODES = {"nodes.count": 2}

ALWAYS: Mapping[str, Any] = {
    "nodes.count": 1,  # fewer resources, a quicker test
    "nodes.quota_vcpus": 320,
    f"{PRODUCT}.subscriptions": [{"name": "playground", "owner": "Ada"}],
    f"{PRODUCT}.token_quota": {"tokens": 1_000_000, "period": "daily"},
}
"""What every stack of this test says, besides what the dev stack says."""

GIVEN: Mapping[str, Mapping[str, Any]] = {
    "network.bastion_subnet": BASTION,
    "access.bastion.tunnel": BASTION,
    "model_store.iops": OWN_DISK,
    "model_store.mbps": OWN_DISK | {"model_store.iops": 8000},
    "model_store.kind": {"model_store": {}},
    "jupyter.port": {"jupyter.enabled": True},
    "serving.models.*.nodes": TWO_NODES | {"serving.models": {"hl": {}, MODEL: {}}, f"{PRODUCT}.models": [MODEL]},
    f"{PRODUCT}.models": TWO_NODES,
    "gateway.existing.id": {
        "gateway.existing": {"id": arm_id("Microsoft.ApiManagement/service", "ours"), "subnet": "10.9.0.0/24"}
    },
    "gateway.existing.prefix": {
        "gateway.existing": {
            "id": arm_id("Microsoft.ApiManagement/service", "ours"),
            "subnet": "10.9.0.0/24",
            "prefix": "team",
        }
    },
    "network.private_dns_zones": {"network.existing_vnet": arm_id("Microsoft.Network/virtualNetworks", "theirs")},
    "gateway.existing.subnet": {
        "gateway.existing": {"id": arm_id("Microsoft.ApiManagement/service", "ours"), "subnet": "10.9.0.0/24"}
    },
    "gateway.public_access": {"gateway.inbound": "private-endpoint"},
    "gateway.private_address": {"gateway.tier": "PremiumV2", "gateway.inbound": "internal"},
    "gateway.drain": TWO_NODES,
    "gateway.affinity": TWO_NODES,
    "gateway.pool.*.weight": TWO_NODES | {"gateway.pool": {"1": {}}},
    "gateway.pool.*.priority": TWO_NODES | {"gateway.pool": {"1": {}}},
}
"""What must stand beside a setting for it to mean something; the same before and after."""

OTHER: Mapping[str, Any] = {
    "location": "westus3",
    "name_prefix": "other",
    "name_salt": "x",
    "tags": {"more": "x"},
    "network.existing_vnet": arm_id("Microsoft.Network/virtualNetworks", "theirs"),
    "network.address_space": "10.0.0.0/15",
    "network.nodes_subnet": "10.0.8.0/24",
    "network.gateway_subnet": "10.0.9.0/24",
    "network.endpoints_subnet": "10.0.10.0/24",
    "network.bastion_subnet": "10.0.11.0/26",
    "nodes.size": "Standard_NC80adis_H100_v5",
    "nodes.zone": "2",
    "gateway.private_address": "10.0.1.9",
    "nodes.image.publisher": "other",
    "nodes.image.offer": "other",
    "nodes.image.sku": "2204",
    "nodes.image.version": "1.2.3",
    "nodes.admin_username": "operator1",
    "nodes.auto_shutdown.time": "2000",
    "nodes.auto_shutdown.timezone": "Romance Standard Time",
    "model_store.sku": "Premium_ZRS",
    "model_store.size_gib": 2048,
    "model_store.iops": 9000,
    "model_store.mbps": 500,
    "serving.models.*.nodes": [1],
    "serving.ports.ray_gcs": 6400,
    "serving.models.*.system_prompt": "Be brief.",
    "serving.models.*.routes": ["chat"],
    "access.ssh_public_keys": [KEY.replace("test", "other")],
    "access.operator_object_ids": ["8f0ac4f6-1c0e-4d4e-9f5b-0d3f5f2f0a01"],
    "monitoring.alert_emails": ["ops@example.com"],
    "monitoring.daily_cap_gb": 2.5,
    "gateway.tier": "PremiumV2",
    "gateway.publisher_name": "Other",
    "gateway.publisher_email": "a@example.com",
    "gateway.inbound": "private-endpoint",
    "gateway.existing.id": arm_id("Microsoft.ApiManagement/service", "another"),
    "gateway.existing.subnet": "10.8.0.0/24",
    "gateway.existing.prefix": "another",
    "network.private_dns_zones": [arm_id("Microsoft.Network/privateDnsZones", "privatelink.vaultcore.azure.net")],
    "gateway.api_path": "llm/v1",
    "gateway.cors_origins": ["https://chat.example.com"],
    "gateway.policy_fragments.inbound": ["a.xml"],
    "gateway.policy_fragments.outbound": ["b.xml"],
    "gateway.drain": [2],
    f"{PRODUCT}.display_name": "Other",
    f"{PRODUCT}.description": "Other.",
    f"{PRODUCT}.terms": "Be kind.",
    f"{PRODUCT}.models": ["hl"],
    f"{PRODUCT}.routes": ["chat"],
    f"{PRODUCT}.system_prompt": "Be brief.",
    f"{PRODUCT}.subscriptions.0.name": "other",
    f"{PRODUCT}.subscriptions.0.owner": "Bob",
}
"""Another legal value, where the kind of value does not give one."""

NOT_ALONE: Mapping[str, str] = {
    "target": "azure is the only one; it chooses which program runs",
    "network.reserved_ranges": "what the VNet must not overlap: rules read it",
    "nodes.allow_idle_gpus": "whether a layout is refused: tests/unit/plan/test_engines.py",
    "nodes.quota_vcpus": "what was granted: rules and preflight read it",
    "serving.max_unavailable": "which node waits for which: tests/unit/components/test_turns.py",
    "serving.topology": "the planner allows one for each model, size and count of nodes, so it never changes alone",
}
"""Settings that make nothing by themselves, each with the reason."""
SERVING = {"command:remote:Command": lambda _: {"stdout": f'{HOST_KEY}\n{{"state": "serving"}}', "stderr": ""}}
"""What nodes answer over SSH: their host key, and that they serve."""


def leaves(model: type[BaseModel], *above: str) -> Iterator[str]:
    """Every setting below a model: `gateway.products.*.token_quota.tokens`; `*` is any key, `0` an item of a list."""
    for name, field in model.model_fields.items():
        inner, steps = _inside(field.annotation)
        if inner is None:
            yield ".".join([*above, name])
        else:
            yield from leaves(inner, *above, name, *steps)


def _inside(annotation: Any) -> tuple[type[BaseModel] | None, list[str]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, []
    step = {dict: ["*"], tuple: ["0"]}.get(get_origin(annotation) or object, [])
    for argument in get_args(annotation):
        inner, steps = _inside(argument)
        if inner is not None:
            return inner, step + steps
    return None, []


LEAVES = tuple(leaves(type(BASE)))


@pytest.fixture(autouse=True)
def cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the archive lies that goes over SSH."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project's directory, with the files that settings name."""
    folder = tmp_path_factory.mktemp("project")
    for name in "ab":
        (folder / f"{name}.xml").write_text(FRAGMENT.format(name))
    return folder


def _with(values: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    at: Any = values
    for step in above:
        key: Any = int(step) if isinstance(at, list) else next(iter(at)) if step == "*" else step
        at = at[key] if isinstance(at, list) else at.setdefault(key, {})
    at[last] = value


def _values(given: Mapping[str, Any]) -> dict[str, Any]:
    values = BASE.model_dump(mode="json", exclude_unset=True)
    for path, value in given.items():
        _with(values, path, copy.deepcopy(value))
    return values


@cache
def _plan(values: str, root: Path) -> AzurePlan:
    return program.plan_of(type(BASE).model_validate(json.loads(values)), STACK, root)


def _other(path: str, values: dict[str, Any]) -> Any:
    if path in OTHER:
        return OTHER[path]
    at: Any = type(BASE).model_validate(values)
    for step in path.split("."):
        if isinstance(at, Mapping):
            at = next(iter(at.values()))
        else:
            at = at[int(step)] if isinstance(at, tuple) else getattr(at, step)
    if isinstance(at, bool):
        return not at
    if isinstance(at, Enum):
        return next(each for each in type(at) if each is not at).value
    assert isinstance(at, int), f"{path} is {at!r}: say another legal value in OTHER"
    return at + 1


def _user_data(values: str, root: Path) -> list[str]:
    plan = _plan(values, root)
    return [user_data.custom_data(plan, node, plan.compute.login) for node in plan.nodes]


def _policies(values: str, root: Path) -> list[str]:
    gateway = _plan(values, root).gateway
    return [render.api_policy(gateway), *(render.product_policy(product) for product in gateway.products)]


@cache
def _bundle(values: str, root: Path) -> str:
    return bundle.build(_plan(values, root)).digest


@cache
def _registered(values: str, root: Path) -> list[object]:
    plan = _plan(values, root)
    recording: Recording = run_program(lambda: program.register(plan), STACK, outputs=SERVING)
    resources = [(each.urn, each.inputs, each.protect, each.retain_on_delete) for each in recording.resources]
    return [*sorted(resources, key=lambda each: each[0]), recording.exports]


MADE = (_user_data, _policies, _bundle, _registered)
"""What a stack makes, the quickest first; the last has all that the others have, and everything else."""


@pytest.mark.parametrize("path", [path for path in LEAVES if path not in NOT_ALONE])
def test_a_setting_changes_what_the_stack_makes(path: str, root: Path) -> None:
    values = _values(ALWAYS | GIVEN.get(path, {}))
    before = json.dumps(values)
    _with(values, path, _other(path, values))
    after = json.dumps(values)
    assert _plan(after, root) != _plan(before, root), f"{path} is not in the plan"
    made = any(make(after, root) != make(before, root) for make in MADE)
    assert made, f"{path} is in the plan, and nobody reads it there"


def test_every_word_of_this_test_is_about_a_setting() -> None:
    known = set(LEAVES)
    assert len(known) > 80
    for table in (GIVEN, OTHER, NOT_ALONE):
        assert table.keys() <= known, table.keys() - known
