"""Diff: old inputs against new inputs, never against the cloud.

Facts: provider/pkg/provider/diff.go, provider.go (Diff) and gen/replacement.go of pulumi-azure-native, and
docs/facts/pulumi.md#what-forces-a-replacement. Path parameters and the properties below replace;
nothing else does, which is why many changes that Azure refuses are previewed as updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from typing import Any, Final

from simulator.azure.sdk.naming import CREATE_BEFORE_DELETE
from simulator.azure.sdk.paths import path_of
from simulator.azure.sdk.schema import ResourceSchema
from simulator.plugin.values import reveal

FORCE_NEW: Final[dict[str, frozenset[str]]] = {
    "apimanagement:ApiManagementService": frozenset({"location"}),
    "applicationinsights:Component": frozenset({"location"}),
    "authorization:RoleAssignment": frozenset({"principalId", "scope"}),
    "managedidentity:UserAssignedIdentity": frozenset({"location"}),
    "network:PrivateEndpoint": frozenset({"subnet"}),
    "network:PublicIPAddress": frozenset({"location", "publicIPAddressVersion", "publicIPPrefix", "sku"}),
    "network:VirtualNetwork": frozenset({"location"}),
    "privatedns:PrivateZone": frozenset({"location"}),
    "resources:ResourceGroup": frozenset({"location"}),
    "storage:FileShare": frozenset({"enabledProtocols"}),
    "storage:StorageAccount": frozenset({"isHnsEnabled", "location"}),
}


@verify(UNIQUE)
class Kind(StrEnum):
    """How one property changed."""

    ADD = "ADD"
    DELETE = "DELETE"
    UPDATE = "UPDATE"


@dataclass(frozen=True)
class Change:
    """One changed property."""

    path: str
    kind: Kind
    replaces: bool


@dataclass(frozen=True)
class DiffResult:
    """All changes of a resource."""

    changes: tuple[Change, ...]
    delete_before_replace: bool

    @property
    def properties(self) -> list[str]:
        """Changed top-level properties."""
        return sorted({_top(change.path) for change in self.changes})

    @property
    def replaces(self) -> list[str]:
        """Top-level properties that force a replacement."""
        return sorted({_top(change.path) for change in self.changes if change.replaces})


def diff(schema: ResourceSchema, old_inputs: Mapping[str, Any], new_inputs: Mapping[str, Any]) -> DiffResult:
    """Compare inputs; secrets by their values, `location` without case and blanks."""
    replace_keys = frozenset(path_of(schema).params) | FORCE_NEW.get(schema.key, frozenset())
    olds = {key: value for key, value in reveal(old_inputs).items() if not key.startswith("__")}
    news = {key: value for key, value in reveal(new_inputs).items() if not key.startswith("__")}
    if normal_location(olds.get("location")) == normal_location(news.get("location")):
        olds.pop("location", None)
        news.pop("location", None)
    changes = tuple(Change(path, kind, _top(path) in replace_keys) for path, kind in _object(olds, news, ""))
    replacing = any(change.replaces for change in changes)
    random_name = bool(reveal(old_inputs).get(CREATE_BEFORE_DELETE, False))
    return DiffResult(changes, delete_before_replace=replacing and not random_name)


def normal_location(location: Any) -> Any:
    """`West US 2` and `westus2` are one place."""
    return location.replace(" ", "").lower() if isinstance(location, str) else location


def _object(old: Mapping[str, Any], new: Mapping[str, Any], base: str) -> Iterator[tuple[str, Kind]]:
    for key in sorted(set(old) | set(new)):
        path = f"{base}.{_segment(key)}" if base else _segment(key)
        if old.get(key) is None and new.get(key) is not None:
            yield path, Kind.ADD
        elif new.get(key) is None and old.get(key) is not None:
            yield path, Kind.DELETE
        else:
            yield from _value(old.get(key), new.get(key), path)


def _value(old: Any, new: Any, path: str) -> Iterator[tuple[str, Kind]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _object(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            if index >= len(old):
                yield f"{path}[{index}]", Kind.ADD
            elif index >= len(new):
                yield f"{path}[{index}]", Kind.DELETE
            else:
                yield from _value(old[index], new[index], f"{path}[{index}]")
    elif old != new or type(old) is not type(new):
        yield path, Kind.UPDATE


def _segment(key: str) -> str:
    """A key as a step of a Pulumi property path."""
    return key if key.replace("_", "a").replace("-", "a").isalnum() else f'["{key}"]'


def _top(path: str) -> str:
    return path.split(".", 1)[0].split("[", 1)[0]
