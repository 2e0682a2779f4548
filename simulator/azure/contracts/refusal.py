"""A body against its contract, and how Azure refuses it. The codes have sources; what the faults are called is ours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from huddle import data_file
from simulator.azure.contracts.body import body_of
from simulator.azure.contracts.faults import Fault, Kind, faults
from simulator.azure.contracts.shapes import arm_types, contract
from simulator.azure.errors import ArmError, bad_request
from simulator.azure.sdk.naming import CREATE_BEFORE_DELETE
from simulator.azure.sdk.paths import path_of
from simulator.azure.sdk.schema import ResourceSchema

BEYOND: Final = Path(__file__).parent / "beyond.yaml"
_NOT_SENT: Final = frozenset({"azureApiVersion", CREATE_BEFORE_DELETE, "appType", "expand", "notify"})
"""The provider's own, and what stands in the request's query."""


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    fact: str


class _Accepted(_Row):
    type: str
    path: str
    values: tuple[str, ...]

    def covers(self, key: str, fault: Fault) -> bool:
        here = (self.type, self.path, Kind.VALUE) == (key, fault.path, fault.kind)
        return here and (not self.values or fault.value in self.values)


class _Answer(_Row):
    code: str
    message: str


class _MostTags(_Answer):
    type: str
    count: int


class _Beyond(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    accepted: tuple[_Accepted, ...]
    most_tags: tuple[_MostTags, ...]
    answers: dict[str, _Answer]


@cache
def _beyond() -> _Beyond:
    return data_file.load(BEYOND, _Beyond)


def faults_in(resource: ResourceSchema, inputs: Mapping[str, Any]) -> list[Fault]:
    """What is wrong with inputs (without secret marks); nothing, for a type that has no contract."""
    agreed = contract(resource.key, resource.api_version)
    if agreed is None:
        return []
    path = path_of(resource)
    sent = {key: value for key, value in inputs.items() if key not in path.params and key not in _NOT_SENT}
    found = faults(agreed, inputs.get(path.name_param), body_of(agreed, sent))
    return [fault for fault in found if not any(row.covers(resource.key, fault) for row in _beyond().accepted)]


def require(resource: ResourceSchema, inputs: Mapping[str, Any]) -> None:
    """Refuse inputs that break the contract.

    Raises:
        ArmError: with the code of the type's resource provider; every fault is in the message.
    """
    if found := faults_in(resource, inputs):
        answers = _beyond().answers
        answer = answers.get(arm_types()[resource.key].partition("/")[0], answers["others"])
        raise bad_request(answer.code, answer.message.format(faults="; ".join(map(str, found))))
    if error := _too_many_tags(resource.key, inputs.get("tags") or {}):
        raise error


def _too_many_tags(key: str, tags: Mapping[str, str]) -> ArmError | None:
    row = next((row for row in _beyond().most_tags if row.type == key and len(tags) > row.count), None)
    return bad_request(row.code, row.message) if row else None
