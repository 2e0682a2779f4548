"""The Azure target (`infra.targets.TargetModule`). The cloud's SDK is imported late."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gateway_policies import load_fragments
from infra.targets.azure.login import obstacle
from plan import stack_file
from plan.azure.gateway_model import PolicyFragmentPlan
from plan.azure.model import AzurePlan
from plan.rules import azure_warnings
from plan.settings.azure import AzureSettings

if TYPE_CHECKING:
    from infra.operations.failures import Failure
    from infra.reports.cost import Estimate

__all__ = [
    "check",
    "complete",
    "deploy",
    "estimate",
    "explain",
    "headline",
    "obstacle",
    "picture",
    "read_files",
    "refused_before",
    "summary",
    "warnings",
]


def read_files(settings: AzureSettings, root: Path, file: str) -> tuple[PolicyFragmentPlan, ...]:
    """The operator's policy fragments."""
    return load_fragments.load(settings.gateway.policy_fragments, root, file)


def complete(plan: AzurePlan, read: tuple[PolicyFragmentPlan, ...]) -> AzurePlan:
    """The plan with the operator's policy fragments."""
    return replace(plan, gateway=replace(plan.gateway, policy_fragments=read))


def check(plan: AzurePlan) -> None:
    """Bundle, day 0, scripts and policies, with their limits; and the data that commands and nodes read later."""
    from huddle.wrapper.body import fields  # noqa: PLC0415
    from infra.reports import cost, durations  # noqa: PLC0415
    from infra.targets.azure import artifacts  # noqa: PLC0415 - reads policies and wheel, which few commands need

    for read in (cost.load_prices, durations.load, fields.sections, lambda: artifacts.make(plan)):
        read()


def deploy(plan: AzurePlan) -> None:
    """Register every resource and export the stack's outputs."""
    from infra.targets.azure import resources  # noqa: PLC0415 - importing azure-native costs a second

    resources.deploy(plan)


def headline(plan: AzurePlan) -> str:
    """What the stack is, in a few words."""
    return f"{len(plan.nodes)} x {plan.compute.size.name} in {plan.location}"


def summary(plan: AzurePlan) -> list[tuple[str, str]]:
    """What a person asks first."""
    from infra.reports import azure_summary  # noqa: PLC0415

    return azure_summary.summary(plan)


def warnings(settings: AzureSettings) -> list[str]:
    """What is allowed on Azure, and probably not meant."""
    return list(azure_warnings.of(settings))


def estimate(plan: AzurePlan) -> Estimate:
    """List prices of a month."""
    from infra.reports import cost  # noqa: PLC0415

    return cost.estimate(plan)


def picture(plan: AzurePlan) -> str:
    """Network, nodes, gateway and stores."""
    from infra.reports import picture as report  # noqa: PLC0415

    return report.render(plan)


def explain(text: str, plan: AzurePlan) -> Failure | None:
    """Sentences that say what Azure's errors mean and what to do."""
    from infra.operations import failures  # noqa: PLC0415

    return failures.explain(text, plan)


def refused_before(action: str, plan: AzurePlan) -> int:
    """1, with the reason said, when it would delete what others subscribed to, or meet a DNS zone of others."""
    question = {"up": "--leaving", "destroy": "--destroy"}[action]
    command = [str(stack_file.ROOT / ".venv/bin/infra"), "products", question, "-s", plan.stack]
    refused = subprocess.run(command, check=False, stdout=sys.stderr).returncode
    return refused or (_zones_in_the_way(plan) if action == "up" else 0)


def _zones_in_the_way(plan: AzurePlan) -> int:
    """Whoever may not list zones is not held up: Azure itself refuses the second one, though after some minutes."""
    from infra.operations import arm, private_zones  # noqa: PLC0415

    if plan.network.existing_vnet is None or not plan.network.private_zones:
        return 0
    try:
        with arm.connect() as azure:
            refusals = list(private_zones.in_the_way(azure, plan))
    except arm.ArmError as error:
        print(f"warning: whether the VNet has our private DNS zones already is not known: {error}", file=sys.stderr)  # noqa: T201
        return 0
    for refusal in refusals:
        print(f"error: {refusal}", file=sys.stderr)  # noqa: T201 - before pulumi's own words
    return int(bool(refusals))
