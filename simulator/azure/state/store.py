"""The simulated subscription: one JSON file, locked and replaced whole at every write.

The engine may start the provider several times and calls it from many threads, so every change happens inside
`Store.transaction()`: thread lock, file lock, reload if another process wrote, change, atomic replace.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from huddle import whole_file
from simulator.azure.errors import SimulatorError

FORMAT: Final = 1


@dataclass
class Resource:
    """A live resource, in the shape a GET returns (secret values redacted)."""

    id: str
    token: str
    properties: dict[str, Any]
    location: str = ""
    refs: list[str] = field(default_factory=list)  # lower-case ids this resource points at
    notes: dict[str, Any] = field(default_factory=dict)  # what a GET never returns (digests of write-only values, …)
    created: float = 0.0
    managed_by: str = ""  # id of the resource that made this one implicitly

    @property
    def name(self) -> str:
        """Last segment of the id."""
        return self.id.rsplit("/", 1)[-1]

    @property
    def key(self) -> str:
        """`compute:Disk`."""
        return self.token.split(":", 1)[1]


@dataclass
class Deleted:
    """A soft-deleted resource whose name stays reserved."""

    id: str
    token: str
    name: str
    location: str
    deleted: float
    purge_at: float
    purge_protected: bool = False
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass
class OperationRecord:
    """One operation for the timeline; times are seconds since the epoch."""

    seq: int
    kind: str
    token: str
    id: str
    name: str
    urn: str
    start: float
    end: float | None = None
    status: str = "running"
    error: str = ""
    pid: int = 0
    locks: list[str] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)


@dataclass
class State:
    """Everything in the file."""

    salt: str
    resources: dict[str, Resource] = field(default_factory=dict)
    deleted: list[Deleted] = field(default_factory=list)
    quota: dict[str, dict[str, int]] = field(default_factory=dict)
    operations: list[OperationRecord] = field(default_factory=list)
    fault_uses: dict[str, int] = field(default_factory=dict)

    def get(self, resource_id: str) -> Resource | None:
        """A live resource by id, ignoring case as ARM does."""
        return self.resources.get(resource_id.lower())

    def put(self, resource: Resource) -> None:
        """Insert or replace."""
        self.resources[resource.id.lower()] = resource

    def of_type(self, *keys: str) -> list[Resource]:
        """Live resources of the given types (`compute:Disk`)."""
        return [resource for resource in self.resources.values() if resource.key in keys]

    def inside(self, resource_id: str) -> list[Resource]:
        """Everything below an id (children, and resources that extend it)."""
        prefix = f"{resource_id.lower()}/"
        return [resource for key, resource in self.resources.items() if key.startswith(prefix)]

    def remove(self, resource_id: str) -> list[Resource]:
        """Remove a resource with everything inside it; returns what went."""
        gone = [*self.inside(resource_id)]
        own = self.get(resource_id)
        if own is not None:
            gone.append(own)
        for resource in gone:
            self.resources.pop(resource.id.lower(), None)
        return gone

    def referrers(self, resource_id: str, *, exclude_inside: str = "") -> list[Resource]:
        """Live resources that point at an id, or at something inside it, without living inside `exclude_inside`."""
        wanted = resource_id.lower()
        inner = f"{wanted}/"
        outside = exclude_inside.lower()
        return [
            resource
            for key, resource in self.resources.items()
            if not (outside and (key == outside or key.startswith(f"{outside}/")))
            and any(ref == wanted or ref.startswith(inner) for ref in resource.refs)
        ]

    def soft_deleted(self, key: str, name: str, now: float) -> Deleted | None:
        """A soft-deleted resource of this type and name whose time is not over."""
        for item in self.deleted:
            if item.token.endswith(f":{key}") and item.name.lower() == name.lower() and item.purge_at > now:
                return item
        return None

    def forget(self, item: Deleted) -> int:
        """Purge what is soft-deleted, with what was inside; returns how many entries went."""
        inside, before = f"{item.id.lower()}/", len(self.deleted)
        self.deleted = [each for each in self.deleted if each is not item and not each.id.lower().startswith(inside)]
        return before - len(self.deleted)

    def running(self) -> list[OperationRecord]:
        """Operations in flight in processes that are still alive."""
        return [record for record in self.operations if record.end is None and _alive(record.pid)]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Store:
    """Access to the state file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._state: State | None = None
        self._stamp: tuple[int, int, int] | None = None

    @contextmanager
    def transaction(self) -> Iterator[State]:
        """Exclusive access; what the body changes is written when it ends, unless it raises."""
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with (self.path.parent / f"{self.path.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                state = self._load()
                try:
                    yield state
                except BaseException:
                    self._state = None  # half-made changes must not be seen
                    raise
                self._save(state)

    @contextmanager
    def reading(self) -> Iterator[State]:
        """The current state, for looking only, while no other thread changes it."""
        with self._lock:
            yield self._load()

    def read(self) -> State:
        """A copy of the current state (tests and tools look at it at leisure)."""
        return _parse(self.path) if self._stat() else State(salt="")

    def _load(self) -> State:
        stamp = self._stat()
        if self._state is not None and stamp == self._stamp:
            return self._state
        self._state = _parse(self.path) if stamp else State(salt=secrets.token_hex(16))
        self._stamp = stamp
        return self._state

    def _save(self, state: State) -> None:
        document = {"simulated": True, "format": FORMAT, **vars(state)}
        whole_file.write(self.path, json.dumps(document, separators=(",", ":"), default=vars).encode())
        self._state, self._stamp = state, self._stat()

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns


def _parse(path: Path) -> State:
    """Read a state file.

    Raises:
        SimulatorError: it is not one.
    """
    try:
        document = json.loads(path.read_text())
        if document.pop("simulated", None) is not True or document.pop("format", None) != FORMAT:
            raise ValueError("the marks of a simulator state file are missing")
        return State(
            salt=document["salt"],
            resources={key: Resource(**item) for key, item in document["resources"].items()},
            deleted=[Deleted(**item) for item in document["deleted"]],
            quota=document["quota"],
            operations=[OperationRecord(**item) for item in document["operations"]],
            fault_uses=document["fault_uses"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SimulatorError(
            f"{path}: not a state file of the simulator ({error}); name another file in AZURE_SIMULATOR_STATE"
        ) from error


def now() -> float:
    """Seconds since the epoch."""
    return time.time()
