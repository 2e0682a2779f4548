"""The steps of a rehearsal, each with what must be true afterwards. Expectations are pure; running is a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from infra import program
from infra.proof.answers import Verdict
from infra.rehearsal import existing, leftovers, proof
from infra.rehearsal.record import REMOTE_COMMAND, REMOTE_COPY, RUN_COMMAND, VM, Change, Record, join
from infra.rehearsal.sandbox import OnEvent, Sandbox
from plan.azure.model import AzurePlan
from plan.vocabulary import GatewayInbound, PublicAccess
from simulator.azure.state.store import Store

KEPT_WHEN_IMAGE_CHANGES = (
    "azure-native:network:NetworkInterface",
    "azure-native:compute:Disk",
    "azure-native:network:VirtualNetwork",
    "azure-native:apimanagement:ApiManagementService",
)
NEXT_IMAGE_VERSION = "99.99.2099010101"
"""An image version that no stack names, to see what a new image would do."""


@dataclass(frozen=True)
class Step:
    """One operation. `check` returns what is wrong as a sentence, or None; `refused` steps must fail with that text.

    `tell` says what came of it, where the number of changed resources does not.
    """

    name: str
    title: str
    command: str
    run: Callable[[Sandbox, OnEvent], Any]
    check: Callable[[Record, Sandbox], str | None]
    refused: str | None = None
    tell: Callable[[Sandbox], str] | None = None


def steps_of(plan: AzurePlan) -> tuple[Step, ...]:
    """The life of a stack: create, no change, drift check, proof, change, what a new image would do, destroy."""
    stack = plan.stack
    steps = [
        Step("create", "Create everything", f"pulumi up -s {stack}", _up, _everything_created),
        Step("preview", "Preview again", f"pulumi preview -s {stack}", _preview, _nothing_changed),
        Step("refresh", "Refresh, then preview", f"pulumi refresh -s {stack}", _refresh_and_preview, _nothing_changed),
        Step(
            "prove",
            "Ask what only Azure can settle",
            f"infra prove -s {stack} --try",
            _look,
            _nothing_refuted,
            tell=proof.told,
        ),
        Step("prompt", "Change a system prompt", f"pulumi up -s {stack}", _change_prompt, _no_vm_touched),
        Step("image", "Preview a new VM image", f"pulumi preview -s {stack}", _preview_image, _vms_replaced_only),
    ]
    if plan.gateway.inbound is GatewayInbound.PRIVATE_ENDPOINT and plan.gateway.public_access is PublicAccess.ENABLED:
        lock = Step(
            "lock",
            "Close the gateway's public endpoint",
            f"pulumi up -s {stack}",
            _close_public_access,
            _gateway_updated,
        )
        steps.append(lock)
    destroy = Step("destroy", "Destroy everything", f"pulumi destroy -s {stack}", _destroy, _subscription_empty)
    if plan.protect:
        refused = replace(destroy, name="guard", title="Destroy is refused", run=_preview_destroy, refused="protect")
        steps.append(replace(refused, check=_nothing_gone))
        steps.append(Step("unprotect", "Unprotect", f"pulumi state unprotect --all -s {stack}", _unprotect, _untouched))
    left = Step("leaks", "Look for what is left", f"infra leaks -s {stack}", _look, _nothing_left, tell=_told)
    if not plan.protect:
        left = replace(left, title="Free the names", command=f"infra purge -s {stack}", run=_purge)
    return (*steps, destroy, left)


def _up(sandbox: Sandbox, on_event: OnEvent) -> None:
    sandbox.stack.up(on_event=on_event)


def _preview(sandbox: Sandbox, on_event: OnEvent) -> None:
    sandbox.stack.preview(on_event=on_event)


def _refresh_and_preview(sandbox: Sandbox, on_event: OnEvent) -> None:
    sandbox.stack.refresh(on_event=on_event)
    sandbox.stack.preview(on_event=on_event)


def _change_prompt(sandbox: Sandbox, on_event: OnEvent) -> None:
    def edit(settings: dict[str, Any]) -> None:
        model = sorted(settings["serving"]["models"])[0]
        settings["serving"]["models"][model] = {
            **(settings["serving"]["models"][model] or {}),
            "system_prompt": "You are being rehearsed. Answer briefly.",
        }

    sandbox.edit(edit)
    sandbox.stack.up(on_event=on_event)


def _preview_image(sandbox: Sandbox, on_event: OnEvent) -> None:
    before = sandbox.stack_file.read_bytes()
    sandbox.edit(lambda settings: settings["nodes"]["image"].update(version=NEXT_IMAGE_VERSION))
    try:
        sandbox.stack.preview(on_event=on_event)
    finally:
        sandbox.stack_file.write_bytes(before)


def _close_public_access(sandbox: Sandbox, on_event: OnEvent) -> None:
    sandbox.edit(lambda settings: settings["gateway"].update(public_access=PublicAccess.DISABLED.value))
    sandbox.stack.up(on_event=on_event)


def _unprotect(sandbox: Sandbox, _: OnEvent) -> None:
    state = sandbox.stack.export_stack()
    for resource in (state.deployment or {}).get("resources", []):
        resource.pop("protect", None)
    sandbox.stack.import_stack(state)


def _preview_destroy(sandbox: Sandbox, on_event: OnEvent) -> None:
    """What `pulumi destroy` does first; with --skip-preview it would delete all that is not protected, then fail."""
    sandbox.stack.destroy(preview_only=True, on_event=on_event)


def _destroy(sandbox: Sandbox, on_event: OnEvent) -> None:
    sandbox.stack.destroy(on_event=on_event)


def _purge(sandbox: Sandbox, _: OnEvent) -> None:
    leftovers.purge(sandbox)


def _look(_: Sandbox, __: OnEvent) -> None:
    """Nothing is changed: the step's check looks."""


def _nothing_refuted(_: Record, sandbox: Sandbox) -> str | None:
    refuted = [one.id for one in proof.answers_of(sandbox) if one.verdict is Verdict.FAILS]
    return f"the simulated Azure should refute no assumption, but {join(refuted)} did not hold" if refuted else None


def _nothing_left(_: Record, sandbox: Sandbox) -> str | None:
    return leftovers.problem(sandbox, leftovers.find(sandbox))


def _told(sandbox: Sandbox) -> str:
    return leftovers.told(leftovers.find(sandbox))


def _everything_created(record: Record, _: Sandbox) -> str | None:
    others = {name for name, change in record.touched().items() if change is not Change.CREATE}
    return f"expected only new resources, but {join(others)} changed otherwise" if others else None


def _nothing_changed(record: Record, _: Sandbox) -> str | None:
    touched = record.touched()
    return f"expected no change, but {join(touched)} would change" if touched else None


def _no_vm_touched(record: Record, _: Sandbox) -> str | None:
    touched = record.touched_types()
    if VM in touched:
        return "a system prompt must never touch a VM, but one changed"
    applied = {*record.of_type(RUN_COMMAND), *record.of_type(REMOTE_COMMAND)} & set(record.touched())
    if not any(name.endswith("-apply") for name in applied):
        return "expected the new bundle to be applied on the nodes, but no command of theirs changed"
    sent = {*record.of_type(RUN_COMMAND), *record.of_type(REMOTE_COPY)} & set(record.touched())
    parts = sorted(name for name in sent if not name.endswith(("-apply", "-prepare", "-bundle")))
    return f"a system prompt must send no part of the bundle again, but {join(parts)} changed" if parts else None


def _vms_replaced_only(record: Record, _: Sandbox) -> str | None:
    vms = record.of_type(VM)
    if not vms or set(vms.values()) != {Change.REPLACE}:
        return f"a new image must replace every VM, but the preview says {vms}"
    lost = [kind for kind in KEPT_WHEN_IMAGE_CHANGES if kind in record.touched_types()]
    return f"a new image must keep everything else, but {join(lost)} would change" if lost else None


def _gateway_updated(record: Record, _: Sandbox) -> str | None:
    touched = record.touched_types()
    return None if touched else "expected the gateway to be updated, but nothing changed"


def _untouched(record: Record, _: Sandbox) -> str | None:
    touched = record.touched()
    return f"expected nothing to change, but {join(touched)} did" if touched else None


def _nothing_gone(_: Record, sandbox: Sandbox) -> str | None:
    before = sum(bool(resource.get("custom")) for resource in sandbox.resources())
    left = len(Store(sandbox.azure_state).read().resources)
    return (
        None if left >= before > 0 else f"nothing may be gone after a refused destroy, but {left} of {before} are left"
    )


def _subscription_empty(_: Record, sandbox: Sandbox) -> str | None:
    plan = program.load_azure_plan(sandbox.stack_name, sandbox.directory)
    resources = Store(sandbox.azure_state).read().resources.values()
    left = [resource.name for resource in resources if existing.is_ours(plan, resource.id)]
    return f"the subscription should be empty, but {join(left)} is left" if left else None
