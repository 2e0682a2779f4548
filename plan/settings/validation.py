"""From pydantic's findings to one plain sentence each, with what only settings can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from huddle.errors import Fault, InputError
from huddle.findings import Finding, findings, sentence
from huddle.yaml_source import dotted
from plan.azure_facts import GATEWAY_TIERS, REFUSED_TIERS
from plan.settings.azure import LOCATION_KEY, Settings


def parse(values: Mapping[str, Any], file: str) -> Settings:
    """Make Settings from the plain values of a stack file.

    Raises:
        InputError: with one fault for each wrong key.
    """
    try:
        return Settings.model_validate(dict(values))
    except ValidationError as error:
        raise InputError(*(_fault(finding, file) for finding in findings(error, Settings))) from None


def _fault(finding: Finding, file: str) -> Fault:
    if len(finding.path) == 1:  # the region has its place outside of our namespace
        finding = replace(finding, known=tuple(key for key in finding.known if key != "location"))
    key = LOCATION_KEY if finding.path == ("location",) else dotted(finding.path)
    return Fault(file, key, _refused_tier(finding) or sentence(finding))


def _refused_tier(finding: Finding) -> str | None:
    """Why a tier that Azure has can't work here."""
    if finding.path[-2:] != ("gateway", "tier") or str(finding.value) not in REFUSED_TIERS:
        return None
    allowed = ", ".join(tier.value for tier in GATEWAY_TIERS)
    return f"{finding.value!r} can't work here: {REFUSED_TIERS[str(finding.value)]}; allowed: {allowed}"
