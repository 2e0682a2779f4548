"""What messages, items of `/v1/responses` and tools are made of, besides their content.

vLLM validates an item against each of some thirty kinds and tells every mismatch: a thousand items of 20 bytes that are
none of them took it 17 s and made an error of 370 MB (0.26.0). So items go on only when they are whole.
"""

from typing import Any, Final

from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.shapes import Listed, Record, Word, field_of, flag, long_text, mapping, text
from huddle.wrapper.errors import bad_request

_STATUS: Final = Word(("in_progress", "completed", "incomplete"))


def arguments(value: Any, where: str, caps: Caps) -> Any:
    """The arguments of a call: a text, which the engine reads as JSON where it can."""
    said: str = long_text(value, where, caps)
    if said.count("[") + said.count("{") > caps.depth and _deepest(said) > caps.depth:
        raise bad_request("body_too_deep", f"'{where}' is nested more than {caps.depth} levels deep", field_of(where))
    return said


def _deepest(said: str) -> int:
    """How deep the brackets of a text nest outside of JSON strings; of a text that is no JSON, some upper bound."""
    depth = deepest = 0
    inside = escaped = False
    for sign in said:
        if inside:
            inside = escaped or sign != '"'
            escaped = sign == "\\" and not escaped
        elif sign == '"':
            inside = True
        elif sign in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "]}":
            depth -= 1
    return deepest


_FUNCTION: Final = Record({"name": text, "arguments": arguments}, frozenset({"name", "arguments"}))
_CALL: Final = Record({"id": text, "type": Word(("function",)), "function": _FUNCTION}, frozenset({"function"}))
MESSAGE: Final = Record(
    {
        "name": text,
        "tool_calls": Listed(_CALL, "list_items"),
        "tool_call_id": text,
        "function_call": _FUNCTION,
        "refusal": long_text,
        "reasoning": long_text,
        "reasoning_content": long_text,
    }
)
"""A message of a chat, besides role and content."""


def _thought(kind: str) -> Record:
    return Record({"type": Word((kind,)), "text": long_text}, frozenset({"type", "text"}))


ITEMS: Final = {
    "message": Record({"id": text, "status": _STATUS}),
    "function_call": Record(
        {"id": text, "call_id": text, "name": text, "arguments": arguments, "status": _STATUS},
        frozenset({"call_id", "name", "arguments"}),
    ),
    "function_call_output": Record({"id": text, "call_id": text, "status": _STATUS}, frozenset({"call_id"})),
    "reasoning": Record(
        {
            "id": text,
            "summary": Listed(_thought("summary_text"), "list_items"),
            "content": Listed(_thought("reasoning_text"), "list_items"),
            "encrypted_content": long_text,
            "status": _STATUS,
        },
        frozenset({"id", "summary"}),
    ),
}
"""The items of `/v1/responses` by type, besides content and output that may hold media."""

_DEFINITION: Final = Record(
    {"name": text, "description": long_text, "parameters": mapping, "strict": flag}, frozenset({"name"})
)
CHAT_TOOL: Final = Record({"function": _DEFINITION}, frozenset({"function"}))
RESPONSES_TOOL: Final = _DEFINITION
