"""The table of assumptions: its facts are there, and a row says what follows."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from infra.proof import answers, assumptions
from infra.proof.assumptions import Assumption


def test_every_row_has_a_judge_or_a_person() -> None:
    asked = {name for name, one in assumptions.load().items() if not one.person}
    assert asked == set(answers.JUDGES)


@pytest.mark.parametrize(
    "row", [{}, {"holds": "a"}, {"holds": "a", "fails": "b", "person": "c"}], ids=["none", "half", "both"]
)
def test_a_row_without_consequence_is_refused(row: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="needs `holds` and `fails`, or `person` alone"):
        Assumption.model_validate({"claim": "c", "fact": "f", "asked": "a", **row})
