"""Stands in for vllm in the launcher's tests: a tree of processes with the manners that MANNERS names.

polite    finishes its streams on SIGTERM, then ends with 0
stubborn  ignores SIGTERM, and so do its worker and a worker that left the session and its parent (daemonised)
orphans   ends by itself with 0 and leaves both workers behind
crash     ends by itself with 3
killed    dies of SIGKILL
"""

import os
import signal
import sys
import time
from pathlib import Path

manners = os.environ["MANNERS"]


def note(text: str) -> None:
    """One line, whole, whoever writes at the same time."""
    descriptor = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def work() -> None:
    """A worker's life."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN if manners in {"stubborn", "orphans"} else signal.SIG_DFL)
    note(f"pid {os.getpid()}")
    while True:
        time.sleep(60)


def drain(*_: object) -> None:
    """What vLLM does with --shutdown-timeout: streams end first."""
    note("draining")
    if manners == "stubborn":
        return
    time.sleep(0.2)
    note("drained")
    sys.exit(0)


signal.signal(signal.SIGTERM, drain)
note(f"pid {os.getpid()}")
if os.fork() == 0:
    work()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        work()
    os._exit(0)
while Path(os.environ["NOTES"]).read_text(encoding="utf-8").count("pid ") < 3:
    time.sleep(0.01)
note("ready " + " ".join(sys.argv[1:3]))
if manners == "crash":
    sys.exit(3)
if manners == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if manners == "orphans":
    sys.exit(0)
while True:
    time.sleep(60)
