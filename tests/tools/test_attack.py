"""The table of attacks, and what is made of the tests that it names."""

from types import SimpleNamespace

import pytest

from tests import named_tests
from tools import attack
from tools.attack import Attack, Kind, Recorder, Verdict


def row(**fields: object) -> Attack:
    return Attack.model_validate({"kind": "fields", "input": "x", "holds": "400", **fields})


def recorded(**outcomes: str) -> Recorder:
    recorder = Recorder()
    for name, outcome in outcomes.items():
        node = f"tests/test_x.py::test_{name}[a]"
        recorder.pytest_runtest_logreport(SimpleNamespace(nodeid=node, outcome=outcome, duration=0.5, longrepr="why\n"))
    return recorder


def test_every_test_of_the_table_is_there() -> None:
    assert named_tests.missing({name for one in attack.load().values() for name in one.tests}) == []


def test_every_fall_has_a_row_and_every_row_has_tests_or_says_that_it_is_open() -> None:
    known = attack.load()
    assert {f"F{number}" for number in range(1, 28)} <= set(known)
    assert {one.kind for one in known.values()} == set(Kind)
    assert [name for name, one in known.items() if bool(one.tests) == bool(one.open)] == []


@pytest.mark.parametrize(
    ("fields", "verdict", "happened"),
    [
        ({"tests": ["tests/test_x.py"]}, Verdict.FELL, "why"),
        ({"tests": ["tests/test_x.py::test_good"]}, Verdict.HELD, "400"),
        ({"tests": ["tests/test_x.py::test_good", "tests/test_x.py::test_bad"]}, Verdict.FELL, "why"),
        ({"tests": ["tests/test_x.py::test_goo"]}, Verdict.NOT_RUN, "none of its tests ran"),
        ({"open": "not yet"}, Verdict.OPEN, "not yet"),
    ],
)
def test_a_verdict_is_that_of_its_own_tests(fields: dict[str, object], verdict: Verdict, happened: str) -> None:
    result = attack.judge(row(**fields), recorded(good="passed", bad="failed"))
    assert (result.verdict, result.happened) == (verdict, happened)


def test_a_fall_stands_in_the_table_with_its_test() -> None:
    shown = attack.table({"F1": attack.judge(row(tests=["tests/test_x.py"]), recorded(bad="failed"))})
    assert "F1" in shown
    assert "FELL" in shown
    assert "tests/test_x.py::test_bad[a]" in shown
    assert shown.endswith("1 FELL")


def test_an_unknown_attack_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        attack.main(["F99"])
    assert ended.value.code == 2
    assert "there is no attack F99" in capsys.readouterr().err
