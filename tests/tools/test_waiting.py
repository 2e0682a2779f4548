"""What tests wait with: ports that stay free, deadlines that know the machine, programs that end with the run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from plan.stack_file import ROOT
from tests.conftest import LONGEST_FIRST
from tools import deadlines
from tools.deadlines import scaled, until
from tools.ports import reserve_port


def test_no_port_is_given_twice_also_to_another_process() -> None:
    mine = [reserve_port() for _ in range(50)]
    code = "from tools.ports import reserve_port\nprint([reserve_port() for _ in range(50)])"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    theirs = [int(word) for word in answer.stdout.strip("[]\n").split(",")]
    assert len({*mine, *theirs}) == 100


def test_a_reserved_port_can_be_bound_and_no_connection_takes_it() -> None:
    port = reserve_port()
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert port < lowest
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_used_port_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        taken = used.getsockname()[1]
        monkeypatch.setattr("tools.ports.PORTS", range(taken, taken + 1))
        with pytest.raises(OSError, match="no free port"):
            reserve_port()


def test_a_deadline_grows_with_load_and_on_slow_machines_and_is_never_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for load, slowness, seconds in ((0.0, 0.5, 10), (0.0, 3.0, 30), (7.0, 1.0, 40), (7.0, 2.0, 80), (999.0, 1.0, 200)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        monkeypatch.setattr(deadlines, "_slowness", lambda slowness=slowness: slowness)
        assert scaled(10) == seconds


def test_waiting_in_vain_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "scaled", lambda idle_s: 0.0)
    with pytest.raises(AssertionError, match="never came true: rain"):
        until(lambda: False, "rain")


def test_a_killed_run_leaves_no_program_behind() -> None:
    """Whenever it is killed; neither the program nor what that started in its turn."""
    command = [sys.executable, "-m", "tests.tools.killed_runs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100, "it was killed at many lines"


@pytest.mark.parametrize("start", LONGEST_FIRST)
def test_what_runs_first_is_there(start: str) -> None:
    assert (ROOT / start).exists()
