"""What the alerts and the workbook ask, from alerts.yaml and workbook.json. No Pulumi: `infra validate` reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

from pydantic import BaseModel, ConfigDict

from components import queries
from huddle import data_file

_ALERTS = Path(__file__).with_name("alerts.yaml")
_WORKBOOK = Path(__file__).with_name("workbook.json")


class Alert(BaseModel):
    """One question that is asked again and again; rows in its answer mean that something is wrong."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    """The row's key in the file."""
    query: str
    severity: int
    minutes: int
    description: str


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
