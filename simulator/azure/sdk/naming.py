"""Automatic names, as azure-native makes them.

Facts: provider/pkg/provider/provider.go (getDefaultName) and provider/pkg/resources (AutoName) of
pulumi/pulumi-azure-native: top-level resources get the logical name and 8 hex digits, children copy the logical name,
role assignments get a UUID; the program's `pulumi:autonaming` overrides.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from typing import Any, Final

from simulator.azure.sdk.paths import ArmPath

CREATE_BEFORE_DELETE: Final = "__createBeforeDelete"
_UUID_PARAMS: Final = frozenset({"roleAssignmentName", "roleDefinitionId"})


@verify(UNIQUE)
class AutonamingMode(StrEnum):
    """What the engine asks the provider to do about missing names."""

    DEFAULT = "default"
    PROPOSE = "propose"
    ENFORCE = "enforce"
    DISABLE = "disable"


@dataclass(frozen=True)
class Autonaming:
    """The engine's naming request for one resource."""

    mode: AutonamingMode = AutonamingMode.DEFAULT
    proposed: str = ""


@dataclass(frozen=True)
class AutoName:
    """A made-up name; a random one may be created before its predecessor is deleted."""

    value: str
    random: bool


def hex_suffix(seed: bytes, length: int) -> str:
    """`length` hex digits that depend on nothing but the engine's random seed."""
    return hashlib.sha256(seed).hexdigest()[:length]


def auto_name(
    path: ArmPath, logical_name: str, seed: bytes, autonaming: Autonaming, olds: Mapping[str, Any]
) -> AutoName | None:
    """The name for a resource whose program gave none; `None` when automatic naming is off."""
    param = path.name_param
    if param in olds:
        return AutoName(olds[param], bool(olds.get(CREATE_BEFORE_DELETE, False)))
    if autonaming.mode is AutonamingMode.DISABLE:
        return None
    wants_uuid = param in _UUID_PARAMS
    if autonaming.mode is AutonamingMode.ENFORCE or (autonaming.mode is AutonamingMode.PROPOSE and not wants_uuid):
        return AutoName(autonaming.proposed, random=True)
    if wants_uuid:
        return AutoName(str(uuid.UUID(hex_suffix(seed, 32))), random=True)
    if path.is_child:
        return AutoName(logical_name, random=False)
    return AutoName(f"{logical_name}{hex_suffix(seed, 8)}", random=True)
