"""What text must look like is said in words: no pattern reaches a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from huddle.findings import findings, sentence
from huddle.forms import Form
from huddle.wrapper.config import WrapperConfig
from plan.targets import TARGETS


class Clock(BaseModel):
    time: Annotated[str, Form(r"[0-9]{4}", "four digits")] = Field("1900", description="Time of day.")
    bare: str = Field("a", pattern="^[a-z]$", description="one small letter")
    rooms: dict[Annotated[str, Form(r"[a-z]+", "small letters")], int] = {}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"time": "7 pm"}, "'7 pm' is not allowed; allowed: four digits"),
        ({"time": "1900\n"}, "'1900\\n' is not allowed; allowed: four digits"),
        ({"time": 3}, "3 must be text (quote it in YAML): Time of day."),
        ({"rooms": {"A1": 3}}, "'A1' is not allowed; allowed: small letters"),
        ({"bare": "A"}, "'A' is not allowed: one small letter"),
    ],
)
def test_a_wrong_form_is_told_in_words(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Clock.model_validate(values)
    (finding,) = findings(caught.value, Clock)
    assert sentence(finding) == said


def patterns(schema: Any, where: str = "") -> Iterator[str]:
    if isinstance(schema, dict):
        if "pattern" in schema or "patternProperties" in schema:
            yield where
        for key, value in schema.items():
            yield from patterns(value, f"{where}.{key}")
    elif isinstance(schema, list):
        for value in schema:
            yield from patterns(value, where)


@pytest.mark.parametrize("model", [*(target.settings for target in TARGETS.values()), WrapperConfig])
def test_no_file_that_people_write_is_checked_by_a_pattern_without_words(model: type[BaseModel]) -> None:
    assert list(patterns(model.model_json_schema())) == []
