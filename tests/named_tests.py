"""Whether a test that a document or a table names is there: `file`, `file::test` or `file::Class::test`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


def missing(references: set[str]) -> list[str]:
    """Those that name no file of tests, or no test in it."""
    return [one for one in sorted(references) if not exists(one)]


def exists(reference: str) -> bool:
    file, _, name = reference.partition("::")
    path = ROOT / file
    return path.is_file() and path.name.startswith("test_") and (not name or name in _names(path))


@cache
def _names(path: Path) -> frozenset[str]:
    return frozenset(_of(ast.parse(path.read_text(encoding="utf-8")).body, ""))


def _of(body: list[ast.stmt], within: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield within + node.name
            yield from _of(node.body, f"{within}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield within + node.name
        elif isinstance(node, ast.Assign):  # a state machine: TestX = X.TestCase
            yield from (name.id for name in node.targets if isinstance(name, ast.Name) and name.id.startswith("Test"))
