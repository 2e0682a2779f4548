"""What is measured: the backend direct, nginx, a bare relay, our wrapper, LiteLLM. Each runs alone."""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template

from infra.engine.cache import cache_root
from tools.ports import reserve_port
from tools.venvs import pinned_venv

HERE = Path(__file__).parent
KEY = "backend-key-of-the-bench"
ABUSER_KEY = "key-of-the-abuser-of-the-bench"
PROMPT = "You are Huddle, a careful assistant. Answer in the language of the question."
LITELLM = "1.110.2"
EXTRA_EVENTS = {"litellm": 1}  # it sends the finish reason as an event of its own


@dataclass(frozen=True)
class Subject:
    """A running proxy: its port, and the processes whose CPU and memory are its own."""

    name: str
    port: int
    pids: tuple[int, ...]


@contextlib.contextmanager
def backend(chunks: int, interval_ms: float) -> Iterator[int]:
    """Run the fake backend; gives its port on 127.0.0.1."""
    port = reserve_port()
    argv = [sys.executable, str(HERE / "backend.py"), "--port", str(port)]
    with running([*argv, "--chunks", str(chunks), "--interval-ms", str(interval_ms)], port, 10):
        yield port


@contextlib.contextmanager
def subject(name: str, backend_port: int, directory: Path, workers: int, model: str = "bench") -> Iterator[Subject]:
    """Start one subject in front of the backend.

    Raises:
        ValueError: no subject has this name.
    """
    port = reserve_port()
    places = {"port": port, "backend_port": backend_port, "directory": directory, "workers": workers, "model": model}
    if name == "direct":
        yield Subject(name, backend_port, ())
        return
    if name == "nginx":
        argv = ["nginx", "-p", str(directory), "-c", str(_render("nginx.conf", directory, places))]
    elif name == "wrapper":
        (directory / "prompt.txt").write_text(PROMPT)
        places |= {"metrics_port": reserve_port(), "key_sha256": _digest(KEY), "abuser_sha256": _digest(ABUSER_KEY)}
        program = str(Path(sys.executable).with_name("huddle"))
        argv = [program, "wrapper", "--config", str(_render("wrapper.yaml", directory, places))]
    elif name == "relay":
        argv = [sys.executable, str(HERE / "relay.py"), str(port), str(backend_port)]
    elif name == "litellm":
        python = pinned_venv.ensure(cache_root() / f"litellm-{LITELLM}", HERE / "litellm.lock")
        program = str(python.with_name("litellm"))
        configuration = str(_render("litellm.yaml", directory, places))
        argv = [program, "--config", configuration, "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    else:
        raise ValueError(f"no subject is called {name!r}")
    with running(argv, port, 120, log=directory / f"{name}.log") as pid:
        time.sleep(1)
        yield Subject(name, port, (pid, *_children(pid)))


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def available(name: str) -> str | None:
    """Why a subject cannot run here; None when it can."""
    if name == "nginx" and shutil.which("nginx") is None:
        return "nginx is not installed (Debian: nginx-light)"
    return None


def cpu_s(pids: tuple[int, ...]) -> float:
    """CPU seconds (user and system) that processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def rss_mib(pids: tuple[int, ...]) -> float:
    """Resident memory of processes (MiB)."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _children(pid: int) -> tuple[int, ...]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in path.read_text().split()]
    return tuple(found) + tuple(grandchild for child in found for grandchild in _children(child))


def _render(name: str, directory: Path, places: dict[str, object]) -> Path:
    text = Template((HERE / f"{name}.template").read_text()).substitute(places)
    path = directory / name
    path.write_text(text)
    return path


@contextlib.contextmanager
def running(argv: list[str], port: int, ready_s: float, log: Path | None = None) -> Iterator[int]:
    """Run a program that listens on a port of 127.0.0.1 until the end of the block; gives its process id."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with (log or Path(os.devnull)).open("w") as output:
        # A process group, not a session: Linux shares the CPU between sessions first (autogroups), which would
        # give each subject a different part of a busy machine.
        started = subprocess.Popen(argv, stdout=output, stderr=output, env=environment, process_group=0)
        try:
            _wait_for(port, ready_s, started, log)
            yield started.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM)
            try:
                started.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()


def _wait_for(port: int, seconds: float, process: subprocess.Popen[bytes], log: Path | None) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    tail = log.read_text()[-2000:] if log else ""
    raise RuntimeError(f"{process.args!r} did not come up on port {port}: {tail}")
