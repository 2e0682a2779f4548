"""The probe's edges: what it reads over HTTP, what it writes, whom it ends."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from huddle.engine import query
from huddle.probe import cli, ladder, reading, verdict
from huddle.probe.judge import Policy
from huddle.probe.loop import ProbeLoop
from huddle.probe.reading import Answer, Canary, EngineReader, Reading
from tools.deadlines import scaled

METRICS = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
vllm:generation_tokens_total{engine="0",model_name="m"} 7.0
vllm:generation_tokens_total{engine="1",model_name="m"} 3.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:prompt_tokens_total{engine="0",model_name="m"} 20.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 5.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 999.0
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 50.0
"""


class FakeEngine:
    """Answers as an engine does; `frozen` keeps completions waiting, as a stopped worker would."""

    def __init__(self) -> None:
        self.frozen = threading.Event()
        self.asked: list[dict[str, object]] = []
        self.metrics = METRICS
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cards = {"data": [{"id": "m"}]}
                self.answer(outer.metrics.encode() if self.path == "/metrics" else json.dumps(cards).encode())

            def do_POST(self) -> None:
                outer.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                while outer.frozen.is_set():
                    time.sleep(0.01)
                self.answer(b"{}")

            def answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    thread = threading.Thread(target=engine.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield engine
    engine.frozen.clear()
    engine.server.shutdown()
    engine.server.server_close()


def test_counters_are_summed_over_engines_and_nothing_else_counts() -> None:
    found = query.sums(METRICS, (*reading.WORK, query.RUNNING, query.WAITING))
    assert sum(found[name] for name in reading.WORK) == 35
    assert (found[query.RUNNING], found[query.WAITING]) == (2, 1)


def test_metrics_without_the_known_names_are_no_work() -> None:
    found = query.sums("nonsense\nvllm:num_requests_running{} x\n", (query.RUNNING, query.WAITING))
    assert found == {query.RUNNING: 0.0, query.WAITING: 0.0}


def test_a_reading_holds_work_and_requests(fake: FakeEngine) -> None:
    seen = EngineReader("127.0.0.1", fake.port, 5).read()
    assert (seen.answer, seen.work, seen.running) == (Answer.GIVEN, 35, 3)


def test_nobody_there_is_told_apart_from_no_answer() -> None:
    assert EngineReader("127.0.0.1", 1, 5).read().answer is Answer.REFUSED


def canary(engine: EngineReader) -> Canary:
    """Its outcome, however long the machine takes."""
    while (seen := engine.read().canary) is Canary.ASKED:
        time.sleep(0.01)
    return seen


def test_a_canary_asks_for_one_token_and_is_heard_of_once(fake: FakeEngine) -> None:
    engine = EngineReader("127.0.0.1", fake.port, 5)
    engine.send_canary()
    assert canary(engine) is Canary.COMPLETED
    assert fake.asked == [{"model": "m", "prompt": "Hi", "max_tokens": 1}]
    assert engine.read().canary is Canary.NONE


def test_a_frozen_engine_keeps_its_metrics_and_its_canary(fake: FakeEngine) -> None:
    engine = EngineReader("127.0.0.1", fake.port, 0.3)
    fake.frozen.set()
    engine.send_canary()
    engine.send_canary()
    assert engine.read().canary is Canary.ASKED
    assert canary(engine) is Canary.FAILED
    assert len(fake.asked) == 1, "one canary at a time"


class TestVerdict:
    def test_it_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        path = tmp_path / "verdict.json"
        verdict.write(path, verdict="unhealthy", ready=False, reason="no token for 30 s", restarts=1)
        said = verdict.read(path)
        assert said is not None
        assert (said.verdict, said.ready, said.reason, said.restarts, said.stale) == (
            "unhealthy",
            False,
            "no token for 30 s",
            1,
            False,
        )
        assert path.stat().st_mode & 0o777 == 0o644, "the wrapper has a user of its own"

    @pytest.mark.parametrize("text", ["", "[]", "null", '{"verdict": "healthy"}', "[" * 60_000, " " * 100_000 + "{}"])
    def test_a_broken_file_says_nothing(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "v").write_text(text, encoding="utf-8")
        assert verdict.read(tmp_path / "v") is None

    @pytest.mark.parametrize("name", ["restarts", "monotonic_s"])
    @pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", '"x"', "1" + "0" * 400, "9" * 5_000, "null", "[]"])
    def test_any_number_in_it_says_nothing(self, tmp_path: Path, name: str, number: str) -> None:
        """F11: 1e999 restarts ended the wrapper's task."""
        path = tmp_path / "v"
        verdict.write(path, verdict="healthy", ready=True, reason="tokens come", restarts=0)
        fields = json.loads(path.read_text(encoding="utf-8")) | {name: "HERE"}
        path.write_text(json.dumps(fields).replace('"HERE"', number), encoding="utf-8")
        said = verdict.read(path)
        assert said is None or (name, said.age_s) == ("restarts", pytest.approx(0, abs=60)), "a huge count is a count"

    def test_a_fifo_in_its_place_says_nothing(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "v")
        assert verdict.read(tmp_path / "v") is None


class TestListener:
    """What the wrapper makes of the verdicts; the clock is the test's own."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "verdict.json"

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        made = Clock()
        monkeypatch.setattr(verdict.time, "monotonic", lambda: made.monotonic_s)
        monkeypatch.setattr(verdict.time, "time", lambda: made.wall_s)
        return made

    @pytest.fixture
    def listener(self, path: Path, clock: Clock) -> verdict.Listener:
        return verdict.Listener(path, lambda: clock.monotonic_s)

    def test_the_last_verdict_holds(self, path: Path, listener: verdict.Listener) -> None:
        say(path, ready=False)
        assert listener.objection() == REASON
        say(path, ready=True)
        assert listener.objection() is None

    @pytest.mark.parametrize("ready", [True, False])
    def test_a_silent_probe_makes_the_node_not_ready_after_30_s(
        self, path: Path, listener: verdict.Listener, clock: Clock, ready: bool
    ) -> None:
        """F22: it was ready for ever, and an unhealthy engine became ready by its probe's death."""
        say(path, ready=ready)
        assert listener.objection() == (None if ready else REASON)
        path.unlink()  # systemd takes the probe's folder away with the probe
        clock.pass_s(29)
        assert listener.objection() == (None if ready else REASON)
        clock.pass_s(2)
        assert listener.objection() == verdict.SILENT
        say(path, ready=True)
        assert listener.objection() is None

    def test_a_probe_that_never_speaks_is_silent_30_s_after_the_start(
        self, listener: verdict.Listener, clock: Clock
    ) -> None:
        assert listener.objection() is None
        clock.pass_s(31)
        assert listener.objection() == verdict.SILENT

    @pytest.mark.parametrize("step_s", [-86_400.0, -0.5, 31.0, 86_400.0])
    def test_steps_of_the_wall_clock_change_nothing(
        self, path: Path, listener: verdict.Listener, clock: Clock, step_s: float
    ) -> None:
        """F22: half a second back, or more than 30 s forward, made an unhealthy engine ready."""
        say(path, ready=False)
        clock.wall_s += step_s
        assert listener.objection() == REASON

    def test_a_verdict_of_an_earlier_boot_does_not_count(
        self, path: Path, listener: verdict.Listener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as before:
            before.setattr(verdict, "boot_id", lambda: "the boot before")
            say(path, ready=False)
        assert verdict.read(path) is None
        assert listener.objection() is None


UNIT = ladder.unit_of(0)
REASON = "8 requests and no token for 10 s"


def say(path: Path, *, ready: bool) -> None:
    verdict.write(path, verdict="healthy" if ready else "suspect", ready=ready, reason=REASON, restarts=0)


class Clock:
    """Both clocks of a machine."""

    def __init__(self) -> None:
        self.monotonic_s, self.wall_s = 1_000.0, 1.8e9

    def pass_s(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is all of a unit, stopped as a frozen worker is."""
    process = subprocess.Popen(["sleep", "300"])
    while Path(f"/proc/{process.pid}/comm").read_text(encoding="utf-8") != "sleep\n":
        time.sleep(0.01)  # it takes its name a moment after it has begun
    listing = tmp_path / "cgroup/huddle-vllm@0.service/cgroup.procs"
    listing.parent.mkdir(parents=True)
    listing.write_text(f"{process.pid}\n", encoding="ascii")
    defaults = (ladder.processes, ladder.restart)  # of their last argument, where the kernel lists units
    for function in defaults:
        monkeypatch.setattr(function, "__defaults__", (tmp_path / "cgroup",))
    yield process
    process.kill()
    process.wait()


def test_evidence_names_the_state_of_every_process(unit: subprocess.Popen[bytes], tmp_path: Path) -> None:
    seen = [Reading(1.0, Answer.GIVEN, 5, 2)]
    path = ladder.keep_evidence(tmp_path / "evidence", "no token", seen, UNIT)
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept["reason"] == "no token"
    assert kept["readings"][0]["work"] == 5
    assert [(one["pid"], one["comm"]) for one in kept["processes"]] == [(unit.pid, "sleep")]


def test_old_evidence_goes(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.json").write_text("{}", encoding="utf-8")
    newest = ladder.keep_evidence(tmp_path, "x", [], UNIT)
    assert newest.exists()
    assert len(list(tmp_path.glob("*.json"))) == ladder.KEPT


def test_a_frozen_engine_is_held_back_and_ended_with_evidence(
    fake: FakeEngine, unit: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The whole loop, with limits of the test: counters that stand still while requests run."""
    policy = Policy(interval_s=0.05, suspect_after_s=0.3, unhealthy_after_s=0.8, healthy_after_s=0.1, first_token_s=0.8)
    loop = ProbeLoop(EngineReader("127.0.0.1", fake.port, 5), policy, tmp_path / "v", tmp_path / "evidence", UNIT)
    stop = threading.Event()
    thread = threading.Thread(target=loop.run, args=(stop,))
    thread.start()
    try:
        assert unit.wait(scaled(60)) == -9
    finally:
        stop.set()
        thread.join()
    said = verdict.read(tmp_path / "v")
    assert said is not None
    assert not said.ready
    assert said.restarts >= 1
    assert list((tmp_path / "evidence").glob("*.json"))


def test_each_engine_has_a_probe_with_places_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, ...]] = []
    monkeypatch.setattr(cli, "EngineReader", lambda host, port, _: (host, port))
    monkeypatch.setattr(cli, "ProbeLoop", lambda *parts: made.append(parts) or SimpleNamespace(run=lambda stop: None))
    assert CliRunner().invoke(cli.app, ["--port", "5005", "--copy", "1"]).exit_code == 0
    ((engine, _, file, evidence, unit),) = made
    assert engine == ("127.0.0.1", 5006)
    assert file == Path("/run/huddle-probe/1/verdict.json")
    assert evidence == Path("/var/lib/huddle-probe/1")
    assert unit == "huddle-vllm@1.service"
