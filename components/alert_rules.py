"""What the alerts and the workbook ask, from alerts.yaml and workbook.json. No Pulumi: `infra validate` reads it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from components import queries
from huddle import data_file
from plan.azure.gateway_model import BackendPlan, GatewayPlan

_ALERTS = Path(__file__).with_name("alerts.yaml")
_WORKBOOK = Path(__file__).with_name("workbook.json")
OPERATION_SEVERITY = 4


class Metric(BaseModel):
    """A platform metric of a VM, whose average must not be below a number. `only` names values of its dimensions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    below: int
    only: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)


class Alert(BaseModel):
    """One thing that is watched: the answer of a query, a metric of the nodes, or an operation on them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    """The row's key in the file."""
    query: str | None = None
    """Asked again and again; rows in its answer mean that something is wrong."""
    by: str | None = None
    """A column of the query's answer: each value has an alarm of its own."""
    metric: Metric | None = None
    operation: str | None = None
    """Of the activity log; each one that fails is told."""
    severity: int = Field(ge=0, le=4)
    minutes: int = Field(0, ge=0)
    """What is looked at; of no meaning for an operation."""
    description: str

    @model_validator(mode="after")
    def _watches_one_thing(self) -> Self:
        """Azure itself gives alerts on its activity log their severity."""
        if sum(one is not None for one in (self.query, self.metric, self.operation)) != 1:
            raise ValueError("needs one of query, metric and operation")
        if self.by is not None and self.query is None:
            raise ValueError("`by` needs a query")
        if self.operation is not None and (self.severity != OPERATION_SEVERITY or self.minutes):
            raise ValueError(f"an operation has severity {OPERATION_SEVERITY} and no minutes")
        if self.operation is None and not self.minutes:
            raise ValueError("needs minutes")
        return self


def peers(gateway: GatewayPlan) -> Mapping[str, str]:
    """Nodes that should get as many requests as another one, by `address:port`, each with a name of its equals.

    Equal are nodes of the same pools, with the same priority and weight in each. A drained one is in none.
    """
    places: dict[BackendPlan, list[str]] = {}
    for pool in gateway.pools:
        for member in pool.members:
            plain = next(one for one in gateway.backends if one.id == member.id)
            places.setdefault(plain, []).append(f"{pool.id}/{member.priority}/{member.weight}")
    named = {urlsplit(backend.url).netloc: " ".join(sorted(each)) for backend, each in places.items()}
    count = Counter(named.values())
    return {node: name for node, name in named.items() if count[name] > 1}


def workbook(title: str) -> str:
    """workbook.json with the queries filled in, compact; raises InputError for a wrong file."""
    document = data_file.load(_WORKBOOK, dict[str, Any])
    values = {"title": title, **{name: queries.query(name) for name in queries.names()}}
    return json.dumps(_filled(document, values), ensure_ascii=False, separators=(",", ":"))


def _filled(node: Any, values: Mapping[str, str]) -> Any:
    """Texts with `$name` replaced, after parsing: a query's line ends and quotes need no escaping of ours."""
    match node:
        case str():
            return Template(node).substitute(values) if node[:1] != "$" or node[1:] in values else node
        case dict():
            return {key: _filled(value, values) for key, value in node.items()}
        case list():
            return [_filled(value, values) for value in node]
        case _:
            return node


def alerts() -> Iterator[Alert]:
    """The alerts of alerts.yaml, in its order; raises InputError for a wrong file."""
    for name, alert in data_file.load(_ALERTS, dict[str, Alert]).items():
        yield alert.model_copy(update={"name": name})
