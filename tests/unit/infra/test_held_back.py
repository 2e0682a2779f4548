"""What Azure refuses for a while: no free machine, an interface or an address that it keeps. Said, and tried again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infra.cli import deploy
from infra.engine import PulumiEngine
from infra.engine.origin import Origin
from infra.operations import failures
from infra.program import load_azure_plan
from simulator.azure.faults import CapacityCode

RESERVED = (
    'Code="NicReservedForAnotherVm" Message="Nic(s) in request is reserved for another Virtual Machine for 180 '
    'seconds. Please provide another nic(s) or retry after 180 seconds. Reserved VM: /subscriptions/…"'
)
ALLOCATED = (
    "PrivateIPAddressIsAllocated: IP configuration /subscriptions/s/resourceGroups/huddleai-dev-rg/providers/"
    "Microsoft.Network/networkInterfaces/a/ipConfigurations/ip is using the private IP address 10.0.0.4 which is "
    "already allocated to resource /subscriptions/s/resourceGroups/{group}/providers/Microsoft.Network/"
    "networkInterfaces/{name}/ipConfigurations/ip."
)


@pytest.mark.parametrize("code", [code.value for code in CapacityCode])
def test_every_code_of_a_full_region_is_the_capacity_sentence(code: str) -> None:
    failure = failures.explain(f'Code="{code}" Message="Allocation failed."', load_azure_plan("dev"))
    assert failure is not None, f"nobody explains {code}"
    assert failure.what.startswith("Azure has no free Standard_NC40ads_H100_v5")
    assert f"({code})" in failure.what


def test_a_region_full_without_zones_is_among_them() -> None:
    """What a stack without `nodes.zone` gets, such as dev."""
    assert "OverconstrainedAllocationRequest" in {code.value for code in CapacityCode}


def test_a_kept_interface_is_said_and_may_be_tried_again() -> None:
    failure = failures.explain(RESERVED, load_azure_plan("dev"))
    assert failure is not None
    assert "for 180 seconds" in failure.what
    assert "again in three minutes" in failure.next_step
    assert failure.again_in_s == 180


def test_an_address_of_our_own_old_interface_will_be_free_soon() -> None:
    failure = failures.explain(ALLOCATED.format(group="HUDDLEAI-DEV-RG", name="old"), load_azure_plan("dev"))
    assert failure is not None
    assert "10.0.0.4 is not free yet" in failure.what
    assert failure.again_in_s == 180


def test_an_address_of_somebody_else_is_not_waited_for() -> None:
    failure = failures.explain(ALLOCATED.format(group="theirs", name="printer"), load_azure_plan("dev"))
    assert failure is not None
    assert "networkInterfaces/printer" in failure.what
    assert "network.nodes_subnet" in failure.next_step
    assert failure.again_in_s is None


@dataclass
class Pulumi:
    """A stand-in for the CLI that notes its arguments and fails as often as it is told, with an error of Azure's."""

    folder: Path
    error: str
    waited: list[float] = field(default_factory=list)

    def run(self, action: str, failing: int) -> int:
        program = self.folder / "pulumi"
        (self.folder / "left").write_text("x" * failing, encoding="utf-8")
        event = json.dumps({"diagnosticEvent": {"severity": "error", "message": self.error}})
        program.write_text(
            f'#!/bin/sh\ncd {self.folder}\necho "$*" >> calls\n[ -s left ] || exit 0\n'
            f"truncate -s -1 left\nfor last; do :; done\ncat > \"$last\" <<'EOF'\n{event}\nEOF\nexit 7\n",
            encoding="utf-8",
        )
        program.chmod(0o755)
        engine = PulumiEngine(program, None, None, Origin.RELEASE, "3")
        return deploy.run_pulumi(engine, [action, "--stack", "dev"], "dev", wait=self.waited.append)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()


def test_up_waits_until_azure_lets_go_and_tries_once_more(tmp_path: Path) -> None:
    pulumi = Pulumi(tmp_path, RESERVED)
    assert pulumi.run("up", failing=1) == 0
    assert len(pulumi.waited) == 1
    assert pulumi.waited[0] >= 180
    first, second = pulumi.calls
    assert "--yes" not in first
    assert "--yes" in second, "it was confirmed once; nobody may sit there three minutes later"


def test_it_tries_only_once_more(tmp_path: Path) -> None:
    pulumi = Pulumi(tmp_path, RESERVED)
    assert pulumi.run("up", failing=5) == 7
    assert len(pulumi.calls) == 2


@pytest.mark.parametrize(("action", "error"), [("destroy", RESERVED), ("up", 'Code="SkuNotAvailable"')])
def test_nothing_else_is_tried_again(tmp_path: Path, action: str, error: str) -> None:
    pulumi = Pulumi(tmp_path, error)
    assert pulumi.run(action, failing=1) == 7
    assert pulumi.waited == []
    assert len(pulumi.calls) == 1
