"""Running the machine's own programs: by name, with a deadline, never through a shell."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..failure import ApplyError

LOG_LINES = 40
SERVICE_USER = "huddle"


def countdown(deadline_s: float) -> Callable[[], float]:
    """What is left of a time that several commands share, in seconds; at least one, so that each is tried."""
    end = time.monotonic() + deadline_s
    return lambda: max(end - time.monotonic(), 1.0)


def run(argv: Sequence[str], *, deadline_s: float, env: Mapping[str, str] | None = None) -> str:
    """Run a program and return its output.

    Raises:
        ApplyError: it cannot be started, does not end in time or ends with an error; with the end of what it said.
    """
    shown = " ".join(argv[:3])
    done: subprocess.CompletedProcess[str]
    try:
        done = _said(argv, deadline_s, subprocess.STDOUT, {**os.environ, **(env or {})})
    except OSError as error:
        raise ApplyError(f"`{shown}` cannot be started: {error.strerror or error}") from error
    except subprocess.TimeoutExpired as error:
        said = error.output.decode(errors="replace") if isinstance(error.output, bytes) else error.output or ""
        raise ApplyError(f"`{shown}` did not end within {deadline_s:.0f} s", tail(said)) from error
    if done.returncode != 0:
        last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "it said nothing")
        raise ApplyError(f"`{shown}` failed with exit code {done.returncode}: {last.strip()}", tail(done.stdout))
    return done.stdout


def stream(argv: Sequence[str], *, deadline_s: float, env: Mapping[str, str] | None = None) -> None:
    """Run one of our own programs as the services' user; its progress goes to our output.

    Raises:
        ApplyError: with the last line of its stderr, where our programs say in one sentence what is wrong.
    """
    everything = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(
            argv,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=deadline_s,
            env=everything,
            check=False,
            **_service_user(),
        )
    except subprocess.TimeoutExpired as error:
        raise ApplyError(f"did not end within {deadline_s:.0f} s; what is done is kept, apply again") from error
    if done.returncode != 0:
        *log, sentence = done.stderr.strip().splitlines() or ["it said nothing"]
        raise ApplyError(sentence, tail("\n".join(log)))


def output(argv: Sequence[str], *, deadline_s: float) -> str | None:
    """What a program says on stdout, however it ends; None when there is no such program or it does not end in time."""
    try:
        done = _said(argv, deadline_s, subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout


def succeeds(argv: Sequence[str], *, deadline_s: float) -> bool:
    """Whether a program ends well."""
    try:
        run(argv, deadline_s=deadline_s)
    except ApplyError:
        return False
    return True


def _said(
    argv: Sequence[str], deadline_s: float, stderr: int, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A program's end, and what it said on stdout; without `env`, it runs in ours."""
    return subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        stderr=stderr,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        timeout=deadline_s,
        env=env,
        check=False,
    )


def tail(text: str, lines: int = LOG_LINES) -> str:
    """The last lines of a log."""
    return "\n".join(text.splitlines()[-lines:])


def become_service_user() -> None:
    """Be the services' user from here on."""
    drop = _service_user()
    if drop:
        os.setgroups(drop["extra_groups"])
        os.setgid(drop["group"])
        os.setuid(drop["user"])


@contextmanager
def as_service_user() -> Iterator[None]:
    """Be the services' user for a while: in directories that are theirs, root must not follow links that they made."""
    drop = _service_user()
    groups = os.getgroups()
    if drop:
        os.setgroups(drop["extra_groups"])
        os.setegid(drop["group"])
        os.seteuid(drop["user"])
    try:
        yield
    finally:
        if drop:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)


def _service_user() -> dict[str, Any]:
    """Drop to the services' user, where this is root and the user exists."""
    try:
        entry = pwd.getpwnam(SERVICE_USER)
    except KeyError:
        return {}
    if os.geteuid() != 0:
        return {}
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
