"""The dev stack on a stand-in for Azure, as it is after an `up` that went well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_init import bundle
from infra.operations import arm
from simulator.azure.arm import serve
from simulator.azure.sdk.paths import SUBSCRIPTION
from simulator.azure.state.store import Store
from tests.unit.infra.status.arranged import GATEWAY, PLAN, POOL, VMS, applied, pooled, put
from tests.unit.infra.test_arm import running


@pytest.fixture(scope="session")
def wanted() -> str:
    """The bundle that this checkout would apply."""
    return bundle.build(PLAN).digest


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str) -> Iterator[Store]:
    azure = Store(tmp_path / "azure.json")
    with azure.transaction() as state:
        for number, (name, vm) in enumerate(VMS.items()):
            image = {"imageReference": {"version": "24.04.2026"}}
            put(state, vm, "compute:VirtualMachine", provisioningState="Succeeded", storageProfile=image)
            minute = f"2026-11-29T12:{number:02}"
            applied(state, name, wanted, startTime=f"{minute}:01Z", endTime=f"{minute}:59Z")
        put(state, GATEWAY, "apimanagement:ApiManagementService")
        pooled(state, *(member.id for member in POOL.members))
    monkeypatch.setenv("ARM_SUBSCRIPTION_ID", SUBSCRIPTION)
    with running(serve(azure, page=1)) as endpoint:
        monkeypatch.setenv(arm.ENDPOINT_VARIABLE, endpoint)
        yield azure
