"""`infra policies`: the texts that are sent, on a screen, for scripts, in files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gateway_policies.render import canonical
from huddle.errors import InputError
from infra.cli.main import app
from infra.reports import policies_view
from tests.unit.builders import plan

FOUND = policies_view.of(plan("prod"))


def test_every_scope_has_its_policy() -> None:
    products = [f"product/{product.id}" for product in plan("prod").gateway.products]
    assert len(products) > 1
    assert [policy.scope for policy in FOUND if policy.scope.startswith("product/")] == products
    assert "api/openai" in policies_view.to_json(FOUND)


def test_what_is_piped_is_what_is_sent() -> None:
    file = io.StringIO()
    policies_view.show(FOUND, Console(file=file, width=20))
    assert file.getvalue() == "".join(f"<!-- {policy.scope} -->\n{policy.text}\n\n" for policy in FOUND)


def test_a_terminal_gets_colours_and_headings() -> None:
    file = io.StringIO()
    policies_view.show(FOUND, Console(file=file, force_terminal=True, width=120))
    assert "api/openai" in file.getvalue()
    assert "\x1b[" in file.getvalue()


def test_files_hold_the_texts(tmp_path: Path) -> None:
    written = list(policies_view.write(FOUND, tmp_path / "new"))
    assert [path.name for path in written] == [f"{policy.scope.replace('/', '-')}.xml" for policy in FOUND]
    assert [canonical(path.read_text()) for path in written] == [policy.text for policy in FOUND]
    with pytest.raises(InputError, match="is not empty"):
        list(policies_view.write(FOUND, tmp_path / "new"))
    with pytest.raises(InputError, match="can't be written"):
        list(policies_view.write(FOUND, written[0]))


def test_the_command_prints_json_and_writes_files(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["policies", "-s", "prod", "--json", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == policies_view.to_json(FOUND)
    assert len(list((tmp_path / "new").iterdir())) == len(FOUND)
