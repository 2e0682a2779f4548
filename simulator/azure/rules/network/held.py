"""Network interfaces that stay reserved for a VM (docs/facts/azure.md#interfaces-held-back)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from simulator.azure.errors import bad_request
from simulator.azure.rules.base import Op
from simulator.azure.state.store import Resource
from simulator.plugin.values import dig

_HELD: Final = "heldFor"
"""An interface's note: the VM's id, and until when (seconds since the epoch)."""


def of_vm(op: Op, body: Mapping[str, Any]) -> Iterable[Resource]:
    """The interfaces that a VM's body names and that exist."""
    entries = dig(body, "networkProfile.networkInterfaces", []) or []
    return [nic for nic in (op.get(entry.get("id")) for entry in entries) if nic is not None]


def hold(op: Op, interfaces: Iterable[Resource]) -> None:
    """They stay reserved for this operation's VM as long as the injected fault says; another's reservation stands."""
    if op.interfaces_held_s:
        for nic in interfaces:
            if not _holder(op, nic):
                nic.notes[_HELD] = {"vm": op.id.lower(), "until": op.now + op.interfaces_held_s}


def require_free(op: Op, nic: Resource) -> None:
    """The VM for which an interface is reserved may have it again.

    Raises:
        ArmError: it is reserved for another VM, or is to be deleted.
    """
    if vm := _holder(op, nic):
        raise bad_request(
            "NicReservedForAnotherVm",
            "Nic(s) in request is reserved for another Virtual Machine for 180 seconds. Please provide another nic(s) "
            f"or retry after 180 seconds. Reserved VM: {vm}",
        )


def _holder(op: Op, nic: Resource) -> str:
    """The other VM for which it is reserved now, if any."""
    held = nic.notes.get(_HELD)
    return str(held["vm"]) if held and held["until"] > op.now and held["vm"] != op.id.lower() else ""
