"""What the fuzzer sends: bodies from engine_fields.yaml, schemas, requests as bytes; and a hostile engine's answers."""

import json
import re
from typing import Any

import yaml
from hypothesis import strategies as st

from huddle.wrapper.body import fields
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.fields import SECTIONS
from huddle.wrapper.routes import Route
from tests.serving.wrapper.fake_engine import DONE, MODEL, USAGE, USAGE_EVENT, event, token
from tests.serving.wrapper.test_fuzz import JSON, MESSAGE

from .case import BODY, Answer, Case, split
from .target import KEY

FIELDS: dict[str, Any] = yaml.safe_load(fields._DATA.read_text(encoding="utf-8"))
CAPS = Caps()
RAW = re.compile(r'"@([-+.\dEe]+)@"')
"""A text that stands for a number which `json.dumps` cannot write."""
FAR = st.sampled_from(
    ["@1e400@", "@-1e400@", "@1e-400@", "@1E+2@", "@-0@", "@%s@" % ("9" * 5_000), "@01@"]
) | st.sampled_from([-(10**30), -(2**63) - 1, -(2**31), -1, 0, 1, 2**31, 2**63, 2**64, 10**30, 1e308, -0.0, 1e-320])
TEXT = st.text(max_size=12) | st.sampled_from(
    ["", "none", "auto", "required", "low", "a" * 65_537, "\ud800", "\0", BODY.decode()]
)


def written(value: Any, **how: Any) -> bytes:
    """A value as JSON."""
    return RAW.sub(r"\1", json.dumps(value, **how)).encode("utf-8", "surrogatepass")


# -- values of fields --


def near(least: Any, most: Any) -> st.SearchStrategy[Any]:
    """Numbers at both bounds, and somewhere between."""
    bounds = [getattr(CAPS, bound) if isinstance(bound, str) else bound for bound in (least, most)]
    return st.sampled_from([value + step for value in bounds for step in (-1, 0, 1)]) | st.integers(0, 8)


def shaped(shape: Any) -> st.SearchStrategy[Any]:
    """Values of a shape of engine_fields.yaml."""
    if shape == "flag":
        return st.booleans()
    if isinstance(shape, dict):
        (kind, inside), *_ = shape.items()
        if kind in ("integer", "number"):
            return near(*inside)
        if kind == "tokens":
            return st.lists(st.integers(-1, 300) | FAR, max_size=4)
        if kind == "texts":
            return TEXT | st.lists(TEXT, max_size=4)
        if kind in ("biases", "labels"):
            return st.dictionaries(st.integers(-1, 300).map(str) | TEXT, st.integers(-101, 101) | TEXT, max_size=4)
        if kind == "object":
            return st.fixed_dictionaries({}, optional={name: shaped(one) for name, one in inside.items()})
        if kind == "text_or":
            return TEXT | shaped(inside)
    return TEXT


PATTERN = st.text("ab(|)*+?{}[]\\^$.1209,", max_size=16) | st.sampled_from(
    ["(a{1000}){1000}", "(" * 70, "(a+)+$", "[", "a{2,1}"]
)
COUNT = st.integers(-1, 6) | FAR | st.sampled_from([9_999, 10_000, 10_001])
REFERENCE = st.sampled_from(
    ["#", "#/", "#/$defs/a", "#/properties/a", "#/%", "#/~", "http://a/", "", "#/$defs/a/items"]
)
GRAMMAR = st.text('root ::="ab"|()*+?{}[]#\n', max_size=40) | st.sampled_from(
    ["root ::= root", 'root ::= "a" | root "b"']
)
DEPTHS = st.sampled_from([2, 30, 62, 63, 64, 65, 300, 900])


def nest(depth: int, around: str, inside: Any) -> Any:
    """A schema in a schema in a schema."""
    for _ in range(depth):
        inside = {around: [inside] if around in ("anyOf", "allOf", "prefixItems") else inside}
    return inside


AROUND = st.sampled_from(["items", "not", "anyOf", "allOf", "prefixItems", "additionalProperties", "x"])
DEEP = st.builds(nest, DEPTHS, AROUND, st.booleans() | COUNT)
DEEP_TEXT = st.builds(
    lambda depth, opening: opening * depth * 20, DEPTHS, st.sampled_from(["[", '{"a":', "(", '"', "\\"])
)
SCHEMA: st.SearchStrategy[Any] = DEEP | st.recursive(
    st.booleans() | JSON | st.fixed_dictionaries({"$ref": REFERENCE}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "null", "x"]) | JSON,
            "properties": st.dictionaries(st.sampled_from(["a", "b", "$ref", "properties", ""]), inner, max_size=3)
            | JSON,
            "patternProperties": st.dictionaries(PATTERN, inner, max_size=2),
            "items": inner | st.lists(inner, max_size=3),
            "prefixItems": st.lists(inner, max_size=3),
            "additionalProperties": inner,
            "anyOf": st.lists(inner, max_size=3) | JSON,
            "allOf": st.lists(inner, max_size=2),
            "not": inner,
            "$defs": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2) | JSON,
            "$ref": REFERENCE | JSON,
            "enum": st.lists(JSON, max_size=3) | JSON,
            "const": JSON,
            "pattern": PATTERN | JSON,
            "format": TEXT,
            "required": st.lists(TEXT, max_size=2) | JSON,
        }
        | dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"), COUNT),
    ),
    max_leaves=10,
)
NAMED = st.fixed_dictionaries(
    {}, optional={"name": TEXT, "schema": SCHEMA, "strict": st.booleans(), "description": TEXT}
)
SCHEMAS: dict[str, st.SearchStrategy[Any]] = {
    "response_format": st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["text", "json_object", "json_schema", "structural_tag"]),
            "json_schema": NAMED,
        },
    ),
    "structured_outputs": st.fixed_dictionaries(
        {},
        optional={
            "json": SCHEMA | SCHEMA.map(json.dumps) | DEEP_TEXT, "regex": PATTERN, "choice": st.lists(TEXT, max_size=4),
            "grammar": GRAMMAR, "json_object": st.booleans(), "structural_tag": JSON | JSON.map(json.dumps) | DEEP_TEXT,
            "whitespace_pattern": PATTERN,
        },
    ),
    "tools": st.lists(
        st.fixed_dictionaries(
            {"type": st.just("function") | TEXT},
            optional={
                "function": st.fixed_dictionaries(
                    {}, optional={"name": TEXT, "parameters": SCHEMA, "strict": st.booleans()}
                ),
                "name": TEXT, "parameters": SCHEMA,
            },
        ),
        max_size=2,
    ),
    "text": st.fixed_dictionaries(
        {}, optional={"format": st.tuples(NAMED, TEXT).map(lambda pair: pair[0] | {"type": "json_schema"}) | JSON}
    ),
}  # fmt: skip
KINDS = st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "item_reference"])
ITEM = st.tuples(
    MESSAGE,
    st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS, "id": TEXT, "call_id": TEXT, "name": TEXT, "status": TEXT, "summary": JSON,
            "arguments": JSON.map(json.dumps) | DEEP_TEXT, "output": TEXT | JSON,
        },
    ),
).map(lambda pair: pair[0] | pair[1])  # fmt: skip
NUMBERS = st.lists(st.integers(-1, 300), min_size=1, max_size=3)
HANDLED: dict[str, st.SearchStrategy[Any]] = {
    "messages": st.lists(MESSAGE, max_size=3),
    "input": TEXT | st.lists(ITEM | TEXT, max_size=3) | NUMBERS,
    "prompt": TEXT | st.lists(TEXT, max_size=3) | NUMBERS | st.lists(NUMBERS, max_size=2),
    "model": st.just(MODEL),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries({}, optional={"include_usage": st.booleans(), "x": JSON}),
    "instructions": TEXT,
    "chat_template_kwargs": st.fixed_dictionaries({}, optional={"enable_thinking": st.booleans(), "x": JSON}),
}
PLAIN: dict[Route, dict[str, Any]] = {
    Route.CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    Route.COMPLETIONS: {"prompt": "hi"},
    Route.EMBEDDINGS: {"input": "hi"},
    Route.RESPONSES: {"input": "hi"},
}


def value_of(name: str, judged: Any) -> st.SearchStrategy[Any]:
    """Values of a field: mostly of its kind, else anything."""
    if judged == "schema":
        own = SCHEMAS[name]
    elif judged == "handled":
        own = HANDLED.get(name, near(0, "output_tokens"))
    else:
        own = shaped(judged)
    return st.one_of(own, own, JSON, FAR, DEEP)


def body(route: Route) -> st.SearchStrategy[bytes]:
    """A body that is good but for a few fields, written as JSON in one of several ways."""
    known = FIELDS[SECTIONS[route]]
    some = st.lists(st.sampled_from(sorted(known)), max_size=4, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: value_of(name, known[name]) for name in names})
    )
    base = {**PLAIN[route], **({} if route is Route.EMBEDDINGS else {"stream": True})}
    good = st.builds(
        lambda start, more, plain: written(start | more, ensure_ascii=plain),
        st.sampled_from([PLAIN[route], base]),
        some,
        st.booleans(),
    )
    return good | (JSON | DEEP).map(written)


SCHEMA_FIELDS = {
    route: [name for name, judged in FIELDS[section].items() if judged == "schema"]
    for route, section in SECTIONS.items()
}


def schema_body(route: Route) -> st.SearchStrategy[bytes]:
    """A good body with one hostile schema."""
    return st.sampled_from(SCHEMA_FIELDS[route]).flatmap(
        lambda name: SCHEMAS[name].map(lambda value: written(PLAIN[route] | {name: value}))
    )


# -- requests as bytes --

GOOD_HEAD = f"authorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"


def request(route: Route, content: bytes) -> bytes:
    """A request that is good as HTTP."""
    head = f"POST {route.value} HTTP/1.1\r\nhost: a\r\n{GOOD_HEAD}content-length: {len(content)}\r\n\r\n"
    return head.encode() + content


METHODS = st.sampled_from(["POST", "GET", "HEAD", "OPTIONS", "CONNECT", "PUT", "PRI", "post", ""])
TARGETS = st.sampled_from(
    [route.value for route in Route] + ["*", "//v1/models", "/v1/models?x", "http://a/ready", "/v1/%6dodels", ""]
)
VERSIONS = st.sampled_from(["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1.1 "])
LINE = st.sampled_from(
    [
        "host: a", "Host: b", GOOD_HEAD.strip(), f"x-backend-key: {KEY}", "x-huddle-product: team",
        "expect: 100-continue", "expect: x", "content-length: 0", "content-length: 2", "content-length: 60",
        "content-length: +2", "content-length: 2, 2", "content-length: 99999999999999999999",
        "transfer-encoding: chunked", "transfer-encoding: chunked, identity", "transfer-encoding: \x0bchunked",
        "connection: close", "connection: keep-alive", "connection: upgrade", "upgrade: h2c", "content-encoding: gzip",
        "x-request-id: a b", "x-request-id: abc", " folded: x", "x: y\0", ": x", "x" * 300 + ": y", "x : y",
        "trailer: x",
    ]
) | st.text("ab:;\t\x7f\xff", max_size=6)  # fmt: skip
END = st.sampled_from(["\r\n", "\r\n", "\r\n", "\n", "\r"])
CONTENT = st.sampled_from(
    [b"", b"{}", json.dumps(PLAIN[Route.CHAT]).encode(), b"2\r\n{}\r\n0\r\n\r\n", b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n",
     b"+2\r\n{}", b"2;x=y\r\n{}\r\n0\r\n\r\n", b"ffffffffffffffff\r\n", b"GET /ready HTTP/1.1\r\nhost: a\r\n\r\n"]
) | st.binary(max_size=40)  # fmt: skip
HEAD = st.tuples(METHODS, TARGETS, VERSIONS, st.lists(st.tuples(LINE, END), max_size=8), END).map(
    lambda drawn: "".join(
        [f"{drawn[0]} {drawn[1]} {drawn[2]}\r\n", *(line + end for line, end in drawn[3]), drawn[4]]
    ).encode("latin-1", "replace")
)


PLACES = st.lists(st.integers(0, 100_000), max_size=4)
GOOD_REQUEST = st.sampled_from(sorted(SECTIONS)).map(lambda route: request(route, json.dumps(PLAIN[route]).encode()))


def mangled(data: bytes, at: int, put: bytes, over: int) -> bytes:
    """Bytes with some replaced by others."""
    at %= len(data) + 1
    return data[:at] + put + data[at + over :]


FRAMING = st.one_of(
    st.tuples(HEAD, CONTENT).map(b"".join),
    st.builds(mangled, GOOD_REQUEST, st.integers(0, 2_000), st.binary(max_size=6), st.integers(0, 6)),
    st.binary(max_size=200),
)

# -- answers of a hostile engine --

ERRORS = st.sampled_from(
    [
        b'{"error":{"message":"@BODY@","type":"BadRequestError","param":null,"code":400}}',
        b'{"error":{"message":"1 validation error: {\'loc\': (\'body\',), \'input\': @BODY@}","code":400}}',
        b'{"object":"error","message":"@BODY@","code":500}',
        b'{"detail":[{"loc":["body","@BODY@"],"msg":"@BODY@","input":"@BODY@"}]}',
        b"<html>@BODY@</html>",
        b'{"error":"@BODY@"}',
    ]
)
COUNTED = st.fixed_dictionaries(
    {"prompt_tokens": st.integers(-9, 9) | FAR | JSON},
    optional={"completion_tokens": st.integers(-9, 9) | FAR | JSON, "input_tokens": JSON, "total_tokens": JSON},
)
EVENT = st.one_of(
    st.sampled_from(
        [token("a"), token('"usage"'), USAGE_EVENT, DONE, b": comment\n\n", b"data: {\n\n", b"\n\n", b"data: 5\n\n"]
    ),
    st.sampled_from(
        [
            b'data: {"error":{"message":"@BODY@","code":500}}\n\n',
            b'data: {"type":"error","message":"@BODY@"}\n\n',
            b'data: {"id":"@BODY@","choices":[],"@BODY@":"@BODY@"}\n\n',
            b"data: @BODY@\n\n",
            b": @BODY@\n\n",
        ]
    ),
    (JSON | COUNTED).map(lambda value: b"data: " + written({"choices": [], "usage": value}) + b"\n\n"),
    JSON.map(lambda value: event({"error": value})),
    JSON.map(event),
    st.binary(max_size=30),
)
STREAM = st.lists(EVENT, max_size=5).map(b"".join)
DOCUMENT = st.one_of(
    st.just(json.dumps({"object": "chat.completion", "choices": [], "usage": USAGE}).encode()),
    (JSON | COUNTED).map(lambda value: written({"choices": [], "usage": value})),
    st.binary(max_size=40),
    ERRORS,
    st.just(b'{"id":"@BODY@","object":"@BODY@","choices":[],"prompt":"@BODY@","instructions":"@BODY@"}'),
)
STATUS = st.sampled_from(
    [200, 200, 200, 200, 100, 204, 301, 304, 400, 400, 401, 404, 422, 429, 500, 501, 503, 504, 999]
)
TYPE = st.sampled_from(
    ["application/json", "text/event-stream; charset=utf-8", "application/octet-stream", "text/html", ""]
)
EXTRA = st.lists(
    st.sampled_from(["content-encoding: gzip", "retry-after: abc", "retry-after: -1", "retry-after: 9" + "9" * 400,
                     "retry-after: 3", "connection: close", "x: y", "location: http://127.0.0.1:5005/",
                     "content-length: 3", "\xff: \xff"]),
    max_size=2,
)  # fmt: skip


@st.composite
def answer(draw: st.DrawFn) -> Answer:
    """An answer with a true or a false length, chunked, or without any; now and then no HTTP at all."""
    kind, status = draw(TYPE), draw(STATUS)
    content = draw(STREAM if kind.startswith("text/event") else DOCUMENT) if status == 200 else draw(ERRORS | DOCUMENT)
    framing = draw(st.sampled_from(["chunked", "chunked", "length", "length", "short", "none", "raw"]))
    lines = [f"HTTP/1.1 {status} X", *([f"content-type: {kind}"] if kind else []), *draw(EXTRA)]
    lines += {
        "chunked": ["transfer-encoding: chunked"],
        "length": ["content-length: @LENGTH@"],
        "short": ["content-length: 7"],
    }.get(framing, [])
    head = draw(st.binary(max_size=30)) if framing == "raw" else ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return Answer(head, content, framing == "chunked", tuple(draw(PLACES)), draw(st.booleans()))


# -- cases --

BODIES = st.sampled_from(sorted(SECTIONS)).flatmap(
    lambda route: body(route).map(lambda content: request(route, content))
)
SCHEMA_BODIES = st.sampled_from(sorted(route for route, names in SCHEMA_FIELDS.items() if names)).flatmap(
    lambda route: schema_body(route).map(lambda content: request(route, content))
)
LEAVES = st.sampled_from([False, False, False, False, True])
STREAMED = st.sampled_from([Route.CHAT, Route.COMPLETIONS, Route.RESPONSES]).map(
    lambda route: request(route, json.dumps(PLAIN[route] | {"stream": True}).encode())
)
TURNS = st.lists(st.one_of(GOOD_REQUEST, STREAMED, BODIES, FRAMING), min_size=2, max_size=5)
KINDS_OF_CASES: dict[str, st.SearchStrategy[Case]] = {
    "framing": st.builds(lambda data, places, leaves: Case(split(data, places), None, leaves), FRAMING, PLACES, LEAVES),
    "turns": st.builds(lambda sent, leaves: Case(tuple(sent), None, leaves, turns=True), TURNS, LEAVES),
    "bodies": st.builds(lambda data, leaves: Case((data,), None, leaves), BODIES, LEAVES),
    "schemas": st.builds(lambda data: Case((data,)), SCHEMA_BODIES),
    "answers": st.builds(
        lambda data, said, leaves: Case((data,), said, leaves), GOOD_REQUEST | STREAMED, answer(), LEAVES
    ),
}
