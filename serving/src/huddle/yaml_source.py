"""YAML that remembers its lines and refuses what YAML quietly forgives (a key given twice)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A parsed YAML file: plain data, and the line of every key and list item."""

    path: Path
    data: Any
    lines: dict[KeyPath, int]
    duplicates: tuple[tuple[KeyPath, int, int], ...]  # key, first line, second line

    def line(self, path: KeyPath) -> int:
        """The line of a key, or of the nearest parent that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class YamlSourceError(ValueError):
    """The file cannot be read as YAML; `line` is where, counted from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def parse(path: Path) -> Document:
    """Read a YAML file.

    Raises:
        YamlSourceError: when the text is not YAML or not UTF-8.
        OSError: when the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except UnicodeDecodeError as error:
        raise YamlSourceError(1, f"is not UTF-8 text ({error.reason})") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlSourceError(mark.line + 1 if mark else 1, f"is not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlSourceError(1, f"is not YAML: {error}") from error
    lines: dict[KeyPath, int] = {}
    duplicates: list[tuple[KeyPath, int, int]] = []
    for key_path, line in _keys(node, (), frozenset()):
        if key_path in lines:
            duplicates.append((key_path, lines[key_path], line))
        else:
            lines[key_path] = line
    return Document(path, data, lines, tuple(duplicates))


def _keys(node: yaml.Node | None, path: KeyPath, parents: frozenset[int]) -> Iterator[tuple[KeyPath, int]]:
    """Every key and item below a node with its line; a node that contains itself is entered once."""
    if node is None or id(node) in parents:
        return
    parents = parents | {id(node)}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, key.value if isinstance(key, yaml.ScalarNode) else "?")
            yield here, key.start_mark.line + 1
            yield from _keys(value, here, parents)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            here = (*path, index)
            yield here, value.start_mark.line + 1
            yield from _keys(value, here, parents)
