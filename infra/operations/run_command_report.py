"""What the handler of managed run commands reported, found in an error's text however deeply it is quoted there.

The report is JSON (docs/facts/azure.md#a-run-commands-failure). Azure puts it into a message, which itself may be shown
as JSON again, and may cut it off.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

KILLED = -1
"""The exit code of a script that the handler ended at its time limit."""

_STATE = re.compile(r"executionState[\W_u02]{1,24}Failed")
"""Quotes may be `"`, escaped, or `\\u0022`."""
_BEGIN = re.compile(r'\{\s*"')
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_TEXT = r'"{}"\s*:\s*"((?:[^"\\]|\\(?:u[0-9a-fA-F]{{4}}|[^u]))*)'
_NUMBER = r'"{}"\s*:\s*(-?\d+)'
_DEEPEST = 4
"""More layers of quoting than any known client adds."""


@dataclass(frozen=True)
class Report:
    """How a script ended: its exit code (`KILLED`) and the ends of its streams."""

    exit_code: int | None
    output: str
    error: str

    @property
    def said(self) -> str:
        """What tells most: our programs end with a sentence on stderr."""
        return self.error.strip() or self.output.strip()


def find(text: str) -> Report | None:
    """The first failed run in an error's text; None where there is none."""
    state = _STATE.search(text)
    if state is None:
        return None
    rest = text[max(text.rfind("{", 0, state.start()), 0) :]
    for _ in range(_DEEPEST):
        if _BEGIN.match(rest):
            break
        rest = _unescaped(rest)
    code = re.search(_NUMBER.format("exitCode"), rest)
    return Report(int(code[1]) if code else None, _field(rest, "output"), _field(rest, "error"))


def _field(text: str, name: str) -> str:
    """A string of the report, also one whose end was cut off."""
    found = re.search(_TEXT.format(name), text, re.DOTALL)
    plain = _unescaped(found[1]) if found else ""
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # pairs become characters again


def _unescaped(text: str) -> str:
    """The text with one layer of JSON's escapes taken away; what is no escape stays."""

    def plain(match: re.Match[str]) -> str:
        try:
            return str(json.loads(f'"{match[0]}"', strict=False))
        except ValueError:
            return match[0]

    return _ESCAPE.sub(plain, text)
