"""The one reader of policy XML: lxml's elements, or `Element`s that know the place of everything in them. Pure.

lxml knows the line on which a start tag ends, and no columns. A complaint about a policy names file, line and column,
so places are found by a search through the text beside it; the n-th start tag of the text is the n-th element.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

from lxml import etree

_MARKUP = re.compile(
    r"""<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|<!\[CDATA\[(?P<cdata>.*?)(?:\]\]>|\Z)|(?P<doctype><!DOCTYPE)"""
    r"""|(?P<end></[^<>]*>?)|<(?P<tag>[^\s<>/!?]+)(?P<attributes>(?:"[^<"]*"|'[^<']*'|[^<>"'])*)>""",
    re.DOTALL,
)
"""All that begins with `<`. Nothing is searched twice, so that a text made to be slow is not."""
_ATTRIBUTE = re.compile(r"""([^\s=<>"'/]+)\s*=\s*["']((?<=")[^"]*|(?<=')[^']*)["']""")
DEEPEST = 64
"""Elements within each other; readers of the tree call themselves for each."""


@dataclass(frozen=True, order=True)
class Place:
    """A position in a file; lines and columns count from 1, columns in characters."""

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
    """A text and where it begins."""

    value: str
    place: Place


@dataclass(eq=False)
class Element:
    """One element. Compared by identity: two equal elements are two."""

    tag: str
    place: Place
    attributes: dict[str, Text] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)
    text: Text | None = None

    def all(self) -> Iterator[Element]:
        """This element and everything in it."""
        yield self
        for child in self.children:
            yield from child.all()


@dataclass
class _Tag:
    """Where a start tag, the values of its attributes and the first text of its element stand."""

    place: Place
    attributes: dict[str, Place]
    text: Place | None = None


def read(source: str, file: str, *, comments: bool = True) -> etree._Element:
    """The outermost element of a document. Nothing outside of the text is read, whatever the text says.

    Raises:
        PolicyFault: it is not well-formed, or has what no policy may: a document type, namespaces, endless depth.
    """
    _tags(source, file)
    return _parsed(source, file, comments=comments)


def parse(source: str, file: str) -> Element:
    """`read`, without comments and with the place of everything; raises the same."""
    tags = iter(_tags(source, file))
    return _element(_parsed(source, file, comments=False), tags)


def lines(element: etree._Element, indent: str, depth: int = 0) -> Iterator[str]:
    """An element in one layout, whatever its file looks like: attributes on one line, no blanks around a text."""
    before, content = indent * depth, (element.text or "").strip()
    if element.tag is etree.Comment:
        yield f"{before}<!-- {' '.join(content.split())} -->"
        return
    opening = f"{before}<{element.tag}" + "".join(f' {key}="{_quoted(value)}"' for key, value in element.items())
    if len(element):
        yield f"{opening}>{_escaped(content)}"
        for child in element:
            yield from lines(child, indent, depth + 1)
        yield f"{before}</{element.tag}>"
    elif content:
        yield f"{opening}>{_escaped(content)}</{element.tag}>"
    else:
        yield f"{opening} />"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _quoted(value: str) -> str:
    text = _escaped(value).replace('"', "&quot;")
    return text.replace("\n", "&#10;").replace("\r", "&#13;").replace("\t", "&#9;")


def _parsed(source: str, file: str, *, comments: bool) -> etree._Element:
    parser = etree.XMLParser(
        encoding="utf-8",  # whatever a declaration says: the text was decoded already
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        remove_comments=not comments,
        remove_pis=True,
    )
    try:
        return etree.fromstring(source.encode(), parser)
    except etree.XMLSyntaxError as error:
        line, column = error.position
        reason = (error.msg or "").split(", line ")[0]
        raise PolicyFault(Place(file, line, column), f"is not well-formed XML ({reason})") from None


def _element(parsed: etree._Element, tags: Iterator[_Tag]) -> Element:
    tag = next(tags)
    attributes = {name: Text(value, tag.attributes[name]) for name, value in parsed.items()}
    children = [_element(child, tags) for child in parsed]
    text = "".join([parsed.text or "", *(child.tail or "" for child in parsed)]).strip()
    return Element(parsed.tag, tag.place, attributes, children, Text(text, tag.text or tag.place) if text else None)


def _tags(source: str, file: str) -> list[_Tag]:
    starts = [0, *(found.end() for found in re.finditer("\n", source))]

    def place(position: int) -> Place:
        line = bisect(starts, position)
        return Place(file, line, position - starts[line - 1] + 1)

    def text(start: int, end: int) -> None:
        blanks = len(source[start:end]) - len(source[start:end].lstrip())
        if inside and inside[-1].text is None and start + blanks < end:
            inside[-1].text = place(start + blanks)

    found: list[_Tag] = []
    inside: list[_Tag] = []
    position = 0
    for markup in _MARKUP.finditer(source):
        text(position, markup.start())
        position = markup.end()
        if markup["doctype"]:
            raise PolicyFault(place(markup.start()), "has a document type (<!DOCTYPE …>); policies have none")
        if markup["cdata"]:
            text(*markup.span("cdata"))
        elif markup["end"]:
            del inside[-1:]
        elif name := markup["tag"]:
            at = place(markup.start())
            values = {
                value[1]: place(value.start(2)) for value in _ATTRIBUTE.finditer(source, *markup.span("attributes"))
            }
            if any(word == "xmlns" or ":" in word for word in (name, *values)):
                raise PolicyFault(at, f"<{name}> uses an XML namespace; policies have none")
            if len(inside) == DEEPEST:
                raise PolicyFault(at, f"<{name}> is nested too deeply; allowed: {DEEPEST} elements")
            found.append(_Tag(at, values))
            if not markup["attributes"].endswith("/"):
                inside.append(found[-1])
    return found
