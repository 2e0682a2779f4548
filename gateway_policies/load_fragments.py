"""The operator's own policy elements: read from files, judged before anything is created."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from huddle.errors import Fault, InputError
from plan.model_azure import AzurePlan
from plan.model_gateway import PolicyFragmentPlan
from plan.settings.azure_gateway import PolicyFragments


def with_fragments(plan: AzurePlan, wanted: PolicyFragments, root: Path, file: str) -> AzurePlan:
    """The plan with the fragments' texts; `file` names the stack file in errors.

    Raises:
        InputError: a file cannot be read, or holds what a policy of this program may not.
    """
    found = [*_read(wanted.inbound, "inbound", root, file), *_read(wanted.outbound, "outbound", root, file)]
    if not found:
        return plan
    from gateway_policies.fragments import fragment_faults  # noqa: PLC0415 - brings in Pulumi

    faults = [
        Fault(str(fault.place), "", fault.sentence)
        for fragment in found
        for fault in fragment_faults(fragment.text, fragment.section, fragment.file)
    ]
    if faults:
        raise InputError(*faults)
    return replace(plan, gateway=replace(plan.gateway, policy_fragments=tuple(found)))


def _read(names: tuple[str, ...], section: str, root: Path, file: str) -> Iterator[PolicyFragmentPlan]:
    for name in names:
        key, path = f"gateway.policy_fragments.{section}", root / name
        if not name.isprintable():
            raise InputError(Fault(file, key, f"{name!r} is not allowed; allowed: a file's name, of printable text"))
        if not path.resolve().is_relative_to(root.resolve()):
            raise InputError(Fault(file, key, f"'{name}' is outside of the project's directory; allowed: files in it"))
        try:
            yield PolicyFragmentPlan(section, name, path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InputError(
                Fault(file, key, f"'{name}' can't be read ({reason}); name a file of the project")
            ) from None
