"""Stands in for vllm in the launcher's tests: a tree of processes with the manners that MANNERS names.

polite    finishes its streams on SIGTERM, then ends with 0
titled    the same, and a worker's environment is overwritten, as by vLLM's process titles
busy      has requests for ever, and ends at once on SIGTERM (several API servers)
fronts    has requests when it is first asked, none after that, and ends at once on SIGTERM (several API servers)
stubborn  ignores SIGTERM, and so do its worker and a worker that left the session and its parent (daemonised)
orphans   ends by itself with 0 and leaves both workers behind
crash     ends by itself with 3
killed    dies of SIGKILL
"""

import itertools
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

manners = os.environ["MANNERS"]
main = os.getpid()


def note(text: str) -> None:
    """One line, whole, whoever writes at the same time."""
    descriptor = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def work() -> None:
    """A worker's life."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN if manners in {"stubborn", "orphans"} else signal.SIG_DFL)
    note(f"pid {os.getpid()}")
    if manners == "titled" and os.getsid(0) == main:
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
    while True:
        time.sleep(60)


def drain(*_: object) -> None:
    """What vLLM does with --shutdown-timeout: streams end first."""
    note("draining")
    if manners == "stubborn":
        return
    if manners in {"fronts", "busy"}:
        note("drained")
        os._exit(0)
    time.sleep(0.2)
    note("drained")
    sys.exit(0)


class Metrics(BaseHTTPRequestHandler):
    """Tells how many requests there are: two at first, then one that waits, then none."""

    answers = iter(("2.0 0.0", "0.0 1.0") if manners == "fronts" else itertools.repeat("2.0 0.0"))

    def do_GET(self) -> None:
        """What a scraper gets."""
        running, waiting = next(self.answers, "0.0 0.0").split()
        note(f"asked {running} {waiting}")
        labels = 'engine="0",model_name="m"'
        text = f"vllm:num_requests_running{{{labels}}} {running}\nvllm:num_requests_waiting{{{labels}}} {waiting}\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


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
if manners in {"fronts", "busy"}:
    HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Metrics).serve_forever()
if manners == "crash":
    sys.exit(3)
if manners == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if manners == "orphans":
    sys.exit(0)
while True:
    time.sleep(60)
