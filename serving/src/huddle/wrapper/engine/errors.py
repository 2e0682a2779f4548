"""The engine's errors in our words: which field, what kind of fault, known numbers; nothing else of its text.

An engine's message may quote all that it was sent. vLLM 0.26.0 prints pydantic's `input`, which can be the whole body
with the system prompt and the cache salt in it. So no text is passed on and none is logged. What is read of a message
are names that engine_fields.yaml knows, the kinds below, and the numbers of two sentences about the context length.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from huddle.wrapper.body import fields
from huddle.wrapper.errors import (
    ErrorType,
    RequestError,
    bad_request,
    not_offered,
    upstream_broken,
    upstream_timeout,
    upstream_unavailable,
)
from huddle.wrapper.routes import Route

READ_BYTES: Final = 4096
"""So much of an engine's error is read. The rest is not waited for."""
_RETRY_AFTER_MAX_S: Final = 86_400
_RETRY_AFTER_S: Final = 5
_READ_STATUSES: Final = frozenset({400, 422})

# A quote inside a JSON string is escaped, so these find keys of the error's object, also where the body was cut.
_MESSAGE: Final = re.compile(r'"message":\s*("(?:[^"\\]|\\.)*)')
_PARAM: Final = re.compile(r'"param":\s*"([\w.\[\]-]{1,200})"')
_CODE: Final = re.compile(r'"code":\s*"?(\d{3})\b')

# One finding of pydantic, as vLLM prints it: a Python dict on a line of its own. (Line ends of values are escaped.)
_FINDING: Final = re.compile(
    r"^ *\{'type': '(\w+)', 'loc': (\([^()\n]*(?:\(\)[^()\n]*)*\)|'[\w.-]*'), 'msg': (.*)",
    re.MULTILINE,
)
_STEP: Final = re.compile(r"'([^'\n]*)'|(\d+)")
_INDEX: Final = re.compile(r"[0-9]{1,4}")
_MOVED: Final = re.compile(r"^(messages|input)\[\d+\]")
_FINDING_VALUES: Final = re.compile(r", '(?:input|ctx|url)': .*")
_TOO_LONG: Final = (
    re.compile(
        r"This model's maximum context length is (?P<most>\d{1,9}) tokens\. However, "
        r"(?:you requested (?P<output>\d{1,9}) output tokens and )?"
        r"your prompt contains (?:at least )?(?P<prompt>\d{1,9}) (?:input tokens|characters)"
    ),
    re.compile(
        r"prompt \(length (?P<prompt>\d{1,9})\).{0,80} longer than the maximum model length of (?P<most>\d{1,9})"
    ),
    re.compile(r"Input length \((?P<prompt>\d{1,9})\) exceeds model's maximum context length \((?P<most>\d{1,9})\)"),
)

_SHAPE: Final = "does not have the right shape"
_RANGE: Final = "is out of range"
_CODES: Final = {"is missing": "missing_required_parameter", _RANGE: "invalid_value"}
# By the beginning of pydantic's name of the fault; the first that fits.
_KINDS: Final = (
    ("missing", "is missing"),
    ("extra_forbidden", "holds a key that is not known"),
    ("int_", "must be a whole number"),
    ("float_", "must be a number"),
    ("finite_number", "must be a finite number"),
    ("bool_", "must be true or false"),
    ("string_t", "must be a text"),
    ("list_", "must be a list"),
    ("dict_", "must be an object"),
    ("model_", "must be an object"),
    ("greater_than", _RANGE),
    ("less_than", _RANGE),
    ("too_", "has too many or too few items"),
    ("string_too", "is too long or too short"),
    ("literal_error", "is not one of the allowed values"),
    ("enum", "is not one of the allowed values"),
    ("union_tag", "is not of a known type"),
)
_ONE_KIND: Final = "must hold exactly one kind of constraint"
# By words of the engine's own checks; the first that is found.
_PHRASES: Final = (
    ("must not be an empty array", "must not be empty; leave it out instead"),
    ("cannot contain an empty", "must not hold an empty text"),
    ("one kind of ", _ONE_KIND),
    ("does not match any of the specified", "names something that the request does not define"),
    ("field must be provided", "is not complete"),
    ("out-of-vocab", "holds a token id that the model does not have"),
    ("out of vocab", "holds a token id that the model does not have"),
    ("not currently supported", "is not supported by the engine"),
    ("not supported", "is not supported by the engine"),
    ("token IDs", "must hold token ids"),
    ("must be in ", _RANGE),
    ("must be a positive", _RANGE),
    ("must be positive", _RANGE),
    ("must be non-negative", _RANGE),
    ("must be at least", _RANGE),
    ("must be less than", _RANGE),
    ("must be greater than", _RANGE),
)
_WRONG_SCHEMA: Final = "cannot be compiled: a keyword has a value of the wrong kind, or nothing is left that it allows"
# By the beginning of what the engine says of something that its compiler cannot take: no field, since it names none.
_NOT_COMPILED: Final = (
    (
        "The provided JSON schema contains features not supported",
        "its schema has a keyword to which the engine cannot hold an answer: multipleOf, uniqueItems, contains, "
        "patternProperties, propertyNames, or an unusual format",
    ),
    ("Failed to transform json schema", f"its schema {_WRONG_SCHEMA}"),
    (
        "Failed to transform regex",
        "its regular expression cannot be compiled: it must be well-formed, without flags, look-arounds, word "
        "boundaries and references back",
    ),
    ("Invalid structural tag specification", f"a tool's schema {_WRONG_SCHEMA}"),
    ("Failed to transform choices", "its choices cannot be compiled: none may hold an end of line"),
    ("Invalid grammar specification", "its grammar cannot be compiled: it must be well-formed and have a rule 'root'"),
)
_NOT_ACCEPTED: Final = "the engine does not accept the request"
_NOT_USED: Final = "its schema or grammar cannot be used"
# Pairs of fields: what the engine says, and what we say of the two that it names.
_PAIRS: Final = (
    (re.compile(r"[Ww]hen using `(\w+)`, `(\w+)` must be set"), "needs"),
    (re.compile(r"Cannot set both `(\w+)` and `(\w+)`"), "cannot be set together with"),
    (re.compile(r"(Tool choice) 'required' must be specified with '(tools)'"), "needs"),
)
_ALIASES: Final = {"Tool choice": "tool_choice"}
_GRAMMAR: Final = re.compile(r"\b(?:[Gg]rammar|[Rr]egex|JSON schema|json_schema|structured outputs?|GBNF|xgrammar)\b")
_NAMED: Final = re.compile(r"`(\w+)`|\(parameter=(\w+)|^(\w+) |[Gg]ot (\w+)=")


@dataclass(frozen=True, slots=True)
class _Fault:
    path: str | None
    kind: str | None


def body_matters(status: int) -> bool:
    """Whether an error's body says more than its status."""
    return status in _READ_STATUSES


def translate(
    status: int, body: bytes, route: Route, retry_after: bytes | None = None, *, moved: bool = False
) -> RequestError:
    """Our error for an error answer of the engine. Only the first `READ_BYTES` of the body are looked at.

    `moved` says that the engine counts messages in another way than the client, since a prompt was put in.
    """
    if status not in _READ_STATUSES:
        return _of_status(status, route, retry_after)
    text = body[:READ_BYTES].decode("utf-8", "replace")
    message = _message(text)
    if (refusal := _too_long(message)) is not None:
        return refusal
    for beginning, said in _NOT_COMPILED:
        if message.startswith(beginning):
            return bad_request("invalid_request", f"{_NOT_ACCEPTED}: {said}")
    fault = _fault(message, text, route)
    if fault.path is None:
        kind = fault.kind if fault.kind in (None, _NOT_USED) else f"something in it {fault.kind}"
        return bad_request("invalid_request", f"{_NOT_ACCEPTED}: {kind}" if kind else _NOT_ACCEPTED)
    code = _CODES.get(fault.kind or "", "invalid_type" if (fault.kind or "").startswith("must be") else None)
    what = fault.kind or "has a value that the engine does not accept"
    path = _MOVED.sub(r"\1", fault.path) if moved else fault.path
    return bad_request(code or "invalid_value", f"'{path}' {what}", path)


def translate_event(event: bytes, route: Route, *, moved: bool = False) -> RequestError:
    """Our error for one that came inside of a stream."""
    found = _CODE.search(event[-READ_BYTES:].decode("utf-8", "replace"))
    return translate(int(found[1]) if found else 500, event, route, moved=moved)


def _of_status(status: int, route: Route, retry_after: bytes | None) -> RequestError:
    if status in (401, 403):
        return upstream_broken("the engine does not accept the wrapper's key")
    if status in (404, 405):
        return not_offered(route.value)
    wait = _seconds(retry_after)
    if status == 429:
        message = "the engine has too many requests"
        return RequestError(429, "engine_busy", message, type=ErrorType.OVERLOADED, retry_after_s=wait)
    if status == 500:
        return RequestError(500, "engine_error", "the engine failed on this request", type=ErrorType.UPSTREAM)
    if status == 501:
        return bad_request("not_supported", "the engine of this model does not support what the request asks for")
    if status == 503:
        return upstream_unavailable("the engine says that it is not available", wait)
    if status == 504:
        return upstream_timeout("the engine says that it took too long")
    return upstream_broken(f"the engine answered with the status {status}, which no answer of it has")


def _seconds(retry_after: bytes | None) -> int:
    if retry_after is None or not retry_after.isdigit() or len(retry_after) > 5:
        return _RETRY_AFTER_S
    return min(max(int(retry_after), 1), _RETRY_AFTER_MAX_S)


def _message(text: str) -> str:
    """The error's message, or its beginning; "" where the text is not an error of OpenAI's shape."""
    found = _MESSAGE.search(text)
    if found is None:
        return ""
    try:
        return str(json.loads(found[1] + '"', strict=False))
    except ValueError:  # cut inside of an escape
        return ""


def _too_long(message: str) -> RequestError | None:
    """OpenAI's refusal of what does not fit the context, with the engine's numbers."""
    found = next((found for pattern in _TOO_LONG if (found := pattern.search(message))), None)
    if found is None:
        return None
    number = {name: int(digits) for name, digits in found.groupdict().items() if digits}
    unit = "characters" if found[0].endswith("characters") else "tokens"
    output = f", and asks for {number['output']} tokens of output" if number.get("output") else ""
    text = (
        f"This model's maximum context length is {number['most']} tokens. However, your request has {number['prompt']} "
        f"{unit} or more{output}. Please reduce its length."
    )
    return bad_request("context_length_exceeded", text)


def _fault(message: str, text: str, route: Route) -> _Fault:
    findings = [(kind, _path(_steps(place), route), said) for kind, place, said in _FINDING.findall(message)]
    own = _FINDING_VALUES.sub("", findings[0][2]) if findings else message
    paths = {path for _, path, _ in findings}
    if findings and () not in paths:  # pydantic knows the place; of several it is what they have in common
        shared = _common(list(paths))
        same = len(paths) == 1 and len({kind for kind, _, _ in findings}) == 1
        kind = _kind(findings[0][0], own) if same else _SHAPE
        return _Fault(_dotted(shared), kind) if shared else _Fault(None, None)
    for pattern, relation in _PAIRS:
        if found := pattern.search(own):
            first, second = (_ALIASES.get(name, name) for name in found.groups())
            if {first, second} <= fields.field_policies(route).keys():
                return _Fault(first, f"{relation} '{second}'")
    param = _PARAM.search(text)
    named = [name for names in _NAMED.findall(own) for name in names if name in fields.field_policies(route)]
    path = _path(param[1].split(".") if param else (), route)
    if not path and named:
        path = (named[0],)
    kind = next((kind for phrase, kind in _PHRASES if phrase in own), None)
    if not path and kind == _ONE_KIND:
        path = ("structured_outputs",)
    if not path and kind is None and _GRAMMAR.search(own):
        kind = _NOT_USED
    return _Fault(_dotted(path) if path else None, kind)


def _kind(name: str, said: str) -> str | None:
    if name == "value_error":
        return next((kind for phrase, kind in _PHRASES if phrase in said), None)
    return next((kind for beginning, kind in _KINDS if name.startswith(beginning)), None)


def _steps(place: str) -> list[str]:
    """The steps of a place as vLLM writes it: a tuple (0.26.0) or names with dots (0.32.0)."""
    return [part for name, index in _STEP.findall(place) for part in (index or name).split(".")]


def _path(place: Sequence[str], route: Route) -> tuple[str, ...]:
    """The known part of a place: a field of the route, then names inside of fields, each with an index at most."""
    path: list[str] = []
    indexed = False
    for step in place:
        if step in (fields.nested() if path else fields.field_policies(route)):
            path.append(step)
            indexed = False
        elif path and not indexed and _INDEX.fullmatch(step):
            path[-1] += f"[{int(step)}]"
            indexed = True
    return tuple(path[:8])


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    shared = paths[0]
    for path in paths[1:]:
        same = [a == b for a, b in zip(shared, path, strict=False)]
        shared = shared[: same.index(False) if False in same else len(same)]
    return shared


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path)
