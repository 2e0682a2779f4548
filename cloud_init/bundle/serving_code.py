"""Which of `huddle`'s source files a program needs, so that a service restarts when its own code changes only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SERVING = Path(__file__).parents[2] / "serving"
PACKAGE = "huddle"


@cache
def closure(module: str, source: Path = SERVING / "src") -> tuple[str, ...]:
    """Paths below `source` of a module, of everything of ours that it imports, and of their packages; sorted.

    Imports are read, not run: those inside functions count too. What a module merely offers to others by a
    `__getattr__` of its own, or imports for type checkers, it does not need.

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


@cache
def _imports(path: Path, name: str) -> tuple[str, ...]:
    """Our own modules that a module may import, and the packages around it."""
    found = [*_packages(name)]
    for node in _needed(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                imported = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                imported = [module, *(f"{module}.{alias.name}" for alias in names)]
            case _:
                continue
        for one in imported:
            if one.split(".")[0] == PACKAGE:
                found += [one, *_packages(one)]
    return tuple(dict.fromkeys(found))


def _needed(module: ast.Module) -> Iterator[ast.AST]:
    """Every node of a module but those in its `__getattr__` and below `if TYPE_CHECKING`."""
    for statement in module.body:
        match statement:
            case ast.FunctionDef(name="__getattr__") | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case _:
                yield from ast.walk(statement)


def _packages(name: str) -> Iterator[str]:
    parts = name.split(".")
    for length in range(1, len(parts)):
        yield ".".join(parts[:length])
