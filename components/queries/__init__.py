"""The Kusto queries of the gateway's traffic: files beside this one, one question each. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files

QUERIES = files("components.queries")
_PEERS = re.compile(r"(?m)^(let peers = datatable\(Node: string, Peers: string\)) \[.*\];.*$")
"""The line that stands for the nodes of a plan. As it is in the file, the query can be checked."""


def query(name: str) -> str:
    """A query's text, without the comment that introduces it.

    Raises:
        FileNotFoundError: there is no such query.
    """
    lines = (QUERIES / f"{name}.kql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("//"))


def asks_for_nodes(name: str) -> bool:
    """Whether a query has to be told of a plan's nodes."""
    return _PEERS.search(query(name)) is not None


def of_nodes(name: str, peers: Mapping[str, str]) -> str:
    """The query for these nodes: `address:port` of each, with the name of those that should get as much as it does."""
    cells = ", ".join(json.dumps(text) for pair in peers.items() for text in pair)
    return _PEERS.sub(lambda found: f"{found[1]} [{cells}];", query(name))


def names() -> list[str]:
    """Names of all queries, sorted, without `.kql`."""
    return sorted(item.name.removesuffix(".kql") for item in QUERIES.iterdir() if item.name.endswith(".kql"))
