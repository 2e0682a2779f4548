"""The engine's process tree: who belongs to it, who was left over from an earlier one, how it is ended."""

import ctypes
import os
import signal
from collections.abc import Iterable

import psutil

# In the environment of every process that a launcher started: "<its pid>-<its start>@<slot>". The slot is the place
# that one engine has on a node (workspace and port): neighbours in other slots are nobody's leftovers.
MARK = "HUDDLE_LAUNCH_ID"
_PR_SET_CHILD_SUBREAPER = 36


def mark(slot: str) -> str:
    """This launcher's own mark."""
    return f"{_identity(psutil.Process())}@{slot}"


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none can slip out of the tree (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(main: int) -> None:
    """Collect dead adopted children, but leave `main` to whoever waits for it."""
    while True:
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or dead.si_pid in {0, main}:
            return
        os.waitpid(dead.si_pid, 0)


def tree() -> list[psutil.Process]:
    """Every living descendant of this process."""
    return [process for process in psutil.Process().children(recursive=True) if _alive(process)]


def leftovers(slot: str) -> list[psutil.Process]:
    """Processes that a launcher started in this slot while that launcher is gone.

    vLLM's engine and servers overwrite their environment with a title, and the mark with it: what shares the session
    that a launcher made for its engine belongs to it, too.
    """
    found: dict[int, psutil.Process] = {}
    sessions: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        try:
            sessions.setdefault(os.getsid(process.pid), []).append(process)
            owner, _, place = process.environ().get(MARK, "").partition("@")
        except (psutil.Error, OSError):
            continue  # another user's, or gone
        if place == slot and _alive(process) and not _launcher_lives(owner):
            found[process.pid] = process
    for session in {_session(pid) for pid in found}:
        found |= {process.pid: process for process in sessions.get(session, ()) if _alive(process)}
    return list(found.values())


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each that is still there."""
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def end(processes: list[psutil.Process], grace_s: float) -> list[psutil.Process]:
    """SIGTERM, wait, SIGKILL, wait; returns what is still alive (stuck in the kernel)."""
    send(processes, signal.SIGTERM)
    _, alive = psutil.wait_procs(processes, timeout=grace_s)
    send(alive, signal.SIGKILL)
    _, alive = psutil.wait_procs(alive, timeout=grace_s)
    return alive


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _launcher_lives(owner: str) -> bool:
    pid = owner.partition("-")[0]
    if not pid.isdigit():
        return False
    try:
        return _identity(psutil.Process(int(pid))) == owner
    except psutil.NoSuchProcess:
        return False


def _identity(process: psutil.Process) -> str:
    """A pid alone may be given again; with the start time it is one process."""
    return f"{process.pid}-{process.create_time():.2f}"
