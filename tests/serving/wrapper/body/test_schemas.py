"""Schemas, expressions and grammars that would make the engine compile without an end stop here; clients' own pass."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from huddle.wrapper.body.ambiguity import is_ambiguous_grammar
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.grammars import rules_of, says_nothing
from huddle.wrapper.body.prepare import Preparer, Served
from huddle.wrapper.errors import RequestError
from huddle.wrapper.routes import Route
from tests.serving.wrapper.conftest import Wrapper

BOUNDS = {
    **dict.fromkeys(("minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"), 10_000),
    **dict.fromkeys(("minLength", "maxLength"), 100_000),
}


def prepare(route: Route = Route.CHAT, **fields: Any) -> Any:
    said: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
    said = {Route.COMPLETIONS: {"prompt": "hi"}, Route.RESPONSES: {"input": "hi"}}.get(route, said)
    body = json.dumps({"model": "m", **said, **fields}).encode()
    return json.loads(Preparer({"m": Served("m", "m")}, Caps()).prepare(route, body, "salt").body)


def refusal(route: Route = Route.CHAT, **fields: Any) -> RequestError:
    with pytest.raises(RequestError) as refused:
        prepare(route, **fields)
    assert refused.value.status == 400
    return refused.value


def response_format(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def tools(schema: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}


def text(schema: Any) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}


def structured(schema: Any) -> dict[str, Any]:
    return {"structured_outputs": {"json": schema}}


def structured_text(schema: Any) -> dict[str, Any]:
    return {"structured_outputs": {"json": json.dumps(schema)}}


def tag(schema: Any) -> dict[str, Any]:
    structures = {"structures": [{"begin": "<a>", "schema": schema, "end": "</a>"}], "triggers": ["<a"]}
    return {"structured_outputs": {"structural_tag": json.dumps(structures)}}


PLACES = [
    (Route.CHAT, response_format),
    (Route.CHAT, tools),
    (Route.CHAT, structured),
    (Route.CHAT, structured_text),
    (Route.CHAT, tag),
    (Route.COMPLETIONS, response_format),
    (Route.COMPLETIONS, structured),
    (Route.RESPONSES, text),
    (Route.RESPONSES, structured),
    (Route.RESPONSES, lambda schema: {"tools": [{"type": "function", "name": "f", "parameters": schema}]}),
]
KILLER = {"type": "array", "items": {"type": "integer", "multipleOf": 3}, "minItems": 1_000_000_000}


@pytest.mark.anyio
async def test_the_schema_that_ended_the_engine_does_not_reach_it(wrapper: Wrapper) -> None:
    answer = await wrapper.chat(**response_format(KILLER))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"] == (
        "'response_format.json_schema.schema.minItems' is 1000000000; at most 10000 is allowed here"
    )
    assert (error["type"], error["code"], error["param"]) == (
        "invalid_request_error",
        "value_too_large",
        "response_format",
    )
    assert wrapper.engine.completions == []


@pytest.mark.parametrize(("route", "place"), PLACES)
def test_it_is_found_wherever_a_schema_can_stand(route: Route, place: Any) -> None:
    refused = refusal(route, **place({"type": "object", "properties": {"a": KILLER}}))
    assert "1000000000; at most 10000" in refused.message
    assert refused.param in place({})
    prepare(route, **place({"type": "object", "properties": {"a": {"type": "array", "maxItems": 100}}}))


@pytest.mark.parametrize("keyword", BOUNDS)
def test_each_bound_is_exact(keyword: str) -> None:
    most = BOUNDS[keyword]
    prepare(**response_format({keyword: most}))
    assert f".{keyword}' is {most + 1}; at most {most}" in refusal(**response_format({keyword: most + 1})).message
    assert refusal(**response_format({keyword: float(most * 10)})).code == "value_too_large"
    assert "huge" in refusal(**response_format({keyword: 10**4000})).message


ONE = {"type": "integer"}


def nested(*bounds: int) -> dict[str, Any]:
    schema: dict[str, Any] = ONE
    for bound in bounds:
        schema = {"type": "array", "items": schema, "maxItems": bound}
    return schema


TOO_MUCH: dict[str, tuple[Any, str]] = {
    "bounds inside bounds": (nested(1000, 1000, 1000), "nested bounds"),
    "by way of a reference": (
        {"$defs": {"a": nested(1000)}, "type": "array", "maxItems": 1001, "items": {"$ref": "#/$defs/a"}},
        "nested bounds",
    ),
    "by way of a place that is no keyword": (
        {"x": {"y": nested(1000)}, "type": "array", "maxItems": 1001, "items": {"$ref": "#/x/y"}},
        "nested bounds",
    ),
    "many side by side": ({"anyOf": [nested(10_000)] * 11}, "items to"),
    "levels": ({"$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(200)}, "$ref": "#/$defs/a0"}, "deep"),
    "objects": ({"x": [{}] * 10_001}, "objects and lists to"),
    "lists": ({"x": [[]] * 10_001}, "objects and lists to"),
    "schemas in texts": ({"a": [{"json": '{"x":[0' + ",0" * 999 + "]}"} for _ in range(110)]}, "values in texts"),
    "properties": ({"properties": {f"a{i}": {} for i in range(3_001)}}, "properties to"),
    "enum": ({"enum": list(range(4_001))}, "choices to"),
    "anyOf": ({"anyOf": [{}] * 3_001}, "alternatives to"),
    "allOf in parts": ({"allOf": [{"oneOf": [{}] * 1_600}, {"oneOf": [{}] * 1_600}]}, "alternatives to"),
    "size": ({"description": "x" * 300_000}, "bytes"),
    "digits": ({"maximum": 10**300}, "digits"),
    "property choices": ({"properties": {f"a{i}": {} for i in range(200)}, "maxProperties": 150}, "30000"),
    "a pattern": ({"pattern": "^a{10000}$"}, "10000 repetitions"),
    "a nested pattern": ({"pattern": "^((a{20}b){20}){20}$"}, "8000 repetitions"),
    "a pattern after another": ({"pattern": "a{600}b{600}"}, "1200 repetitions"),
    "a pattern as a key": ({"patternProperties": {"(ab){2,5000}": {}}}, "5000 repetitions"),
    "a pattern behind a class": ({"pattern": r"[\]()]\{[(]x{99999999999}"}, "too many repetitions"),
    "patterns side by side": ({"anyOf": [{"pattern": "a{999}"}] * 11}, "repetitions to"),
    "groups": ({"pattern": "(" * 65 + ")" * 65}, "groups"),
    "a long pattern": ({"pattern": "a" * 65_537}, "characters"),
    "itself": ({"$ref": "#"}, "comes back"),
    "itself by choices": ({"anyOf": [{"type": "null"}, {"allOf": [{"$ref": "#"}]}]}, "comes back"),
    "two that refer to each other": (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        "comes back",
    ),
    "elsewhere": ({"$ref": "http://169.254.169.254/x"}, "must begin with"),
    "at a list": ({"$ref": "#/anyOf", "anyOf": [{}]}, "no schema"),
    "nowhere": ({"$ref": "#/$defs/a"}, "not there"),
    "by name": ({"$dynamicRef": "#a", "$dynamicAnchor": "a"}, "use '$ref'"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_is_too_much_is_refused_in_one_sentence(name: str) -> None:
    schema, word = TOO_MUCH[name]
    refused = refusal(**response_format(schema))
    assert word in refused.message
    assert refused.message.startswith("'response_format")
    assert refused.param == "response_format"
    assert refused.code in ("value_too_large", "invalid_schema")


STRUCTURED: dict[str, tuple[Any, str]] = {
    "choices": ({"choice": [f"k{i}" for i in range(4_001)]}, "choices to 4001"),
    "regex": ({"regex": "[a-z]{0,100000}"}, "repetitions"),
    "white space": ({"json": {}, "whitespace_pattern": " {0,100000}"}, "repetitions"),
    "grammar": ({"grammar": 'root ::= "a"{100000}'}, "repetitions"),
    "grammar by rules": ({"grammar": 'root ::= a{100}\na ::= b{100}\nb ::= "x"{100}'}, "1000000 repetitions"),
    "a Lark grammar": ({"grammar": 'start: "a"{1,100000}'}, "repetitions"),
    "a schema in a grammar": ({"grammar": 'start: %json {"minItems": 1000000000}'}, "its rules as 'root ::= …'"),
    "a long grammar": ({"grammar": "a" * 65_537}, "characters"),
    "a text that is no schema": ({"json": "[1]"}, "JSON object"),
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_structured_outputs_have_the_same_bounds(name: str) -> None:
    value, word = STRUCTURED[name]
    for route in (Route.CHAT, Route.COMPLETIONS, Route.RESPONSES):
        assert word in refusal(route, structured_outputs=value).message


HOSTILE_PATTERNS = {
    "brackets": "[" * 60_000,
    "brackets and a backslash": "[" * 60_000 + "\\",
    "braces": "{" * 60_000,
    "a brace and blanks": "{" + " " * 60_000,
    "braces and digits": "{1" * 30_000,
    "groups that end": ")" * 60_000,
    "backslashes": "\\" * 59_999,
}


@pytest.mark.parametrize("name", HOSTILE_PATTERNS)
def test_judging_ends_soon_itself(name: str) -> None:
    """With a step that looks at the text again for each bracket, these take hours."""
    for field in ("regex", "grammar"):
        try:
            prepare(structured_outputs={field: HOSTILE_PATTERNS[name]})
        except RequestError as refused:
            assert refused.code in ("value_too_large", "invalid_schema")


def test_references_that_multiply_are_walked_once() -> None:
    twice = {f"a{i}": {"prefixItems": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(12)}
    prepare(**response_format({"$defs": twice | {"a12": ONE}, "$ref": "#/$defs/a0"}))


# -- what clients really send --


class Address(BaseModel):
    street: str = Field(max_length=200)
    code: str = Field(pattern=r"^\d{5}(-\d{4})?$")


class Person(BaseModel):
    name: str = Field(min_length=1, max_length=65_535)
    age: int = Field(ge=0, le=2**63 - 1)
    id: str = Field(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
    addresses: list[Address] = Field(max_length=1_000)
    children: "list[Person]" = Field(default_factory=list, max_length=20)
    properties: dict[str, str] = Field(default_factory=dict, max_length=64)


class Step(BaseModel):
    """Its properties are called like keywords, and bound nothing."""

    min_items: int = Field(2_000_000_000, alias="minItems")
    pattern: str = "a{100000}"
    schema_: str = Field("", alias="schema", examples=[{"minItems": 10**12}])


IPV6 = "|".join([r"([0-9a-fA-F]{1,4}:){1,7}[0-9a-fA-F]{1,4}"] * 8)
USUAL: dict[str, Any] = {
    "models of pydantic": Person.model_json_schema(),
    "properties that are called like bounds": Step.model_json_schema(),
    "a tree": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}},
    "a list of itself": {
        "$defs": {"node": {"anyOf": [{"type": "null"}, {"properties": {"next": {"$ref": "#/$defs/node"}}}]}},
        "$ref": "#/$defs/node",
    },
    "addresses": {"pattern": f"^({IPV6})$"},
    "characters": {"pattern": r"^\p{L}[\x{10FFFF}{}(]{1,64}\{5000\}$"},
    "an anchor": {"$id": "https://example.com/a.json", "$schema": "https://json-schema.org/draft/2020-12/schema"},
    "many fields": {"properties": {f"a{i}": {"type": "string", "maxLength": 10_000} for i in range(500)}},
    "nothing": {},
    "true": True,
}


@pytest.mark.parametrize("name", USUAL)
def test_what_clients_send_passes_unchanged(name: str) -> None:
    # (a function's parameters are an object: the engine refuses `true` there)
    for route, place in PLACES[:5] if USUAL[name] is not True else (PLACES[0], PLACES[2]):
        fields = place(USUAL[name])
        assert {key: prepare(route, **fields)[key] for key in fields} == fields


def test_a_hundred_tools_pass() -> None:
    either = {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}], "description": "x"}
    parameters = {"type": "object", "properties": {f"p{i}": either for i in range(10)}}
    made = [{"type": "function", "function": {"name": f"f{i}", "parameters": parameters}} for i in range(128)]
    assert prepare(tools=made)["tools"] == made


@pytest.mark.parametrize("limit", [name for name in Caps.__slots__ if name.startswith(("schema_", "grammar_"))])
def test_every_bound_is_a_setting(limit: str) -> None:
    schema = {
        "type": "array",
        "maxItems": 3,
        "minLength": 3,
        "enum": [1, 2],
        "anyOf": [{}, {}],
        "pattern": "a{3}",
        "properties": {"a": {}, "b": {}},
    }
    caps = Caps(**{limit: 1})
    body = json.dumps({"model": "m", "prompt": "hi", **structured(schema)}).encode()
    with pytest.raises(RequestError) as refused:
        Preparer({"m": Served("m", "m")}, caps).prepare(Route.COMPLETIONS, body, "salt")
    assert "at most 1 is allowed here" in refused.value.message


NOTHING = [
    "root ::= root",
    "root ::= a\na ::= root",
    'root ::= "" root',
    "root ::= (root)",
    'root ::= a root\na ::= ""',
    "root ::= root | root",
    'root ::= a "x"\na ::= (a | b)\nb ::= a+',
    "root ::= root* root",
    "start: start",
    "root ::= []",
]
SOMETHING = [
    'root ::= root "a" | "a"',
    'root ::= "a" root',
    'root ::= ""',
    "root ::= root?",
    "root ::= (root | [a-z])",
    'root ::= a root\na ::= "x"?',
    'root ::= item ("," item)*\nitem ::= [^,"]+ # root ::= root\n',
    'start: start | "x"',
    "",
    "root ::= unknown",
]


@pytest.mark.parametrize("grammar", NOTHING)
def test_a_grammar_that_derives_nothing_is_a_400(grammar: str) -> None:
    """The engine answered 500: it compiles these, and then finds no token that may come."""
    refused = refusal(structured_outputs={"grammar": grammar})
    assert (refused.status, refused.code, refused.param) == (400, "invalid_schema", "structured_outputs")


@pytest.mark.parametrize("grammar", SOMETHING)
def test_a_grammar_that_derives_something_is_the_engines_to_judge(grammar: str) -> None:
    assert prepare(structured_outputs={"grammar": grammar})


# Each kept the real engine (xgrammar 0.2.7) for seconds at a few hundred characters of text.
AMBIGUOUS = {
    "nested": {"regex": "((((([^x]+)+)+)+)+)+"},
    "three": {"regex": "(([^x]+)+)+"},
    "stars": {"regex": "(?:(?:[^x]*)*)*y"},
    "counts": {"regex": "(([^x]{2,}){1,})+"},
    "an optional thing between": {"regex": "((\\w+ ?)+,?)+"},
    "in a branch": {"regex": "(b|([^x]+|a)+)+"},
    "something between that may be the same": {"regex": "(((([^x]+a)+a)+a)+a)+"},
    "in a schema": {"json": {"type": "string", "pattern": "^((([^x]+)+)+)$"}},
    "a rule side by side": {"grammar": "root ::= s\ns ::= s s s | s s | [^x]"},
    "by way of another": {"grammar": "root ::= s\ns ::= t t | [^x]\nt ::= (s)"},
    "with nothing between": {"grammar": 'root ::= s\ns ::= s n s | [^x]\nn ::= "" | "y"?'},
    "a rule repeated": {"grammar": "root ::= s\ns ::= s+ | [^x]"},
    "nested over rules": {"grammar": "root ::= a+\na ::= b+\nb ::= [^x]+"},
}
CLEAR = {
    "numbers": {"regex": r"(\d+,)*\d+"},
    "lists of lists": {"regex": r"((\d+,)*\d+;)*"},
    "words": {"regex": r"(\w+\s?)*"},
    "a domain": {"regex": r"^([a-z0-9]+(-[a-z0-9]+)*\.)+[a-z]{2,}$"},
    "a mail address": {"regex": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}"},
    "an address": {"regex": r"(\d{1,3}\.){3}\d{1,3}"},
    "sums": {"grammar": 'root ::= e\ne ::= e "+" e | e op e | [0-9]+\nop ::= "-" | "*"'},
    "blocks": {"grammar": 'root ::= s+\ns ::= "if " [a-z]+ b | [a-z]+ ";"\nb ::= "{" s* "}"'},
    "lists": {"grammar": 'root ::= v\nv ::= "[" v ("," v)* "]" | [0-9]+ ws\nws ::= [ \\n]*'},
    "left recursion": {"grammar": "root ::= s\ns ::= s [^x] | [^x]"},
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_what_a_text_follows_in_very_many_ways_is_a_400(case: str) -> None:
    assert refusal(structured_outputs=AMBIGUOUS[case]).code == "invalid_schema"


@pytest.mark.parametrize("case", CLEAR)
def test_ordinary_repetitions_go_to_the_engine(case: str) -> None:
    assert prepare(structured_outputs=CLEAR[case])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["root ::= ", "a ::= ", "root", "a", '"x"', '""', "[", "]", "(", ")", "|", "*", "{0}"]))
)
def test_any_grammar_is_read(words: list[str]) -> None:
    rules = rules_of(" ".join(words))
    says_nothing(rules)
    is_ambiguous_grammar(rules)


@pytest.mark.parametrize("bound", ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"])
def test_a_bound_below_zero_is_a_400(bound: str) -> None:
    assert refusal(**response_format({bound: -5})).code == "invalid_value"
