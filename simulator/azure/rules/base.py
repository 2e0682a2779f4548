"""What a resource type's imitation can say, and the register of all imitations.

A type without an entry works by the generic rules: names, required properties and enums from the SDK, existence,
parents, references, secrets. An entry adds what hurts users of exactly that type.
"""

# ruff: noqa: ARG002 - hooks that do nothing by default
from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from simulator.azure.errors import ArmError
from simulator.azure.faults import Operation
from simulator.azure.sdk.paths import ArmPath
from simulator.azure.sdk.schema import ResourceSchema
from simulator.azure.state.redaction import digest
from simulator.azure.state.store import Resource, State

if TYPE_CHECKING:
    from simulator.azure.faults import RunCommandFault


@dataclass
class Op:
    """One operation on one resource, as the rules see it. Inputs are revealed: never put them into texts unchecked."""

    kind: Operation
    schema: ResourceSchema
    path: ArmPath
    id: str
    inputs: dict[str, Any]
    state: State
    now: float
    urn: str = ""
    location: str = ""
    subscription: str = ""
    tenant: str = ""
    old: Resource | None = None
    old_inputs: dict[str, Any] = field(default_factory=dict)
    run_command: RunCommandFault | None = None
    link_stays_s: float = 0.0  # of a deleted gateway, to its delegated subnet
    interfaces_held_s: float = 0.0  # of a VM that could not be made or was deleted
    role_delay_s: float = 0.0
    extra_refs: list[str] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Last segment of the id."""
        return self.id.rsplit("/", 1)[-1]

    @property
    def key(self) -> str:
        """`compute:Disk`."""
        return self.schema.key

    def get(self, resource_id: Any) -> Resource | None:
        """A live resource by id; `None` for anything that is not an id."""
        return self.state.get(resource_id) if isinstance(resource_id, str) else None

    def digest(self, value: Any) -> str:
        """Keyed digest of a value that must not be written down."""
        return digest(self.state.salt, value)

    @property
    def timestamp(self) -> str:
        """The time of the operation as ARM writes times."""
        return datetime.datetime.fromtimestamp(self.now, datetime.UTC).isoformat()

    @property
    def parent_id(self) -> str:
        """Id two segments up."""
        return self.id.rsplit("/", 2)[0]


Failure = tuple[str, str]


class Rules:
    """Imitation of one resource type; every method may be left as it is."""

    # Nested defaults that Azure fills in when the request is silent.
    defaults: ClassVar[dict[str, Any]] = {}
    # Dotted paths that a GET never returns (`*` matches any one step).
    hidden: tuple[str, ...] = ()
    # How long Azure usually takes, in seconds; only the time scale uses it (rough, not from a source).
    typical_seconds: float = 5.0

    def check(self, inputs: dict[str, Any]) -> Iterator[Failure]:
        """Problems the provider itself finds before any request; unknown values are `UNKNOWN`."""
        yield from ()

    def create(self, op: Op) -> None:
        """Refuse a creation by raising `ArmError`."""

    def update(self, op: Op) -> None:
        """Refuse an update by raising `ArmError`: what may not be made may not become so, either."""
        self.create(op)

    def delete(self, op: Op) -> None:
        """Refuse a deletion by raising `ArmError`."""

    def exclusive(self, op: Op) -> tuple[str, ...]:
        """Keys of entities that only one operation at a time may write."""
        return ()

    def busy(self, op: Op, key: str) -> ArmError:
        """What Azure says when such an entity is being written."""
        return ArmError(
            409,
            "AnotherOperationInProgress",
            "Another operation on this or dependent resource is in progress. To retrieve status of the operation use "
            f"uri: (simulated) {key}.",
        )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        """Add what Azure computes to the outputs."""

    def refused(self, op: Op) -> None:
        """After a refusal, whether Azure's or an injected one: what it leaves behind."""

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        """After the operation: implicit resources; an error means that it failed after the resource appeared."""
        return None

    def removed(self, op: Op, resource: Resource) -> None:
        """After a deletion: what stays (soft delete) or goes along."""


_REGISTER: dict[str, Rules] = {}
_GENERIC = Rules()


def imitates(*keys: str) -> Callable[[type[Rules]], type[Rules]]:
    """Class decorator: these rules are for these types (`compute:Disk`)."""

    def register(rules: type[Rules]) -> type[Rules]:
        for key in keys:
            _REGISTER[key] = rules()
        return rules

    return register


def rules_for(key: str) -> Rules:
    """The imitation of a type, or the generic one."""
    return _REGISTER.get(key, _GENERIC)


def imitated() -> frozenset[str]:
    """Types that have rules of their own."""
    return frozenset(_REGISTER)
