"""Two hosts on one machine, each with a network, mounts, processes and a name of its own.

The namespaces have no names and live as long as their first process, which dies with the test run, however that ends:
nothing can be left behind. A pair of virtual cables joins the two, so traffic never touches another network.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.deadlines import scaled

INSIDE = Path(__file__).parent / "inside"
SERVICE_UID = 4711
_KINDS = ("--mount", "--uts", "--pid", "--ipc")
_NET = "--net"
_STARTS_WITHIN_S = 60.0


@dataclass(frozen=True)
class Host:
    """One of the two. `root` holds its own files under their paths on the host (below opt, mnt, etc, var, run)."""

    name: str
    address: str
    root: Path
    pid: int
    kinds: tuple[str, ...] = (_NET, *_KINDS)

    def argv(self, command: Sequence[str], user: str | None = None) -> list[str]:
        """The words that run a command on the host, as root or another user."""
        entered = ["nsenter", f"--target={self.pid}", *self.kinds, "--"]
        if user is not None:
            group = "nogroup" if user == "nobody" else user
            entered += ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
        return [*entered, *command]

    def run(self, *command: str, user: str | None = None, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; how it ended is the caller's business."""
        argv, limit_s = self.argv(command, user), scaled(timeout_s)
        return subprocess.run(argv, capture_output=True, text=True, timeout=limit_s, check=False)

    def python(self, script: str, *arguments: str, user: str | None = None, timeout_s: float = 300) -> str:
        """What a script of `inside/` prints there. Raises AssertionError when it fails."""
        done = self.run(sys.executable, "-B", str(INSIDE / script), *arguments, user=user, timeout_s=timeout_s)
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout

    def start(self, unit: str) -> subprocess.Popen[bytes]:
        """Start a unit; its output goes to a log that `log` reads."""
        argv = self.argv([sys.executable, "-B", str(INSIDE / "service.py"), unit])
        with self._log(unit).open("ab") as output:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def stop(self, unit: str) -> None:
        """Stop a unit and wait for its end."""
        runner = _facts(self.root, unit)["runner"]
        self.run("kill", "-TERM", str(runner))
        _wait_for(lambda: self.run("test", "-d", f"/proc/{runner}").returncode != 0, f"the end of {unit}")

    def kill_all(self, unit: str) -> None:
        """As a power cut would: the unit and its runner, at once."""
        self.run("/usr/bin/systemctl", "kill", "--signal=KILL", unit)
        self.run("kill", "-KILL", str(_facts(self.root, unit)["runner"]))

    def restarts(self, unit: str) -> int:
        """How often a unit was started again after it had ended by itself."""
        return int(_facts(self.root, unit)["restarts"])

    def log(self, unit: str) -> str:
        """What a unit has said so far."""
        path = self._log(unit)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _log(self, unit: str) -> Path:
        return self.root / f"{unit}.log"


def _facts(root: Path, unit: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((root / "run/units" / f"{unit}.json").read_text(encoding="utf-8"))
    return facts


@contextlib.contextmanager
def two_hosts(folder: Path, names: Sequence[str], addresses: Sequence[str]) -> Iterator[tuple[Host, Host]]:
    """Two hosts that see each other as eth0 sees eth0, in a /24."""
    with contextlib.ExitStack() as stack:
        first, second = (
            stack.enter_context(_host(folder / name, name, at)) for name, at in zip(names, addresses, strict=True)
        )
        _cable(first, second)
        yield first, second


@contextlib.contextmanager
def on_loopback(root: Path, name: str) -> Iterator[Host]:
    """One host with files and processes of its own on this machine's network, for what must be dialled from here."""
    with _host(root, name, "127.0.0.1", _KINDS) as host:
        yield host


@contextlib.contextmanager
def _host(root: Path, name: str, address: str, kinds: tuple[str, ...] = (_NET, *_KINDS)) -> Iterator[Host]:
    assert os.geteuid() == 0, "namespaces with mounts and networks of their own need root"
    root.mkdir(parents=True)
    _etc(root)
    shim = root / "systemctl"
    shim.write_text(
        f"#!{sys.executable} -B\n" + (INSIDE / "systemctl.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    shim.chmod(0o755)
    init = [str(INSIDE / "init.sh"), str(root), name, str(Path.home()), sys.base_prefix]
    holder = subprocess.Popen(
        [
            "setpriv",
            "--pdeathsig=KILL",
            "unshare",
            *kinds,
            "--fork",
            "--mount-proc",
            "--kill-child=KILL",
            "--",
            "bash",
            *init,
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        _wait_for(lambda: (root / "ready").exists() or holder.poll() is not None, f"host {name}")
        assert holder.poll() is None, f"host {name} did not come up (root and namespaces are needed)"
        child = int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()[0])
        yield Host(name, address, root, child, kinds)
    finally:
        holder.kill()  # the host's first process dies with it, and all others with that
        holder.wait()


def _etc(root: Path) -> None:
    """The services' user, whom day 0 makes on a node."""
    (root / "etc").mkdir()
    for name, line in (
        ("passwd", f"huddle:x:{SERVICE_UID}:{SERVICE_UID}::/nonexistent:/usr/sbin/nologin"),
        ("group", f"huddle:x:{SERVICE_UID}:"),
    ):
        known = Path("/etc", name).read_text(encoding="utf-8").splitlines()
        kept = [one for one in known if not one.startswith("huddle:")]
        (root / "etc" / name).write_text("\n".join([*kept, line]) + "\n", encoding="utf-8")


def _cable(first: Host, second: Host) -> None:
    link = ["ip", "link", "add", "eth0", "netns", str(first.pid), "type", "veth"]
    subprocess.run([*link, "peer", "name", "eth0", "netns", str(second.pid)], check=True)
    for host in (first, second):
        for words in (f"address add {host.address}/24 dev eth0", "link set eth0 up"):
            done = host.run("ip", *words.split())
            assert done.returncode == 0, done.stderr


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + scaled(_STARTS_WITHIN_S)
    while not condition():
        assert time.monotonic() < end, f"{what} did not come within {_STARTS_WITHIN_S:.0f} s"
        time.sleep(0.05)


def hand_over(path: Path) -> None:
    """Give a tree to the services' user."""
    for one in (path, *path.rglob("*")):
        shutil.chown(one, SERVICE_UID, SERVICE_UID)
