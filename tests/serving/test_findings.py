"""Pydantic's findings in plain words, at every depth: unions, lists, mappings, aliases."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from huddle.findings import findings, sentence
from huddle.yaml_source import YamlSourceError, dotted, parse


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Here(_Strict):
    target: Literal["here"] = Field("here", description="What it runs on.")
    count: int = Field(description="How many.", ge=1)


class There(_Strict):
    target: Literal["there"]
    names: tuple[str, ...] = Field((), description="What they are called.")
    rooms: dict[str, Here] = Field(default_factory=dict, description="What lies where.")
    kebab_key: bool = Field(False, alias="kebab-key", description="A switch.")


Place = Annotated[Here | There, Field(discriminator="target")]


class Whole(_Strict):
    places: tuple[Place, ...] = Field((), description="All places.")
    one: Here | None = Field(None, description="One place.")


def told(content: Any, expected: Any = Whole) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(expected).validate_python(content)
    return [f"{dotted(finding.path)}: {sentence(finding)}" for finding in findings(caught.value, expected)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"plces": []}, "plces: is not a known key; did you mean places? allowed: one, places"),
        ({"one": {"count": 0}}, "one.count: 0 must be 1 or more: How many."),
        ({"one": {}}, "one.count: is required: How many."),
        ({"one": 5}, "one: 5 must be a mapping of settings: One place."),
        ({"places": [{}]}, "places[0].target: is required; allowed: 'here', 'there'"),
        ({"places": [{"target": "x"}]}, "places[0].target: 'x' is not allowed; allowed: 'here', 'there'"),
        ({"places": [{"target": "here", "count": "x"}]}, "places[0].count: 'x' must be a whole number: How many."),
        (
            {"places": [{"target": "there", "names": ["a", 3]}]},
            "places[0].names[1]: 3 must be text (quote it in YAML): What they are called.",
        ),
        (
            {"places": [{"target": "there", "kebab_key": True}]},
            "places[0].kebab_key: is not a known key; did you mean kebab-key? allowed: kebab-key, names, rooms, target",
        ),
        (
            {"places": [{"target": "there", "rooms": {"a": {"count": 1, "cuont": 2}}}]},
            "places[0].rooms.a.cuont: is not a known key; did you mean count? allowed: count, target",
        ),
        ({"places": {"a": 1}}, "places: {'a': 1} must be a list: All places."),
        ({"places": {"a": [None, True]}}, "places: {'a': [null, true]} must be a list: All places."),
        ({"one": True}, "one: true must be a mapping of settings: One place."),
    ],
)
def test_one_sentence(content: Any, expected: str) -> None:
    assert told(content) == [expected]


class Bare(_Strict):
    """A table whose keys need no words."""

    size: int


@pytest.mark.parametrize(
    ("content", "expected"), [({}, "size: is required"), ({"size": "x"}, "size: 'x' must be a whole number")]
)
def test_a_name_is_not_said_twice(content: Any, expected: str) -> None:
    assert told(content, Bare) == [expected]


def test_a_document_that_is_a_union_itself() -> None:
    assert told({"target": "here", "names": [], "count": 1}, Place) == [
        "names: is not a known key; allowed: count, target"
    ]
    assert told({"target": "hear"}, Place) == ["target: 'hear' is not allowed; allowed: 'here', 'there'"]


def test_each_place_once_and_no_echo() -> None:
    class Pair(_Strict):
        names: tuple[Annotated[str, Field(min_length=2)], ...] = Field(min_length=1, description="Names.")

    assert told({"names": ["a"]}, Pair) == ["names[0]: 'a' must have 2 or more characters: Names."]


def test_a_value_is_shown_short_and_no_private_key_at_all() -> None:
    (long,) = told({"one": {"count": "x" * 200}})
    assert len(long) < 160 and "(202 characters)" in long
    assert told({"one": {"count": "BEGIN PRIVATE KEY x"}}) == [
        "one.count: a private key (not shown) must be a whole number: How many."
    ]
    (finding,) = _found({"one": {"count": "hk-secret"}})
    assert sentence(finding, lambda _: "the value") == "the value must be a whole number: How many."


def _found(content: Any) -> Any:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(content)
    return findings(caught.value, Whole)


def aliases(levels: int) -> str:
    """Each name means ten of the one before."""
    rows = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels))]
    return "\n".join(rows)


def test_an_alias_in_yaml_is_read_once_however_often_it_is_named() -> None:
    assert len(parse(aliases(4), "f.yaml").lines) < 80


def test_aliases_that_mean_very_much_or_themselves_are_refused() -> None:
    """Ten names of ten names each would be ten thousand million values."""
    with pytest.raises(YamlSourceError, match="its aliases stand for more than 100,000 values"):
        parse(aliases(10), "bomb.yaml")
    with pytest.raises(YamlSourceError, match="an anchor holds itself") as caught:
        parse("b: 1\na: &a {b: [*a]}\n", "loop.yaml")
    assert (caught.value.line, caught.value.column) == (2, 4)
    assert len(parse(str(list(range(150_000))), "long.yaml").data) == 150_000, "a long list is no alias"


def test_what_stands_twice_is_told_with_both_lines() -> None:
    document = parse("a:\n  b: 1\n  b: 2\nA: 3\n", "f.yaml")
    assert list(map(str, document.twice())) == ["f.yaml:3: a.b: given twice; the first is on line 2, keep one"]
    folded = parse("a: 1\nA: 3\n", "f.yaml", same=str.casefold)
    assert list(map(str, folded.twice())) == ["f.yaml:2: A: given twice; the first is on line 1, keep one"]


@pytest.mark.parametrize("text", ["a: [", "a: *b", "a: 2026-02-30", "a: \0", "[" * 5000])
def test_what_is_no_yaml_is_one_error_on_one_line(text: str) -> None:
    with pytest.raises(YamlSourceError) as caught:
        parse(text, "f.yaml")
    assert caught.value.line == 1 + text.count("\n") and "\n" not in str(caught.value)
