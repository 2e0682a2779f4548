"""Stack values, settings and plans for tests of pure code: a legal stack, changed where a test says so. No Pulumi."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from huddle import registry
from huddle.errors import Fault, InputError
from plan import stack_file
from plan.azure.build import build
from plan.azure.model import AzurePlan
from plan.settings.azure import AzureSettings

FILE = "stacks/Pulumi.dev.yaml"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHme63GahSa9lKt98hTj1C7LJL2GzfURKGFi1h5Gcbfd test"
REMOVED = object()
FILES = {"kind": "azure-files", "sku": REMOVED}
MODEL, OTHER_MODEL = "llama-3.2-3b", "llama-3.1-8b"


@cache
def _dev() -> dict[str, Any]:
    return stack_file.read("dev")


def changed(**changes: Any) -> dict[str, Any]:
    """The dev stack's config with some sections changed: `changed(nodes={"count": 3}, tags=None)`.

    Mappings are merged one level deep; `REMOVED` takes a key away.
    """
    config = copy.deepcopy(_dev())
    for name, value in changes.items():
        key = name if ":" in name else f"{stack_file.PROJECT}:{name}"
        old = config.get(key)
        if value is REMOVED:
            del config[key]
        elif isinstance(old, Mapping) and isinstance(value, Mapping):
            merged = {**old, **value}
            config[key] = {inner: item for inner, item in merged.items() if item is not REMOVED}
        else:
            config[key] = value
    return config


def settings(**changes: Any) -> AzureSettings:
    """AzureSettings of the dev stack with some sections changed."""
    return stack_file.from_values(changed(**changes), "dev")


def plan(stack: str = "dev", **changes: Any) -> AzurePlan:
    """The plan that these settings make."""
    return build(settings(**changes), project=stack_file.PROJECT, stack=stack, bases=bases(), file=FILE)


@cache
def bases() -> dict[str, str]:
    """What the shipped model registry serves, read once."""
    return {served.name: served.model.name for served in registry.load().served}


def faults(stack: str = "dev", **changes: Any) -> tuple[Fault, ...]:
    """What is wrong with a changed stack, from reading to planning; nothing wrong fails the test."""
    with pytest.raises(InputError) as caught:
        plan(stack, **changes)
    return caught.value.faults


def fault(stack: str = "dev", **changes: Any) -> Fault:
    """The one thing that is wrong with a changed stack."""
    found = faults(stack, **changes)
    assert len(found) == 1, "\n".join(map(str, found))
    return found[0]


def write(root: Path, text: str | bytes | Mapping[str, Any], stack: str = "dev") -> Path:
    """A project directory that holds one stack file: raw text, or a config mapping."""
    (root / "stacks").mkdir(exist_ok=True)
    if isinstance(text, Mapping):
        text = yaml.safe_dump({"config": dict(text)})
    data = text if isinstance(text, bytes) else text.encode()
    (root / "stacks" / f"Pulumi.{stack}.yaml").write_bytes(data)
    return root


# A stack that is legal in every way that matters to addresses, ports and names.
ZONES = st.sampled_from(["1", "2", "3"])
GATEWAYS = (
    ("Developer", "public"),
    ("Developer", "internal"),
    ("Premium", "public"),
    ("Premium", "internal"),
    ("StandardV2", "public"),
    ("StandardV2", "private-endpoint"),
    ("PremiumV2", "public"),
    ("PremiumV2", "private-endpoint"),
    ("PremiumV2", "internal"),
)


@st.composite
def legal_changes(draw: st.DrawFn) -> dict[str, Any]:
    """Changes that keep the stack legal, over everything that moves ports, rules or addresses."""
    count = draw(st.integers(1, 15))
    tier, inbound = draw(st.sampled_from(GATEWAYS))
    distributed = count > 1 and draw(st.booleans())
    ports = draw(st.lists(st.integers(7000, 9399), min_size=6, max_size=6, unique=True))
    return {
        "nodes": {"count": count, "quota_vcpus": 40 * count, "zone": draw(ZONES)},
        "model_store": draw(st.sampled_from([FILES, {"kind": "shared-disk", "sku": "PremiumV2_LRS"}])),
        "gateway": {"tier": tier, "inbound": inbound},
        "access": {"bastion": {"sku": draw(st.sampled_from(["none", "Developer", "Basic", "Standard", "Premium"]))}},
        "serving": {
            "topology": "distributed" if distributed else "replicas",
            "ports": dict(zip(("wrapper", "vllm", "ray_gcs", "ray_client", "ray_dashboard"), ports, strict=False)),
        },
        "jupyter": {"enabled": draw(st.booleans()), "port": ports[5]},
    }
