"""`huddle status`, from the files of a node whose application and probe have left them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cloud_init.huddle_apply.layout import Layout
from cloud_init.huddle_apply.ledger import Ledger, State
from huddle.probe import verdict
from huddle.status import report
from huddle.status.cli import app
from huddle.status.report import NoStatusError, Sources

NODE = "huddleai-h100-node-1"
BUNDLE = "ab" * 32


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    layout = Layout(tmp_path)
    found = Sources(layout.status, layout.current, tmp_path / "run/verdict.json")
    found.verdict.parent.mkdir()
    monkeypatch.setattr(Sources, "__init__", lambda self: self.__dict__.update(found.__dict__))
    return found


@pytest.fixture
def ledger(tmp_path: Path, sources: Sources) -> Ledger:
    """The product's own writer, as `huddle-apply` uses it."""
    facts = {
        "expects": {"answers": [{"model": "hl", "names": ["hl"], "prompt_sha256": "5" * 64}]},
        "versions": {"vllm": "0.26.0"},
    }
    folder = sources.current / "nodes" / NODE
    folder.mkdir(parents=True)
    (folder / "node.json").write_text(json.dumps(facts), encoding="utf-8")
    made = Ledger(Layout(tmp_path), NODE, BUNDLE)
    with made.phase("libraries"):
        pass
    with made.phase("readiness"):
        pass
    made.note(gpus=1, ray_nodes=2)
    return made


def show(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_a_serving_node_is_told_in_one_object(ledger: Ledger, sources: Sources) -> None:
    ledger.finish(State.SERVING, BUNDLE)
    verdict.write(sources.verdict, verdict="well", ready=True, reason="tokens come", restarts=0)
    done = show("--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert found["serves"]
    assert [phase["name"] for phase in found["phases"]] == ["libraries", "readiness"]
    assert (found["bundle"], found["gpus"], found["ray_nodes"]) == (BUNDLE, 1, 2)
    assert found["models"] == [{"model": "hl", "prompt_sha256": "5" * 64}]
    assert found["versions"] == {"vllm": "0.26.0"}
    assert found["probe"]["verdict"] == "well"


def test_a_person_sees_the_same(ledger: Ledger, sources: Sources) -> None:
    ledger.warn("1 of 2 nodes have not joined Ray")
    ledger.finish(State.SERVING, BUNDLE)
    verdict.write(sources.verdict, verdict="well", ready=True, reason="tokens come", restarts=2)
    text = show().stdout
    for line in (
        f"node      {NODE}",
        "state     serving",
        "bundle    abababababab",
        "probe     well: tokens come; 2 restarts within the hour",
        "GPUs      1",
        "versions  vllm 0.26.0",
        "model     hl  prompt 555555555555",
        "warning   1 of 2 nodes have not joined Ray",
    ):
        assert line in text.splitlines()
    assert "readiness       0.0 s  done" in text


@pytest.mark.parametrize(
    ("state", "said", "code", "line"),
    [
        (State.FAILED, None, 1, "state     failed: no GPU"),
        (State.ROLLED_BACK, None, 0, "state     rolled-back: no GPU"),
        (State.APPLYING, None, 1, f"state     applying bundle {BUNDLE[:12]}"),
        (State.SERVING, "sick", 1, "probe     sick: no token for 30 s"),
        (State.SERVING, None, 0, "probe     not running"),
    ],
)
def test_the_exit_code_says_whether_it_serves(
    ledger: Ledger, sources: Sources, state: State, said: str | None, code: int, line: str
) -> None:
    if state is not State.APPLYING:
        ledger.finish(state, BUNDLE, "no GPU")
    if said:
        verdict.write(sources.verdict, verdict=said, ready=False, reason="no token for 30 s", restarts=0)
    done = show()
    assert done.exit_code == code
    assert line in done.stdout.splitlines()


def test_a_silent_probe_is_said_and_is_no_verdict(ledger: Ledger, sources: Sources) -> None:
    ledger.finish(State.SERVING, BUNDLE)
    verdict.write(sources.verdict, verdict="sick", ready=False, reason="x", restarts=0)
    said = json.loads(sources.verdict.read_text(encoding="utf-8"))
    sources.verdict.write_text(json.dumps({**said, "at": said["at"] - 100}), encoding="utf-8")
    done = show()
    assert done.exit_code == 0
    assert "probe     silent for 100 s; see journalctl -u huddle-probe" in done.stdout


def test_a_machine_that_is_no_node_says_so(sources: Sources) -> None:
    with pytest.raises(NoStatusError, match="no bundle has been applied on this machine yet"):
        report.gather(sources)
