"""Turns each of pydantic's findings into one plain sentence, with hints from the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from huddle.errors import Fault, InputError
from huddle.findings import Finding, findings, sentence
from huddle.yaml_source import KeyPath, dotted
from plan.azure_facts import GATEWAY_TIERS, REFUSED_TIERS
from plan.settings.service import ServiceSettings

S = TypeVar("S", bound=ServiceSettings)


def parse(values: Mapping[str, Any], file: str, model: type[S], others: Sequence[type[ServiceSettings]] = ()) -> S:
    """Make a target's settings from the plain values of a stack file; `others` are the settings of other targets.

    Raises:
        InputError: with one fault for each wrong key.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        found = findings(error, model)
    target = str(values["target"])
    raise InputError(*(_fault(finding, file, target, model, others) for finding in found))


def _fault(
    finding: Finding, file: str, target: str, model: type[ServiceSettings], others: Sequence[type[ServiceSettings]]
) -> Fault:
    if len(finding.path) == 1:  # what another provider's key holds has its place outside of our namespace
        finding = replace(finding, known=tuple(key for key in finding.known if key not in model.outside))
    key = model.outside.get(str(finding.path[0]), "") if len(finding.path) == 1 else ""
    text = _of_another_target(finding, target, others) or _refused_tier(finding) or sentence(finding)
    return Fault(file, key or dotted(finding.path), text)


def _of_another_target(finding: Finding, target: str, others: Sequence[type[ServiceSettings]]) -> str | None:
    """Whose key it is, when another target knows it."""
    if finding.kind != "extra_forbidden":
        return None
    owners = [other.model_fields["target"].default for other in others if _knows(other, finding.path)]
    if not owners:
        return None
    return f"is a key of target {', '.join(owners)}, and this stack's target is {target}; remove it"


def _knows(model: type[BaseModel], path: KeyPath) -> bool:
    """Whether a path of plain keys leads to a field."""
    name, *rest = path
    field = model.model_fields.get(str(name))
    if field is None or not rest:
        return field is not None
    inner = [kind for kind in (field.annotation, *get_args(field.annotation)) if _is_model(kind)]
    return any(_knows(kind, tuple(rest)) for kind in inner)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _refused_tier(finding: Finding) -> str | None:
    """Why a tier that Azure has can't work here."""
    if finding.path[-2:] != ("gateway", "tier") or str(finding.value) not in REFUSED_TIERS:
        return None
    allowed = ", ".join(tier.value for tier in GATEWAY_TIERS)
    return f"{finding.value!r} can't work here: {REFUSED_TIERS[str(finding.value)]}; allowed: {allowed}"
