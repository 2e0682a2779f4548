"""XML with the place of everything in it, so that a complaint about a policy can name file, line and column. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

_ATTRIBUTE = re.compile(rb"""([^\s=<>"'/]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
DEEPEST = 64
"""Elements within each other; readers of the tree call themselves for each."""


@dataclass(frozen=True, order=True)
class Place:
    """Where something stands; lines and columns count from 1, columns in characters."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}, column {self.column}"

    def shifted(self, columns: int) -> Place:
        """The place some columns further right on the same line."""
        return Place(self.file, self.line, self.column + columns)


class PolicyFault(Exception):  # noqa: N818 - a fault of a policy, not of the program
    """A policy holds something that its reader does not know or cannot accept. The text names the place."""

    def __init__(self, place: Place, sentence: str) -> None:
        super().__init__(f"{place}: {sentence}")
        self.place = place
        self.sentence = sentence


@dataclass(frozen=True)
class Text:
    """A piece of text and where it begins."""

    value: str
    place: Place


@dataclass(eq=False)
class Node:
    """One element. Compared by identity: two equal elements are two."""

    tag: str
    place: Place
    attributes: dict[str, Text] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    text: Text | None = None

    def all(self) -> Iterator[Node]:
        """This element and everything in it."""
        yield self
        for child in self.children:
            yield from child.all()


def parse(source: str, file: str) -> Node:
    """The outermost element of a document.

    Raises:
        PolicyFault: it is not well-formed, or has what policies have not: a document type, namespaces, endless depth.
    """
    data = source.encode()
    parser = expat.ParserCreate("utf-8")  # whatever a declaration says: the text was decoded already
    parser.buffer_text = False  # or the place of a text would be that of its end
    stack: list[Node] = []
    roots: list[Node] = []
    texts: dict[Node, list[Text]] = {}

    def here() -> Place:
        return Place(file, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)

    def start(tag: str, attributes: dict[str, str]) -> None:
        if any(name == "xmlns" or ":" in name for name in (tag, *attributes)):
            raise PolicyFault(here(), f"<{tag}> uses an XML namespace, which policies have not")
        if len(stack) == DEEPEST:
            raise PolicyFault(here(), f"<{tag}> is nested too deeply; allowed: {DEEPEST} elements")
        places = _attribute_places(data, parser.CurrentByteIndex, file)
        node = Node(tag, here(), {name: Text(value, places[name]) for name, value in attributes.items()})
        (stack[-1].children if stack else roots).append(node)
        stack.append(node)

    def characters(text: str) -> None:
        texts.setdefault(stack[-1], []).append(Text(text, here()))

    def doctype(*_: object) -> None:
        raise PolicyFault(here(), "has a document type (<!DOCTYPE …>), which policies have not")

    def end(_: str) -> None:
        node = stack.pop()
        node.text = _joined(texts.pop(node, []))

    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        place = Place(file, error.lineno, error.offset + 1)
        raise PolicyFault(place, f"is not well-formed XML ({expat.errors.messages[error.code]})") from None
    return roots[0]


def _joined(pieces: list[Text]) -> Text | None:
    """The text without blanks around it, at the place of its first character; None when it is blank."""
    whole = "".join(piece.value for piece in pieces).strip()
    if not whole:
        return None
    first = next(piece for piece in pieces if piece.value.strip())
    return Text(whole, first.place.shifted(len(first.value) - len(first.value.lstrip())))


def _attribute_places(data: bytes, start: int, file: str) -> dict[str, Place]:
    """Where the value of each attribute of the tag at `start` begins."""
    places = {}
    position = start + 1
    end = _tag_end(data, start)
    while found := _ATTRIBUTE.search(data, position, end):
        value = found.start(2) if found[2] is not None else found.start(3)
        line_start = data.rfind(b"\n", 0, value) + 1
        column = len(data[line_start:value].decode()) + 1
        places[found[1].decode()] = Place(file, data.count(b"\n", 0, value) + 1, column)
        position = found.end()
    return places


def _tag_end(data: bytes, start: int) -> int:
    quote = b""
    for position in range(start, len(data)):
        char = data[position : position + 1]
        if quote:
            quote = b"" if char == quote else quote
        elif char in (b'"', b"'"):
            quote = char
        elif char == b">":
            return position
    return len(data)
