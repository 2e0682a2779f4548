"""Which of `huddle`'s source files a program needs, so that a service restarts when its own code changes only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cloud_init.wheel import SERVING

PACKAGE = "huddle"


@cache
def closure(module: str, source: Path = SERVING / "src") -> tuple[str, ...]:
    """Paths below `source` of a module, of everything of ours that it imports, and of their packages; sorted.

    Imports are read, not run: those inside functions count too.

    Raises:
        FileNotFoundError: there is no such module.
    """
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _path(name, source)
        if path is None:
            if name == module:
                raise FileNotFoundError(f"{name} is not a module below {source}")
            continue  # a name inside a module, as in `from huddle.errors import HuddleError`
        relative = path.relative_to(source).as_posix()
        if relative not in seen:
            seen.add(relative)
            waiting += _imports(path, name)
    return tuple(sorted(seen))


def _path(name: str, source: Path) -> Path | None:
    base = source.joinpath(*name.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _imports(path: Path, name: str) -> Iterator[str]:
    yield from _packages(name)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found = [module, *(f"{module}.{alias.name}" for alias in names)]
            case _:
                continue
        for imported in found:
            if imported.split(".")[0] == PACKAGE:
                yield imported
                yield from _packages(imported)


def _packages(name: str) -> Iterator[str]:
    parts = name.split(".")
    for length in range(1, len(parts)):
        yield ".".join(parts[:length])
