from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from huddle.errors import InputError
from infra import program
from infra.cli.main import app
from infra.program import load_plan
from infra.reports import cost
from infra.reports.usage import report
from infra.reports.usage import token_file as usage_file
from infra.reports.usage.bill import Capacity, Rate, TokenUse, divide, merged, settle
from tests.unit import stack_values
from tests.unit.builders import plan

COUNTS = st.integers(0, 10**12)
USES = st.lists(st.builds(TokenUse, st.sampled_from("abc"), st.sampled_from("xyz"), COUNTS, COUNTS), max_size=12)
RATES = {"a": Rate(1e-5, 1e-3), "b": Rate(3e-5, 2e-3)}
CAPACITY = st.builds(Capacity, st.integers(1, 64), st.floats(0.1, 1e4), st.integers(0, 10**9), st.integers(0, 10**8))
PROD = load_plan("prod")


@given(cents=st.integers(0, 10**9), weights=st.lists(st.floats(0, 1e15), min_size=1, max_size=20))
def test_cents_are_divided_without_making_or_losing_any(cents: int, weights: list[float]) -> None:
    parts = divide(cents, weights)
    assert sum(parts) == cents
    assert all(part >= 0 for part in parts)
    if sum(weights):
        for part, weight in zip(parts, weights, strict=True):
            assert abs(part - cents * weight / math.fsum(weights)) <= 1 + cents * 1e-12


@given(uses=USES, capacity=CAPACITY)
def test_shares_idle_and_platform_sum_to_what_was_paid(uses: list[TokenUse], capacity: Capacity) -> None:
    bill = settle(merged(uses), RATES, capacity)
    assert sum(bill.by_product.values()) + bill.idle_cents + bill.platform_cents == bill.total_cents
    assert bill.total_cents == capacity.gpu_cents + capacity.platform_cents
    assert 0 <= bill.utilization <= 1
    if bill.overrun > 1:
        assert bill.idle_cents <= 1, "where there was too little, nothing was idle"


@given(uses=USES, capacity=CAPACITY)
def test_idle_capacity_is_nobodys(uses: list[TokenUse], capacity: Capacity) -> None:
    """Twice the nodes at the same price each: what products pay stays, and the rest of the money is idle."""
    one = settle(merged(uses), RATES, capacity)
    more = Capacity(capacity.engines * 2, capacity.hours, capacity.gpu_cents * 2, capacity.platform_cents)
    two = settle(merged(uses), RATES, more)
    if one.overrun <= 1:
        for product, cents in one.by_product.items():
            assert abs(two.by_product[product] - cents) <= len(uses)


@given(uses=USES, capacity=CAPACITY, more=st.integers(1, 10**6))
def test_who_uses_more_never_pays_less(uses: list[TokenUse], capacity: Capacity, more: int) -> None:
    mine = TokenUse("a", "me", 10**6, 10**6)
    before = settle(merged([*uses, mine]), RATES, capacity)
    after = settle(merged([*uses, TokenUse("a", "me", 10**6 + more, 10**6 + more)]), RATES, capacity)

    def paid(bill: Any) -> int:
        return next(share.cents for share in bill.shares if share.use.subscription == "me")

    assert paid(after) >= paid(before) - 1


def test_every_engine_of_every_node_counts() -> None:
    def engines(size: str) -> int:
        sized = stack_values.settings(nodes={"size": size, "count": 1, "quota_vcpus": 96})
        return report.capacity(program.plan_of(sized, "dev"), 1, "dev").engines

    assert [engines(f"Standard_{size}_H100_v5") for size in ("NC40ads", "NC80adis", "ND96isr")] == [1, 2, 8]


def test_rows_of_one_subscription_are_counted_together() -> None:
    rows = [TokenUse("b", "y", 1, 2), TokenUse("a", "x", 1, 1), TokenUse("b", "y", 10, 20)]
    assert merged(rows) == (TokenUse("a", "x", 1, 1), TokenUse("b", "y", 11, 22))


def test_nothing_used_is_all_idle() -> None:
    bill = settle((), RATES, Capacity(2, 10.0, 1000, 50))
    assert (bill.idle_cents, bill.platform_cents, bill.total_cents) == (1000, 50, 1050)


def test_reading_is_cheaper_than_writing_by_the_planners_figures() -> None:
    for rate in report.rates(PROD).values():
        assert 0 < rate.prompt_s < rate.completion_s / 5


def test_the_money_is_the_cost_reports() -> None:
    month = report.bill(PROD, (), cost.HOURS_PER_MONTH, file="f")
    assert month.total_cents == round(cost.estimate(PROD).total_usd_per_month * 100)


# --- Files

ROWS = [
    {"product": "chat", "subscription": "web", "prompt_tokens": "1000", "completion_tokens": "200.0"},
    {"product": "gone", "subscription": "x", "prompt_tokens": 5, "completion_tokens": 0},
]
CSV = "product,subscription,prompt_tokens,completion_tokens\nchat,web,1000,200\ngone,x,5,0\n"


def test_both_kinds_of_file_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(ROWS))
    (tmp_path / "t.csv").write_text(CSV)
    uses = usage_file.read(tmp_path / "t.json")
    assert uses == usage_file.read(tmp_path / "t.csv")
    assert uses[0] == TokenUse("chat", "web", 1000, 200)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("t.json", "{}", "must be a list of objects"),
        ("t.json", "[", "is not valid JSON"),
        ("t.json", '[{"product": "a"}]', r"\[0\]: has no subscription"),
        ("t.json", json.dumps([{**ROWS[0], "prompt_tokens": -1}]), "prompt_tokens is -1; allowed: a whole number"),
        ("t.json", json.dumps([{**ROWS[0], "completion_tokens": "1.5"}]), "completion_tokens is '1.5'"),
        ("t.json", json.dumps([{**ROWS[0], "completion_tokens": True}]), "completion_tokens is True"),
        ("t.json", json.dumps([{**ROWS[0], "completion_tokens": "NaN"}]), "completion_tokens is 'NaN'"),
        ("t.csv", "product,tokens\na,1\n", "lacks the columns subscription, prompt_tokens, completion_tokens"),
        ("t.csv", CSV + "chat,web,many,1\n", "line 4: prompt_tokens is 'many'"),
        ("t.json", "[" * 100_000, "is not valid JSON: it is nested too deeply"),
        (
            "t.json",
            json.dumps([{**ROWS[0], "prompt_tokens": 1e308}]),
            "a whole number, 0 or more, of at most 15 digits",
        ),
        ("t.json", json.dumps([{**ROWS[0], "product": {"a": 1}}]), r"product is \{'a': 1\}; allowed: printable text"),
        ("t.json", json.dumps([{**ROWS[0], "product": "a\x1b[31m"}]), "product is .*; allowed: printable text"),
        ("t.json", json.dumps([{**ROWS[0], "subscription": "\ud800"}]), "subscription is .*; allowed: printable text"),
        ("t.csv", CSV + f"chat,{'x' * 200_000},1,1\n", "line 4: is not valid CSV: field larger than"),
        ("t.csv", CSV + "chat,web,1_000,1\n", "line 4: prompt_tokens is '1_000'"),
        ("t.csv", CSV + "chat,web,1\n", "line 4: completion_tokens is not there"),
        ("t.xlsx", "", "'.xlsx' is not allowed; allowed: .json, .csv"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=sentence):
        usage_file.read(tmp_path / name)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read: No such file"):
        usage_file.read(tmp_path / "t.json")


# --- The command


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["usage", "-s", "prod", *arguments])


def test_the_command_gives_json_that_sums_up(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    document = json.loads(run("--tokens", str(tmp_path / "t.csv"), "--json").stdout)
    parts = [*document["products"].values(), document["idle_usd"], document["platform_usd"]]
    assert round(sum(parts), 2) == document["total_usd"]
    assert document["complete"] is False, "some prices are not verified, and the JSON says so"


def test_the_table_names_products_that_left_the_stack_file_and_what_is_idle() -> None:
    console = Console(width=100, record=True)
    uses = (TokenUse("gone", "x", 10**9, 10**9),)
    report.show(PROD, report.bill(PROD, uses, 730, file="f"), 730, console)
    text = console.export_text()
    assert "Not in the stack file, charged at the dearest rate: gone." in text
    assert "Idle capacity" in text
    assert "Total (at least)" in text


def test_the_table_shows_names_as_they_are() -> None:
    console = Console(width=100, record=True)
    report.show(PROD, report.bill(PROD, (TokenUse("[bold]a", "[/x]", 1, 1),), 730, file="f"), 730, console)
    text = console.export_text()
    assert "[bold]a/[/x]" in text
    assert "dearest rate: [bold]a." in text


def test_too_many_tokens_for_the_hours_are_said_so() -> None:
    console = Console(width=100, record=True)
    report.show(PROD, report.bill(PROD, (TokenUse("chat", "x", 10**12, 10**12),), 1, file="f"), 1, console)
    assert "times the hours by those figures" in console.export_text()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--tokens", "nowhere.csv"),
        *(("--hours", hours, "--tokens", "t.csv") for hours in ("0", "-1", "nan", "inf", "1e308")),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    monkeypatch.chdir(tmp_path)
    assert isinstance(run(*arguments).exception, InputError)


def test_the_query_is_the_one_that_the_workbook_shows() -> None:
    from components import queries  # noqa: PLC0415 - brings in Pulumi

    assert run("--query").stdout.strip() == queries.query("tokens_by_subscription").strip()
    assert all(column in run("--query").stdout for column in usage_file.COLUMNS)


def test_a_stack_without_gpu_has_no_price_of_a_token() -> None:
    with pytest.raises(InputError, match=r"f: nodes\.size: Standard_L8s_v3 has no GPU, so no token's time is known"):
        report.bill(plan("proof"), (), 730, file="f")
