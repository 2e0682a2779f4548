"""The operator's own policy elements: read from files, judged before anything is created."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gateway_policies.fragments import fragment_faults
from huddle.errors import Fault, InputError, together
from plan.azure.gateway_model import PolicyFragmentPlan
from plan.settings.azure_gateway import PolicyFragments


def load(wanted: PolicyFragments, root: Path, file: str) -> tuple[PolicyFragmentPlan, ...]:
    """The fragments' texts; `file` names the stack file in errors.

    Raises:
        InputError: a file cannot be read, or holds what a policy of this program may not.
    """
    sections = (("inbound", wanted.inbound), ("outbound", wanted.outbound))
    found = together(partial(_read, name, section, root, file) for section, names in sections for name in names)
    if not found:
        return ()
    faults = [
        Fault(str(fault.place), "", fault.sentence)
        for fragment in found
        for fault in fragment_faults(fragment.text, fragment.section, fragment.file)
    ]
    if faults:
        raise InputError(*faults)
    return tuple(found)


def _read(name: str, section: str, root: Path, file: str) -> PolicyFragmentPlan:
    key, path = f"gateway.policy_fragments.{section}", root / name
    if not name.isprintable():
        raise InputError(Fault(file, key, f"{name!r} is not allowed; allowed: a file's name, of printable text"))
    if not path.resolve().is_relative_to(root.resolve()):
        raise InputError(Fault(file, key, f"'{name}' is outside of the project's directory; allowed: files in it"))
    try:
        return PolicyFragmentPlan(section, name, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(Fault(file, key, f"'{name}' can't be read ({reason}); name a file of the project")) from None
