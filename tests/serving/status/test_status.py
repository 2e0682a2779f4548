"""`huddle status`, from the files of a node whose application and probe have left them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cloud_init.huddle_apply.ledger import Ledger, State
from cloud_init.huddle_apply.paths import NodePaths
from huddle.probe import verdict
from huddle.status import report
from huddle.status.cli import app
from huddle.status.report import NoStatusError, Sources

NODE = "huddleai-h100-node-1"
BUNDLE = "ab" * 32


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    paths = NodePaths(tmp_path)
    found = Sources(paths.status, paths.current, lambda copy: tmp_path / f"run/{copy}.json")
    (tmp_path / "run").mkdir()
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
    made = Ledger(NodePaths(tmp_path), NODE, BUNDLE)
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
    verdict.write(sources.verdicts(0), verdict="healthy", ready=True, reason="tokens come", restarts=0)
    done = show("--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert found["serves"]
    assert [phase["name"] for phase in found["phases"]] == ["libraries", "readiness"]
    assert (found["bundle"], found["gpus"], found["ray_nodes"]) == (BUNDLE, 1, 2)
    assert found["models"] == [{"model": "hl", "prompt_sha256": "5" * 64}]
    assert found["versions"] == {"vllm": "0.26.0"}
    assert found["probes"][0]["verdict"] == "healthy"


def test_a_person_sees_the_same(ledger: Ledger, sources: Sources) -> None:
    ledger.warn("1 of 2 nodes have not joined Ray")
    ledger.note(weights={"model": "llama-3.2-3b", "version": "0123456789ab"})
    ledger.finish(State.SERVING, BUNDLE)
    verdict.write(sources.verdicts(0), verdict="healthy", ready=True, reason="tokens come", restarts=2)
    text = show().stdout
    for line in (
        f"node      {NODE}",
        "state     serving",
        "bundle    abababababab",
        "probe     healthy: tokens come; 2 restarts within the hour",
        "GPUs      1",
        "versions  vllm 0.26.0",
        "weights   llama-3.2-3b  version 0123456789ab",
        "model     hl  prompt 555555555555",
        "warning   1 of 2 nodes have not joined Ray",
    ):
        assert line in text.splitlines()
    assert "readiness       0.0 s  done" in text


SENTENCE = {State.APPLYING: f"applying bundle {BUNDLE[:12]}", State.SERVING: "serving: no GPU"}


def put(ledger: Ledger, sources: Sources, state: State, said: str | None, *, age_s: float = 0) -> None:
    """Leave the node as an application and a probe that spoke `age_s` ago would."""
    if state is not State.APPLYING:
        ledger.finish(state, BUNDLE, "no GPU")
    else:
        ledger.note(bundle=BUNDLE)
        with ledger.phase("staging"):
            pass
    if said is not None:
        verdict.write(sources.verdicts(0), verdict=said, ready=said == "healthy", reason="so it is", restarts=0)
        written = json.loads(sources.verdicts(0).read_text(encoding="utf-8"))
        spoken = {**written, "monotonic_s": written["monotonic_s"] - age_s}
        sources.verdicts(0).write_text(json.dumps(spoken), encoding="utf-8")


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(
    ("said", "age_s", "code", "serves"),
    [
        ("healthy", 0, 0, "yes"),
        ("suspect", 0, 0, "yes, but the probe suspects the engine: /ready is 503"),
        ("starting", 0, 1, "no: the probe calls the engine starting"),
        ("unhealthy", 0, 1, "no: the probe calls the engine unhealthy"),
        ("healthy", 100, 1, "no: the probe is silent"),
        (None, 0, 1, "no: the probe is not running"),
    ],
)
def test_the_probe_says_whether_it_serves_whatever_was_applied_last(
    ledger: Ledger, sources: Sources, state: State, said: str | None, age_s: float, code: int, serves: str
) -> None:
    put(ledger, sources, state, said, age_s=age_s)
    done = show()
    assert done.exit_code == code
    assert f"serves    {serves}" in done.stdout.splitlines()
    assert f"state     {SENTENCE.get(state, f'{state}: no GPU')}" in done.stdout.splitlines()
    done = show("--json")
    assert done.exit_code == code
    found = json.loads(done.stdout)
    assert (found["serves"], found["state"], found["bundle"]) == (code == 0, state, BUNDLE)
    assert found["reason"] == (None if state is State.APPLYING else "no GPU")


@pytest.mark.parametrize("state", [State.APPLYING, State.FAILED])
def test_a_first_bundle_that_is_not_in_place_serves_nothing(ledger: Ledger, sources: Sources, state: State) -> None:
    """Whatever an engine that was started by hand may do."""
    put(ledger, sources, state, "healthy")
    ledger.note(bundle=None)
    with ledger.phase("staging"):
        pass
    done = show()
    assert done.exit_code == 1
    assert "serves    no: no bundle is in place" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("state", "serves"),
    [
        (State.SERVING, "yes, its part: the head has the engine"),
        (State.ROLLED_BACK, "yes, its part: the head has the engine"),
        (State.FAILED, "no: its last application has not succeeded"),
        (State.APPLYING, "no: its last application has not succeeded"),
    ],
)
def test_a_worker_of_a_model_across_nodes_has_no_probe_to_ask(
    ledger: Ledger, sources: Sources, state: State, serves: str
) -> None:
    facts = sources.current / "nodes" / NODE / "node.json"
    facts.write_text(json.dumps({"expects": {"answers": []}}), encoding="utf-8")
    put(ledger, sources, state, None)
    done = show()
    assert done.exit_code == (0 if serves.startswith("yes") else 1)
    assert f"serves    {serves}" in done.stdout.splitlines()


def test_facts_that_cannot_be_read_excuse_no_probe(ledger: Ledger, sources: Sources) -> None:
    (sources.current / "nodes" / NODE / "node.json").unlink()
    put(ledger, sources, State.SERVING, None)
    assert show().exit_code == 1


def test_a_silent_probe_is_said(ledger: Ledger, sources: Sources) -> None:
    put(ledger, sources, State.SERVING, "healthy", age_s=100)
    assert "probe     silent for 100 s; see journalctl -t huddle-probe" in show().stdout


def test_a_machine_that_is_no_node_says_so(sources: Sources) -> None:
    with pytest.raises(NoStatusError, match="no bundle has been applied on this machine yet"):
        report.gather(sources)


@pytest.mark.parametrize(
    ("second", "code", "said"),
    [
        ("healthy", 0, "serves    yes\n"),
        ("unhealthy", 0, "serves    yes, with 1 of 2 engines\n"),
        (None, 0, "serves    yes, with 1 of 2 engines\n"),
    ],
)
def test_a_node_serves_with_one_of_its_engines_and_says_so(
    ledger: Ledger, sources: Sources, second: str | None, code: int, said: str
) -> None:
    path = sources.current / "nodes" / NODE / "node.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    facts["expects"]["engines"] = ["huddle-vllm@0.service", "huddle-vllm@1.service"]
    path.write_text(json.dumps(facts), encoding="utf-8")
    ledger.finish(State.SERVING, BUNDLE)
    verdict.write(sources.verdicts(0), verdict="healthy", ready=True, reason="tokens come", restarts=0)
    if second:
        verdict.write(sources.verdicts(1), verdict=second, ready=second == "healthy", reason="so", restarts=0)
    done = show()
    assert (done.exit_code, said in done.stdout) == (code, True)
    assert "probe 0   healthy: tokens come" in done.stdout
    assert f"probe 1   {f'{second}: so' if second else 'not running'}" in done.stdout
    assert len(json.loads(show("--json").stdout)["probes"]) == 2


def test_no_engine_is_no_service(ledger: Ledger, sources: Sources) -> None:
    ledger.finish(State.SERVING, BUNDLE)
    verdict.write(sources.verdicts(0), verdict="unhealthy", ready=False, reason="so", restarts=3)
    assert show().exit_code == 1
