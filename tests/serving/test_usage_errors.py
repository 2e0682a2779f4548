"""Wrong usage of a command line is one plain sentence and exit code 2, as every other fault."""

from __future__ import annotations

import sys

import pytest

from huddle import cli
from infra.cli import main

PREFIX = {"infra": "error", "huddle": "huddle"}
WRONG = {
    "infra nope": "no such command 'nope'; `infra --help` shows what is allowed",
    "infra plann": "no such command 'plann'; did you mean 'plan'? `infra --help` shows what is allowed",
    "infra plan --nope": "plan: no such option: --nope; `infra plan --help` shows what is allowed",
    "infra plan -s": "plan: option '-s' requires an argument; `infra plan --help` shows what is allowed",
    "infra cost more": "cost: got unexpected extra argument(s) (more); `infra cost --help` shows what is allowed",
    "infra keys rotate": "keys rotate: missing argument 'subscription'; "
    "`infra keys rotate --help` shows what is allowed",
    "infra keys rotate a/b --in-use third": "keys rotate: --in-use: 'third' is not one of 'primary', 'secondary'",
    "infra usage --hours x": "usage: --hours: 'x' must be a number: ",
    "infra rehearse --faults /nope": "rehearse: invalid value for '--faults': path '/nope' does not exist; "
    "`infra rehearse --help` shows what is allowed",
    "huddle nope": "no such command 'nope'; `huddle --help` shows what is allowed",
    "huddle plan": "plan: missing argument 'model'; `huddle plan --help` shows what is allowed",
    "huddle models shw": "models: no such command 'shw'; did you mean 'show'? "
    "`huddle models --help` shows what is allowed",
    "huddle launch --port abc": "launch: --port: 'abc' must be a whole number: ",
    "huddle launch --device x": "launch: --device: 'x' is not one of 'cuda', 'cpu'",
    "huddle bench -n 0": "bench: --requests / -n: '0' must be 1 or more: ",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_usage(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = line.split()
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        (main if words[0] == "infra" else cli).main()
    told = capsys.readouterr()
    assert (ended.value.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert told.err.startswith(f"{PREFIX[words[0]]}: {WRONG[line]}")


@pytest.mark.parametrize(("line", "code"), [("infra", 2), ("infra stacks", 0), ("huddle --version", 0)])
def test_help_and_success_end_as_before(
    line: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", line.split())
    with pytest.raises(SystemExit) as ended:
        (main if line.startswith("infra") else cli).main()
    told = capsys.readouterr()
    assert (ended.value.code or 0) == code and told.out and not told.err
