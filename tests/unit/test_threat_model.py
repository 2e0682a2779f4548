"""docs/threat-model.md: every test that a promise names is there, and every secret of a stack has its row."""

from __future__ import annotations

import re

from plan.secrets import Secret
from tests import named_tests

PAGE = (named_tests.ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
PROMISES = PAGE.partition("## Promises and their tests")[2].partition("\n## ")[0]
ROWS = [line.split(" | ") for line in PROMISES.splitlines() if line.startswith("| ")][1:]


def test_every_promise_names_tests_that_are_there() -> None:
    assert len(ROWS) > 15
    assert [promise for promise, *tests in ROWS if len(tests) != 1 or "`tests/" not in tests[0]] == []
    assert named_tests.missing(set(re.findall(r"`(tests/[^`]+)`", PAGE))) == []


def test_a_name_that_is_not_there_is_missed() -> None:
    here = "tests/unit/test_threat_model.py"
    wrong = {f"{here}::test_nothing", "tests/unit/test_gone.py", "tests/conftest.py"}
    assert named_tests.missing({here, f"{here}::test_a_name_that_is_not_there_is_missed"} | wrong) == sorted(wrong)


def test_every_secret_of_a_stack_has_its_row() -> None:
    assert [secret.key for secret in Secret if f"\n| `{secret.key}` |" not in PAGE] == []
