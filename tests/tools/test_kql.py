"""The gateway's queries, checked by Microsoft's own language service."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.queries import QUERIES as FOLDER
from tools.kql.check import main, problems

QUERIES = sorted(Path(str(FOLDER)).glob("*.kql"))
pytestmark = pytest.mark.slow  # the first run installs a package


def test_every_query_parses_and_asks_for_columns_that_exist() -> None:
    assert len(QUERIES) >= 9
    assert problems(QUERIES) == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ('AppMetrics\n| where Nme == "x"', "Nme"),
        ("AppMetrics\n| sumarize count()", "Query operator expected"),
        ("AppMetrik\n| count", "AppMetrik"),
        ("ApiManagementGatewayLogs | where ResponseCode == ", "Missing expression"),
        ("AppMetrics | summarize percentil(Sum, 50)", "percentil"),
    ],
)
def test_a_wrong_query_is_found(tmp_path: Path, query: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong.kql"
    file.write_text(query)
    assert main([str(file)]) == 1
    assert says in capsys.readouterr().out
