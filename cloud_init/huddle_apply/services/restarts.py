"""Which services must stop, start or reload when a bundle replaces another. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

Fingerprints = Mapping[str, Mapping[str, str]]
"""For each running unit, in start order: what it was started with (`restart`) and what it has read since (`reload`)."""


@dataclass(frozen=True)
class Restarts:
    """`stop` is in reverse start order: the wrapper drains before the engine behind it goes."""

    stop: tuple[str, ...]
    start: tuple[str, ...]
    reload: tuple[str, ...]
    remove: tuple[str, ...]

    @property
    def nothing(self) -> bool:
        """Whether all that runs is as it should be."""
        return not (self.stop or self.start or self.reload or self.remove)


def plan(services: Sequence[Mapping[str, Any]], running: Fingerprints, active: Set[str], steady: Set[str]) -> Restarts:
    """Compare what each service should be made from with what runs. `services` are in start order.

    `active` ones must be stopped before they are started; of those only `steady` ones can reload (systemd refuses it to
    one that is just being started again after its end).
    """
    names = [service["unit"] for service in services]
    changed: set[str] = set()
    reload: list[str] = []
    for service in services:
        unit, last = service["unit"], running.get(service["unit"], {})
        if last.get("restart") != service["restart"] or changed.intersection(service["follows"]):
            changed.add(unit)
        elif unit in active and last.get("reload") != service["reload"]:
            if unit in steady:
                reload.append(unit)
            else:
                changed.add(unit)
    remove = tuple(unit for unit in reversed(list(running)) if unit not in names)
    order = _with_leaving(names, running)
    return Restarts(
        stop=tuple(unit for unit in reversed(order) if unit in remove or (unit in changed and unit in active)),
        start=tuple(unit for unit in names if unit in changed or unit not in active),
        reload=tuple(reload),
        remove=remove,
    )


def _with_leaving(names: Sequence[str], running: Fingerprints) -> list[str]:
    """All units in start order. One that leaves keeps its old place: an engine never stops before the wrapper that
    still sends it requests.
    """
    order = list(names)
    for place, unit in enumerate(running):
        if unit not in order:
            order.insert(order.index(list(running)[place - 1]) + 1 if place else 0, unit)
    return order
