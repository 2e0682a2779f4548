"""What it costs an engine to compile the schemas and grammars of a request."""

import json
from typing import Any

import pytest

from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.compile_cost import FREE_S
from huddle.wrapper.body.prepare import Preparer, Served
from huddle.wrapper.errors import RequestError
from huddle.wrapper.routes import Route
from tests.serving.wrapper.compiling import lengths, prepared, schema

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["a", "b", "c"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
CHEAP: dict[str, dict[str, Any]] = {
    "nothing": {},
    "json mode": {"response_format": {"type": "json_object"}},
    "an ordinary schema": schema(PERSON),
    "a long choice": {"structured_outputs": {"choice": [f"country-{i}" for i in range(1_000)]}},
    "a choice": {"structured_outputs": {"choice": ["yes", "no"]}},
    "a date": {"structured_outputs": {"regex": r"\d{4}-\d{2}-\d{2}"}},
    "twenty tools": {"tools": [{"type": "function", "function": {"name": "f", "parameters": PERSON}}] * 20},
}


@pytest.mark.parametrize("case", CHEAP)
def test_ordinary_requests_need_no_leave(case: str) -> None:
    assert prepared(**CHEAP[case]).compiling is None


RULES = "\n".join(f'r{i} ::= "x" r{i + 1}? | [a-z]+ r{i * 7 % 1_400} | "y"' for i in range(1_400)) + '\nr1400 ::= "z"'
MEASURED = [  # seconds of one core, vocabulary of 128,000, xgrammar 0.2.8
    (lengths(1, 20), 0.50),
    (lengths(1, 100), 3.14),
    (lengths(5, 50), 8.25),
    (schema({"properties": {f"a{i}": {"type": "string", "maxLength": 50} for i in range(20)}}), 1.48),
    ({"structured_outputs": {"choice": ["a" * 40 + f"{i:012}" for i in range(2_000)]}}, 3.26),
    ({"structured_outputs": {"choice": ["a" * 40 + f"{i:012}" for i in range(4_000)]}}, 9.51),
    ({"structured_outputs": {"choice": ["a" * 10 + f"{i:012}" for i in range(4_000)]}}, 0.87),
    (schema({"anyOf": [{"properties": {f"a{i}": {"type": "integer", "multipleOf": 3}}} for i in range(1_000)]}), 1.70),
    ({"structured_outputs": {"regex": "[a-z]{1,100}"}}, 1.02),
    ({"structured_outputs": {"regex": "a?" * 100}}, 1.5),
    ({"structured_outputs": {"regex": "(a|)" * 100}}, 1.5),
    (schema({"type": "string", "pattern": "a?" * 100}), 1.5),
    ({"structured_outputs": {"regex": "(?:a" + "bc?d?e?" * 33 + ")x"}}, 0.5),
    ({"structured_outputs": {"regex": "-".join(["[a-z]+"] * 100)}}, 0.27),
    (schema({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(800)}}), 1.91),
    (
        schema(
            {"type": "object", "properties": {"e": {"type": "object", "additionalProperties": True}}} | {"$defs": {}}
        ),
        0.1,
    ),
]


@pytest.mark.parametrize(("fields", "measured_s"), MEASURED)
def test_the_estimate_is_near_what_was_measured_and_not_far_below(fields: dict[str, Any], measured_s: float) -> None:
    compiling = prepared(**fields).compiling
    estimated = compiling.cost_s if compiling else FREE_S
    assert 0.9 * measured_s <= estimated <= max(4 * measured_s, FREE_S)


@pytest.mark.parametrize(
    "fields", [lengths(20, 200), {"structured_outputs": {"grammar": RULES.replace("r0 ", "root ", 1)}}]
)
def test_what_would_compile_for_longer_than_one_caller_may_is_a_400(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        prepared(**fields)
    assert (refused.value.status, refused.value.code, refused.value.param) == (
        400,
        "value_too_large",
        next(iter(fields)),
    )
    assert "at most 60 s" in refused.value.message


@pytest.mark.parametrize("hidden", ['q ::= ["]\n', '# "\n', "# it's\n", r'q ::= [\]"] "\""' + "\n"])
def test_nothing_in_a_grammar_hides_the_rest(hidden: str) -> None:
    rules = RULES.replace("r0 ", "root ", 1)[:5_000]
    plain, behind = (prepared(structured_outputs={"grammar": text}).compiling for text in (rules, hidden + rules))
    assert plain and behind
    assert behind.cost_s >= plain.cost_s > 1


@pytest.mark.parametrize("regex", ["a?" * 5_000, "(a|)" * 5_000, "(?:a" + "bc?" * 4_000 + ")x", "a{0,1}" * 900])
def test_thousands_of_things_that_may_lack_are_a_400(regex: str) -> None:
    for fields in ({"structured_outputs": {"regex": regex}}, schema({"type": "string", "pattern": regex})):
        with pytest.raises(RequestError) as refused:
            prepared(**fields)
        assert refused.value.code == "value_too_large"


def test_an_ordinary_schema_with_many_lengths_waits_and_is_not_refused() -> None:
    texts = {
        f"a{most}": {"type": "string", "maxLength": most} for most in (50, 100, 120, 255, 500, 1_000, 2_000, 4_000)
    }
    assert prepared(**schema({"type": "object", "properties": texts})).compiling is not None


def test_the_same_schema_is_the_same_and_another_is_another() -> None:
    first, again, other = (prepared(**lengths(1, most), user=str(most)).compiling for most in (100, 100, 101))
    assert first and again and other
    assert first.key == again.key != other.key


# -- tools: only those that the model is held to are compiled --


def tool(name: str, most: int, **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"a": {"type": "string", "maxLength": most}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


TOOLS = [tool("a", 255), tool("b", 1_000), tool("c", 2_000), tool("d", 20)]


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}, {"tool_choice": "none"}, {"tool_choice": None}])
def test_tools_that_may_be_called_cost_nothing(choice: dict[str, Any]) -> None:
    assert prepared(tools=TOOLS, **choice).compiling is None


def test_a_tool_that_must_be_called_is_compiled_and_no_other() -> None:
    every = prepared(tools=TOOLS, tool_choice="required").compiling
    named = prepared(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "d"}}).compiling
    alone = prepared(tools=TOOLS[-1:], tool_choice="required").compiling
    assert every and named and alone
    assert every.cost_s > 3 * named.cost_s
    assert named.cost_s == alone.cost_s


def test_one_strict_tool_has_the_others_compiled_unless_they_say_no() -> None:
    strict = tool("e", 20, strict=True)
    both = prepared(tools=[TOOLS[0], strict]).compiling
    one = prepared(tools=[tool("a", 255, strict=False), strict]).compiling
    assert both and one
    assert both.cost_s > 2 * one.cost_s
    assert prepared(tools=[tool("a", 255, strict=False)]).compiling is None
    assert prepared(tools=[strict], tool_choice="none").compiling is None


def test_tools_of_responses_are_named_and_strict_without_a_function_around() -> None:
    flat = [{"type": "function"} | made["function"] for made in TOOLS]

    def cost_s(**fields: Any) -> float:
        body = json.dumps({"model": "m", "input": "hi", "tools": flat, **fields}).encode()
        compiling = Preparer({"m": Served("m", "m")}, Caps()).prepare(Route.RESPONSES, body, "salt").compiling
        return compiling.cost_s if compiling else 0.0

    assert cost_s() == 0.0
    assert 0 < cost_s(tool_choice={"type": "function", "name": "d"}) < cost_s(tool_choice="required")
    flat[3]["strict"] = True
    assert cost_s() == cost_s(tool_choice="required")
