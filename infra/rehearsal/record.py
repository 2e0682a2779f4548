"""What one engine operation did, from the engine's own events. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import UNIQUE, StrEnum, verify

from pulumi.automation import events

VM = "azure-native:compute:VirtualMachine"
RUN_COMMAND = "azure-native:compute:VirtualMachineRunCommandByVirtualMachine"
REMOTE_COMMAND, REMOTE_COPY = "command:remote:Command", "command:remote:CopyToRemote"


@verify(UNIQUE)
class Change(StrEnum):
    """What happened to a resource, in the engine's words brought down to what people ask about."""

    SAME = "same"
    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"
    READ = "read"


_CHANGES: Mapping[str, Change] = {
    "same": Change.SAME,
    "create": Change.CREATE,
    "update": Change.UPDATE,
    "replace": Change.REPLACE,
    "create-replacement": Change.REPLACE,
    "delete-replaced": Change.REPLACE,
    "delete": Change.DELETE,
    "read": Change.READ,
    "refresh": Change.SAME,
}


def name_of(urn: str) -> str:
    """The logical name at the end of a URN."""
    return urn.rsplit("::", 1)[-1]


@dataclass
class Record:
    """Collects events while an operation runs.

    `order` keeps the engine's own steps in the order they finished, so that "deleted first" can be checked.
    """

    changes: dict[str, Change] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)
    diagnostics: list[str] = field(default_factory=list)

    def add(self, event: events.EngineEvent) -> None:
        """Add one event of the engine's log to the record."""
        if event.resource_pre_event:
            self._note(event.resource_pre_event.metadata)
        if event.res_outputs_event:
            metadata = event.res_outputs_event.metadata
            self._note(metadata)
            self.order.append((str(metadata.op.value), metadata.urn))
        if event.diagnostic_event and event.diagnostic_event.severity == "error":
            self.diagnostics.append(event.diagnostic_event.message.strip())

    def _note(self, metadata: events.StepEventMetadata) -> None:
        change = _CHANGES.get(str(metadata.op.value))
        if change is None or metadata.type.startswith("pulumi:"):
            return
        self.types[metadata.urn] = metadata.type
        if self.changes.get(metadata.urn) is not Change.REPLACE:
            self.changes[metadata.urn] = change

    def count(self) -> Counter[Change]:
        """How many resources changed in which way, components left out."""
        return Counter(change for urn, change in self.changes.items() if not self._is_component(urn))

    def touched(self) -> dict[str, Change]:
        """Names of resources that did not stay the same, components left out."""
        return {
            name_of(urn): change
            for urn, change in sorted(self.changes.items())
            if change not in (Change.SAME, Change.READ) and not self._is_component(urn)
        }

    def touched_types(self) -> dict[str, set[Change]]:
        """Types of resources that did not stay the same."""
        found: dict[str, set[Change]] = {}
        for urn, change in self.changes.items():
            if change not in (Change.SAME, Change.READ) and not self._is_component(urn):
                found.setdefault(self.types[urn], set()).add(change)
        return found

    def of_type(self, resource_type: str) -> dict[str, Change]:
        """Changes of one type, by name."""
        return {name_of(urn): change for urn, change in self.changes.items() if self.types[urn] == resource_type}

    def _is_component(self, urn: str) -> bool:
        return self.types[urn].startswith("h100:")


def summary(count: Mapping[Change, int]) -> str:
    """`61 created`, or `no change`."""
    words = {
        Change.CREATE: "created",
        Change.UPDATE: "updated",
        Change.REPLACE: "replaced",
        Change.DELETE: "deleted",
    }
    parts = [f"{count[change]} {word}" for change, word in words.items() if count.get(change)]
    return ", ".join(parts) or "no change"


def join(names: Iterable[str], limit: int = 4) -> str:
    """A few names for a sentence."""
    listed = list(names)
    rest = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + rest
