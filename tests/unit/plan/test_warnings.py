"""What a stack may do and probably does not mean: one sentence each, beside the verdict that it is valid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from huddle import registry
from infra import program
from plan import stack_file
from plan.licences import warnings
from plan.rules import azure_warnings
from plan.settings.azure import LOCATION_KEY
from plan.stack_file import PROJECT
from tests.unit.stack_values import KEY, MODEL, changed, settings, write

QUIET: dict[str, Any] = {
    "access": {"ssh_public_keys": [KEY], "bastion": {"sku": "Standard", "tunnel": True}},
    "gateway": {"publisher_email": "ops@contoso.com"},
}
NO_TUNNEL = {"access": {"ssh_public_keys": [KEY], "bastion": {"sku": "Basic"}}}
CLOSED = {"access": {"ssh_public_keys": [KEY]}}
TOLD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({}, []),
    "a size without a price in the region": (
        {LOCATION_KEY: "francecentral"},
        [
            "nodes.size: Standard_NC40ads_H100_v5 had no price in francecentral on 2026-06-18, so it is probably not "
            "offered there; `az vm list-skus -l francecentral --size Standard_NC40ads_H100_v5` tells"
        ],
    ),
    "spot in production": (
        {"environment": "prod", "nodes": {"priority": "spot"}},
        ["nodes.priority: Azure may evict spot nodes at any time, and environment is prod"],
    ),
    "a size without GPU": (
        {"nodes": {"size": "Standard_L8s_v3"}},
        ["nodes.size: Standard_L8s_v3 has no GPU; it proves that everything works, and serves a few tokens a second"],
    ),
    "spot in development": ({"nodes": {"priority": "spot"}}, []),
    "the example's key": (
        {"access": {**QUIET["access"], "ssh_public_keys": [KEY.replace("test", "replace-this-example-key")]}},
        ["access.ssh_public_keys[0] is the example key; nobody holds it"],
    ),
    "the example's address": (
        {"gateway": {"publisher_email": "platform@example.com"}},
        ["gateway.publisher_email: platform@example.com is an example; Azure's notices reach nobody"],
    ),
    "an alert for nobody": (
        {"monitoring": {"alert_emails": ["a@mail.example.org", "b@notexample.com"]}},
        ["monitoring.alert_emails: a@mail.example.org is an example; Azure's notices reach nobody"],
    ),
    "JupyterLab behind a Bastion that forwards nothing": (
        {"jupyter": {"enabled": True}, **NO_TUNNEL},
        [
            "jupyter.enabled: JupyterLab listens on loopback, and nothing forwards a port to it; set access.bastion to "
            "{sku: Standard, tunnel: true}"
        ],
    ),
    "JupyterLab behind a tunnel": ({"jupyter": {"enabled": True}}, []),
    "keys without a way in": (
        CLOSED,
        [
            "access.ssh_public_keys: nothing lets operators in by SSH; set access.bastion.sku, or use "
            "`az vm run-command invoke`"
        ],
    ),
    "keys with SSH from the network": ({"access": {**CLOSED["access"], "delivery": "ssh"}}, []),
    "hardly any logs": (
        {"monitoring": {"daily_cap_gb": 0.000001}},
        ["monitoring.daily_cap_gb: 1e-06 is probably too little for Azure, which is said to take 0.023 or more"],
    ),
}


@pytest.mark.parametrize("case", TOLD)
def test_a_stack_is_told(case: str) -> None:
    changes, expected = TOLD[case]
    assert list(azure_warnings.of(settings(**QUIET | changes))) == expected


def licences(tmp_path: Path, **changes: Any) -> list[str]:
    root = write(tmp_path, changed(**QUIET | changes))
    return program.warnings("dev", root)


def test_a_model_behind_a_licence_is_told_before_anything_is_paid_for(tmp_path: Path) -> None:
    assert licences(tmp_path) == [
        f"serving.models.{MODEL} needs its licence accepted at https://huggingface.co/meta-llama/Llama-3.2-3B-Instruct "
        "and that account's token (`make pulumi ARGS='config set --secret model_hub_token -s dev'`), unless the model "
        "store holds it already; qwen2.5-7b needs neither"
    ]


def test_a_model_behind_a_licence_is_told_by_the_name_in_the_stack_file_and_once(tmp_path: Path) -> None:
    (by_alias,) = licences(tmp_path, serving={"models": {"hl": {}}})
    assert by_alias.startswith("serving.models.hl needs its licence accepted")
    (once,) = licences(tmp_path, serving={"models": {"hl": {}, MODEL: {}}})
    assert once.startswith(f"serving.models.{MODEL} needs")


def test_a_model_that_comes_from_the_store_is_told_nothing() -> None:
    known = registry.load()
    published = known.models[MODEL].model_copy(update={"digest": f"sha256:{'0' * 64}"})
    from_store = replace(known, models={**known.models, MODEL: published})
    assert list(warnings(settings(**QUIET), from_store, "how")) == []
    assert len(list(warnings(settings(**QUIET), known, "how"))) == 1


def test_the_readmes_way_without_a_token_is_a_valid_stack_that_is_told_nothing(tmp_path: Path) -> None:
    readme = (stack_file.ROOT / "README.md").read_text(encoding="utf-8")
    assert "`models: {qwen2.5-7b: {}}` under `h100-inference:serving`" in readme
    assert licences(tmp_path, serving={"models": {"qwen2.5-7b": {}}}) == []
    assert program.load_plan("dev", tmp_path).serving.models[0].name == "qwen2.5-7b"


def test_a_stack_with_a_token_is_told_nothing(tmp_path: Path) -> None:
    assert licences(tmp_path, **{f"{PROJECT}:model_hub_token": {"secure": "v1:encrypted"}}) == []
