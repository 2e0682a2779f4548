"""The Kusto queries of the gateway's traffic: files beside this one, one question each. Pure."""

from __future__ import annotations

from importlib.resources import files

QUERIES = files("components.queries")


def query(name: str) -> str:
    """A query's text, without the comment that introduces it.

    Raises:
        FileNotFoundError: there is no such query.
    """
    lines = (QUERIES / f"{name}.kql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("//"))


def names() -> list[str]:
    """Names of all queries, sorted, without `.kql`."""
    return sorted(item.name.removesuffix(".kql") for item in QUERIES.iterdir() if item.name.endswith(".kql"))
