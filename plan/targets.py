"""The table of targets. Each has its settings, and a builder that checks its rules.

A new target is a settings module, a rules module, a builder, a module `infra/targets/<name>`, and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from plan.azure.build import SIZES, build
from plan.model import FleetPlan, Hardware
from plan.settings.azure import AzureSettings
from plan.settings.service import ServiceSettings

DEFAULT = "azure"
"""The target of a stack file that names none."""


class Build(Protocol):
    """From settings of the target's own class to its plan; raises InputError when a rule is broken."""

    def __call__(self, settings: Any, *, project: str, stack: str, bases: Mapping[str, str], file: str) -> FleetPlan:
        """The whole plan but for what needs the models' shapes (`plan.engines`)."""


@dataclass(frozen=True)
class Target:
    """How a target's stack files are read, and what is planned from them."""

    name: str
    settings: type[ServiceSettings]
    build: Build
    sizes: Mapping[str, Hardware] = field(default_factory=dict)
    """What its nodes can be, by the name that a stack file has for it; the smallest first."""


Targets = Mapping[str, Target]

TARGETS: Targets = MappingProxyType({target.name: target for target in (Target("azure", AzureSettings, build, SIZES),)})


def required_secrets(target: str, targets: Targets = TARGETS) -> tuple[str, ...]:
    """The config keys of the secrets without which a target's stack can't be brought up."""
    return tuple(secret.key for secret in targets[target].settings.secrets if secret.required)
