"""YAML that remembers its lines and refuses what YAML quietly forgives (a key given twice)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from huddle.errors import Fault, InputError

KeyPath = tuple[str | int, ...]
MOST_VALUES = 100_000
"""What the aliases of one text may stand for: a few lines of them can mean billions."""
_BEING_COUNTED = 0


def dotted(path: KeyPath) -> str:
    """Write a path the way people do: serving.models.hl.nodes[0]."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


@dataclass(frozen=True)
class Repeated:
    """A key that stands twice in one mapping."""

    path: KeyPath
    first_line: int
    line: int


@dataclass(frozen=True)
class Document:
    """A parsed YAML text: plain data, and the line of every key and list item. `file` is what errors call it."""

    file: str
    data: Any
    lines: dict[KeyPath, int]
    repeated: tuple[Repeated, ...]

    def line(self, path: KeyPath) -> int:
        """The line of a key, or of the nearest parent that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def twice(self) -> list[Fault]:
        """A fault for each key that is given twice."""
        return [
            self.fault(key.path, f"given twice; the first is on line {key.first_line}, keep one", key.line)
            for key in self.repeated
        ]

    def fault(self, path: KeyPath, message: str, line: int | None = None) -> Fault:
        """What is wrong at a key, with its line."""
        return Fault(f"{self.file}:{line or self.line(path)}", dotted(path), message)


class YamlSourceError(ValueError):
    """The text is no YAML; lines and columns count from 1. The words never repeat the text: it may hold a secret."""

    def __init__(self, reason: str, line: int = 1, column: int | None = None) -> None:
        super().__init__(reason)
        self.line = line
        self.column = column


def read(path: Path, what: str, error: type[InputError] = InputError) -> Document:
    """Read a file; `what` is its name in sentences ("the model registry").

    Raises:
        error: it cannot be read, or is no YAML.
    """
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as failure:
        raise error(Fault(str(path), "", f"cannot read {what} ({failure.strerror or failure})")) from failure
    except YamlSourceError as failure:
        raise error(Fault(f"{path}:{failure.line}", "", f"{what} is not YAML: {failure}")) from failure


def parse(text: str | bytes, file: str, same: Callable[[str], str] = str) -> Document:
    """Parse one document; bytes are UTF-8. Two keys are one when `same` makes them equal (`str.casefold`).

    Raises:
        YamlSourceError: the text is not YAML or not UTF-8.
    """
    try:
        loader = _Loader(text.decode() if isinstance(text, bytes) else text)
        node = loader.get_single_node()
        sizes: dict[int, int] = {}
        if node is not None and _size(node, sizes) > max(MOST_VALUES, len(sizes)):
            raise YamlSourceError(f"its aliases stand for more than {MOST_VALUES:,} values; write out what is meant")
        data = None if node is None else loader.construct_document(node)
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise YamlSourceError(f"it is not UTF-8 text ({error.reason})", line, column) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        raise YamlSourceError(reason, *((mark.line + 1, mark.column + 1) if mark else ())) from error
    except RecursionError as error:
        raise YamlSourceError("it is nested too deeply") from error
    except yaml.YAMLError as error:
        raise YamlSourceError(" ".join(str(error).split())) from error
    lines: dict[KeyPath, int] = {}
    repeated: list[Repeated] = []
    for path, first, line in _keys(node, (), set(), same):
        if first is None:
            lines[path] = line
        else:
            repeated.append(Repeated(path, first, line))
    return Document(file, data, lines, tuple(repeated))


class _Loader(yaml.SafeLoader):
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Give a place to values such as the date 2026-02-30, which the library refuses with a bare ValueError."""
        try:
            return super().construct_object(node, deep)
        except ValueError:
            problem = "a value looks like a date or a number but is none; quote it"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many values a node stands for, aliases written out; `sizes` then has an entry for each node of the text.

    Raises:
        YamlSourceError: it holds itself.
    """
    known = sizes.get(id(node))
    if known == _BEING_COUNTED:
        raise YamlSourceError("an anchor holds itself", node.start_mark.line + 1, node.start_mark.column + 1)
    if known is None:
        sizes[id(node)] = _BEING_COUNTED
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        within = [part for pair in parts for part in pair] if isinstance(node, yaml.MappingNode) else parts
        known = sizes[id(node)] = 1 + sum(_size(part, sizes) for part in within)
    return known


def _keys(
    node: yaml.Node | None, path: KeyPath, entered: set[int], same: Callable[[str], str]
) -> Iterator[tuple[KeyPath, int | None, int]]:
    """Every key and item below a node: its path, the line of an equal one before it, its own line.

    A node that aliases name again is entered once; of two equal keys only the first.
    """
    if node is None or id(node) in entered:
        return
    entered.add(id(node))
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            line = key.start_mark.line + 1
            first = seen.get(same(name))
            yield (*path, name), first, line
            if first is None:
                seen[same(name)] = line
                yield from _keys(value, (*path, name), entered, same)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*path, index), None, value.start_mark.line + 1
            yield from _keys(value, (*path, index), entered, same)
