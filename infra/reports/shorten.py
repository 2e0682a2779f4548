"""Text that must fit: cut with an ellipsis, at the end or, where names differ at their ends, in the middle."""

from __future__ import annotations

ELLIPSIS = "…"


def at_end(text: str, room: int) -> str:
    """At most `room` characters (two or more), cut at the end."""
    return text if len(text) <= room else text[: room - 1] + ELLIPSIS


def in_middle(text: str, room: int) -> str:
    """At most `room` characters (three or more), cut before the last part."""
    if len(text) <= room:
        return text
    tail = (room - 1) * 2 // 3
    return f"{text[: room - 1 - tail]}{ELLIPSIS}{text[-tail:]}"
