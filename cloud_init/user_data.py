"""Day 0: what a VM gets as customData when it is created. Small and stable: see docs/decisions/0004.

Only the node's own name and address, operators' keys and the kind of model store show in it. Node count, topology,
ports, models, prompts and products do not: they come with the bundle, so that changing them replaces no machine.
"""

from __future__ import annotations

import base64

from cloud_init import disks
from cloud_init.bundle import node_facts
from cloud_init.files import NodeFile, text_file
from cloud_init.templating import render, text
from huddle.errors import InputError
from plan.model import FleetPlan, Login, NodePlan

CUSTOM_DATA_LIMIT = 65_535
"""Azure's limit on the decoded bytes (docs/facts/azure.md#custom-data); for us it holds for the base64 text, too."""
APPLY_PROGRAM = f"{disks.PROGRAMS}/huddle-apply"


class CustomDataTooLargeError(InputError):
    """The rendered user-data would be refused by Azure."""


def user_data(plan: FleetPlan, node: NodePlan, login: Login) -> str:
    """The cloud-config of one node, as YAML text."""
    return render(
        "user-data/user-data.yaml.j2",
        plan=plan,
        node=node,
        login=login,
        packages=node_facts.packages(plan),
        files=_files(plan, node),
        model_mount=disks.model_mount(plan),
    )


def custom_data(plan: FleetPlan, node: NodePlan, login: Login) -> str:
    """The user-data as Azure takes it: base64.

    Raises:
        CustomDataTooLargeError: at 64 KiB or more.
    """
    encoded = base64.b64encode(user_data(plan, node, login).encode()).decode()
    if len(encoded) > CUSTOM_DATA_LIMIT:
        raise CustomDataTooLargeError(
            f"customData of {node.name} has {len(encoded)} bytes; Azure allows {CUSTOM_DATA_LIMIT}; "
            "give fewer access.ssh_public_keys, or move files from day 0 into the bundle"
        )
    return encoded


def _files(plan: FleetPlan, node: NodePlan) -> tuple[NodeFile, ...]:
    return (
        text_file("/etc/hosts", render("etc/hosts.j2", nodes=(node,))),
        text_file(APPLY_PROGRAM, text("apply/huddle-apply"), 0o755),
        text_file(f"{disks.UNITS}/huddle-apply.service", text("apply/huddle-apply.service")),
        *disks.files(plan),
    )
