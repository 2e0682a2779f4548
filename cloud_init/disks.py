"""The disk files of a node: local NVMe, workspace and model store. Day 0 brings them, every bundle renews them.

What the NVMe disks of a node are: docs/facts/azure.md#local-nvme.
"""

from __future__ import annotations

from cloud_init.files import NodeFile, text_file
from cloud_init.templating import render, text
from plan.model import FleetPlan
from plan.vocabulary import ModelStoreKind

UNITS = "/etc/systemd/system"
PROGRAMS = "/opt/huddle/bin"
NFS_PACKAGE = "nfs-common"


def model_mount(plan: FleetPlan) -> str:
    """The mount unit of the model store; systemd demands that its name is the escaped path."""
    return plan.paths.models.strip("/").replace("-", r"\x2d").replace("/", "-") + ".mount"


def packages(plan: FleetPlan) -> tuple[str, ...]:
    """Debian packages that the disks need."""
    of_store = (NFS_PACKAGE,) if plan.store.kind is ModelStoreKind.AZURE_FILES else ()
    return ("mdadm", *of_store, "xfsprogs")


def files(plan: FleetPlan) -> tuple[NodeFile, ...]:
    """Scripts, units and udev rules for every disk of a node."""
    return (
        text_file(f"{PROGRAMS}/huddle-nvme", text("disks/huddle-nvme"), 0o755),
        text_file(f"{UNITS}/huddle-nvme.service", text("disks/huddle-nvme.service")),
        text_file(f"{UNITS}/mnt-nvme.mount", text("disks/mnt-nvme.mount")),
        text_file(f"{UNITS}/huddle-workspace.service", text("disks/huddle-workspace.service")),
        *_model_store(plan),
    )


def _model_store(plan: FleetPlan) -> tuple[NodeFile, ...]:
    unit = f"{UNITS}/{model_mount(plan)}"
    match plan.store.kind:
        case ModelStoreKind.SHARED_DISK:
            return (
                text_file(
                    "/etc/udev/rules.d/99-huddle-models.rules", render("disks/99-huddle-models.rules.j2", plan=plan)
                ),
                text_file(unit, render("disks/shared-disk.mount.j2", plan=plan)),
            )
        case ModelStoreKind.AZURE_FILES:
            return (text_file(unit, render("disks/azure-files.mount.j2", plan=plan)),)
