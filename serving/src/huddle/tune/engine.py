"""One engine, started as a node starts it, put under load and stopped, with nothing left behind."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import psutil

from huddle.engine import query
from huddle.errors import InputError
from huddle.launch import processes, supervise
from huddle.launch.prepare import Prepared, preflight
from huddle.registry.schema import Level
from huddle.tune import stops, workload
from huddle.tune.load import Load, Target, text
from huddle.tune.workload import Reading, Workload

_MEMORY_BACK_S = 30
_PROBES = (200, 600)  # letters
_REASON = re.compile(r"\b\w*(?:Error|Exception): .+|huddle: .+|error: .+")
_MOST_OF_A_REASON = 300


class EngineFailed(Exception):  # noqa: N818 - it is what is said of a candidate, not a fault of ours
    """An engine did not start, or did not answer as it must."""


@dataclass(frozen=True)
class Place:
    """Where an engine listens, and the name that its model has there."""

    port: int
    model: str


def settle(prepared: Prepared) -> None:
    """Wait until the last engine has given its memory and its port back.

    Raises:
        HuddleError: they are held by somebody else.
    """
    end = time.monotonic() + _MEMORY_BACK_S
    while True:
        try:
            preflight(prepared, clear_leftovers=False)
            return
        except InputError:
            if time.monotonic() > end:
                raise
        time.sleep(0.5)


@contextmanager
def running(argv: Sequence[str], env: Mapping[str, str], log: Path, place: Place, deadline_s: float) -> Iterator[float]:
    """An engine that answers; gives the seconds that it took. Its output is in `log`.

    Raises:
        EngineFailed: it ended, or was not ready in time.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    process: psutil.Popen | None = None
    with log.open("wb") as output:
        try:
            with stops.deferred():
                process = _start(argv, env, output)
            yield _ready(process, log, place, deadline_s)
        finally:
            try:
                with stops.deferred():
                    _stop(process)
            finally:  # a stop that came right before it was deferred; another one cannot come
                _stop(process)


def measure(place: Place, load: Load, wanted: Workload) -> Reading:
    """Put an engine under one load."""
    try:
        target = _target(place, wanted)
        most = max(wanted.levels)
        _level(load, replace(target, max_tokens=16), most, most)  # warm: connections, caches, kernels
        return Reading(
            levels=tuple(_level(load, target, streams, wanted.requests(streams)) for streams in wanted.levels)
        )
    except (EngineFailed, *query.UNREACHABLE) as error:
        return Reading(failed=str(error) or type(error).__name__)


def _level(load: Load, target: Target, streams: int, requests: int) -> Level:
    samples = load.run(target, streams, requests)
    if errors := [sample.error for sample in samples if sample.error]:
        raise EngineFailed(f"{len(errors)} of {requests} answers failed at {streams} streams: {errors[0]}")
    return workload.level(streams, samples)


def _target(place: Place, wanted: Workload) -> Target:
    """The load in letters: how many make a token is the tokenizer's affair, so the engine is asked to count some."""
    short, long = (_count(place, text(letters, letters)) for letters in _PROBES)
    each = (long - short) / (_PROBES[1] - _PROBES[0])
    if each <= 0:
        raise EngineFailed("the engine's prompt_tokens do not grow with the prompt")
    shared = min(workload.SHARED_TOKENS, wanted.input_tokens // 2)
    template = max(0.0, short - _PROBES[0] * each)
    letters = max(1, round((wanted.input_tokens - shared - template) / each))
    start = text(round(shared / each), 0)
    return Target(place.port, place.model, max_tokens=wanted.output_tokens, letters=letters, shared=start)


def _count(place: Place, prompt: str) -> int:
    body = {"model": place.model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 1}
    status, answer = query.request(("127.0.0.1", place.port), "/v1/chat/completions", body, timeout_s=120)
    found = re.search(r'"prompt_tokens": ?(\d+)', answer)
    if status != 200 or not found:
        raise EngineFailed(f"the first question was answered with {status}: {answer[:200]}")
    return int(found[1])


def _start(argv: Sequence[str], env: Mapping[str, str], output: IO[bytes]) -> psutil.Popen:
    """In a session of its own: Ctrl-C is for us, and we stop it in order."""
    return psutil.Popen(list(argv), env=dict(env), stdout=output, stderr=subprocess.STDOUT, start_new_session=True)


def _ready(process: psutil.Popen, log: Path, place: Place, deadline_s: float) -> float:
    began = time.monotonic()
    while (took := time.monotonic() - began) < deadline_s:
        if process.poll() is not None:
            raise EngineFailed(reason(log.read_text(encoding="utf-8", errors="replace"), process.returncode))
        with suppress(*query.UNREACHABLE):
            if query.request(("127.0.0.1", place.port), "/health", timeout_s=5)[0] == 200:
                return took
        time.sleep(0.1)
    raise EngineFailed(f"not ready after {deadline_s:g} s")


def _stop(process: psutil.Popen | None) -> None:
    """The whole tree, a launcher's and plain vLLM's alike; nothing where it is down already."""
    if process is None or process.poll() is not None:
        return
    tree: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        tree = process.children(recursive=True)
        process.send_signal(signal.SIGTERM)
    with suppress(psutil.TimeoutExpired):
        process.wait(supervise.longest_stop_s(0))
    processes.end([one for one in (process, *tree) if one.is_running()], supervise.KILL_GRACE_S)


def reason(log: str, code: int) -> str:
    """Why an engine ended, from its output: the first error is the cause of the others."""
    found = _REASON.search(log)
    return (found[0] if found else f"it ended with exit code {code}")[:_MOST_OF_A_REASON].strip()
