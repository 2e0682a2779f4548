"""What Azure was seen to say of a stack that is up. Plain data: `judge` decides, `gather` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from infra.operations.arm_alerts import Firing


@dataclass(frozen=True)
class LastApply:
    """The last run of the command that makes a node serve.

    `bundle` is what it was given, by its tag. `told` is the status that the node wrote at its end, where the run's
    output still holds it; `said` is what it wrote as its error.
    """

    state: str
    bundle: str
    attempt: int | None = None
    exit_code: int | None = None
    began: str = ""
    ended: str = ""
    said: str = ""
    told: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class SeenNode:
    """A node's VM: `provisioning` is empty where there is none. `image` and `agent` are versions."""

    name: str
    provisioning: str
    power: str
    image: str = ""
    agent: str = ""
    apply: LastApply | None = None


@dataclass(frozen=True)
class Seen:
    """All of it. `pools`: ids of the members of each pool that is there. `firing` and `off` are None where not told.

    `off` are log alarms that are switched off.
    """

    asked_at: datetime
    stand_in: bool
    nodes: tuple[SeenNode, ...]
    pools: Mapping[str, tuple[str, ...]]
    firing: tuple[Firing, ...] | None
    off: tuple[str, ...] | None = None
    not_told: tuple[str, ...] = ()
