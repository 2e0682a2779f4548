"""What a picture consists of: boxes with text, arrows with labels, lines of a table."""

from __future__ import annotations

from dataclasses import dataclass

ELLIPSIS = "…"
_EM = 0.6
"""Width of an average character in ems, on the wide side of common fonts."""
PADDING = 14
TITLE_SIZE, LINE_SIZE = 13.5, 12.0
"""Font sizes in pixels, as the template has them."""


@dataclass(frozen=True)
class Box:
    """A rectangle with text: a title, lines, and a `tag` beside the first line. `kind` is its style in the template."""

    kind: str
    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...] = ()
    tag: str = ""

    @property
    def right(self) -> int:
        """X of the right edge, in pixels."""
        return self.x + self.width

    @property
    def bottom(self) -> int:
        """Y of the lower edge, in pixels."""
        return self.y + self.height

    @property
    def centre(self) -> int:
        """X of the centre, in pixels."""
        return self.x + self.width // 2

    @property
    def middle(self) -> int:
        """Y of the centre, in pixels."""
        return self.y + self.height // 2

    @property
    def title_text(self) -> str:
        """The title, cut to the box; names differ at their ends."""
        return in_middle(self.title, room(self.width - 2 * PADDING, TITLE_SIZE))

    @property
    def line_texts(self) -> tuple[str, ...]:
        """The lines, cut to the box."""
        return tuple(at_end(line, room(self.width - 2 * PADDING, LINE_SIZE)) for line in self.lines)


@dataclass(frozen=True)
class Arrow:
    """A line through points with a head at its end, and a label at `at`. `kind` is its style in the template."""

    points: tuple[tuple[int, int], ...]
    label: str
    at: tuple[int, int]
    anchor: str = "middle"
    kind: str = "allowed"

    @property
    def path(self) -> str:
        """The arrow as SVG path data (`M x y L x y …`)."""
        return " ".join(f"{'L' if index else 'M'}{x} {y}" for index, (x, y) in enumerate(self.points))


@dataclass(frozen=True)
class Row:
    """One entry of a table: two short cells and a wrapped one, `y` being its first base line."""

    y: int
    who: str
    where: str
    lines: tuple[str, ...]


def room(width: float, size: float) -> int:
    """How many characters of a font size fit into a width (both in pixels)."""
    return max(3, int(width / (size * _EM)))


def at_end(text: str, room: int) -> str:
    """At most `room` characters (two or more), cut at the end."""
    return text if len(text) <= room else text[: room - 1] + ELLIPSIS


def in_middle(text: str, room: int) -> str:
    """At most `room` characters (three or more), cut before the last part."""
    if len(text) <= room:
        return text
    tail = (room - 1) * 2 // 3
    return f"{text[: room - 1 - tail]}{ELLIPSIS}{text[-tail:]}"
