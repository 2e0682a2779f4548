"""What the program builds before it registers resources: bundle, day 0, scripts, policies. No Pulumi.

`infra validate` makes them as `pulumi up` does, so what stops one stops the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cloud_init import bundle, user_data
from cloud_init.bundle import Bundle
from cloud_init.delivery import run_command
from components import alert_rules
from gateway_policies import openapi
from gateway_policies.extra_apis import rendered
from plan.azure.model import AzurePlan
from plan.vocabulary import Delivery

_CLIENT_ID = "00000000-0000-0000-0000-000000000000"
"""As long as any identity's."""


@dataclass(frozen=True)
class Artifacts:
    """The bundle of all nodes, and each node's customData by its name."""

    bundle: Bundle
    custom_data: Mapping[str, str]


def make(plan: AzurePlan) -> Artifacts:
    """Make everything, and see that Azure would take it.

    Raises:
        InputError: data of the program, or a file that the registry names, is missing or wrong, or something is larger
            than Azure takes.
    """
    rendered(plan.gateway)
    openapi.document()
    list(alert_rules.alerts())
    alert_rules.workbook(plan.names.workbook_title)
    built = bundle.build(plan)
    if plan.access.delivery is Delivery.RUN_COMMAND:  # over SSH nothing has a limit
        secrets = run_command.SecretSource(f"https://{plan.names.key_vault}.vault.azure.net/", _CLIENT_ID)
        for node in plan.nodes:
            run_command.prepare_script(plan, node, built, secrets)
    return Artifacts(built, {node.name: user_data.custom_data(plan, node, plan.compute.login) for node in plan.nodes})
