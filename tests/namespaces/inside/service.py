"""Run one unit file as far as systemd's part matters here: `service.py UNIT` inside a host.

Understands instances of a template, EnvironmentFile=, Environment=, LoadCredential=, User=, ExecStartPre=, ExecStart=,
Restart=, RestartSec= and TimeoutStopSec=. The sandbox is systemd's and is tested elsewhere (units' scores, node lab).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

UNITS = Path("/etc/systemd/system")
STATE = Path("/run/units")
CGROUPS = Path("/sys/fs/cgroup/system.slice")
_SUBREAPER = 36


class Unit:
    """A unit file's [Service] section, with specifiers filled in."""

    def __init__(self, name: str) -> None:
        self.name = name
        stem, _, instance = name.removesuffix(".service").rpartition("@")
        template = f"{stem}@.service" if stem else name
        text = (
            (UNITS / template).read_text(encoding="utf-8").replace("%H", socket.gethostname()).replace("%i", instance)
        )
        self._lines = [line.partition("=")[::2] for line in text.splitlines() if "=" in line and line[0] not in "#;"]

    def all(self, key: str) -> list[str]:
        return [value for name, value in self._lines if name == key]

    def last(self, key: str, default: str) -> str:
        return (self.all(key) or [default])[-1]

    def user(self) -> str:
        if self.last("DynamicUser", "no") == "yes":
            return "nobody"
        return self.last("User", "root")

    def environment(self) -> dict[str, str]:
        credentials = STATE / f"{self.name}.credentials"
        found = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "CREDENTIALS_DIRECTORY": str(credentials)}
        for path in self.all("EnvironmentFile"):
            lines = Path(path.removeprefix("-")).read_text(encoding="utf-8").splitlines()
            found |= dict(line.partition("=")[::2] for line in lines if "=" in line)
        for words in self.all("Environment"):
            found |= dict(word.partition("=")[::2] for word in shlex.split(words))
        return found

    def load_credentials(self) -> None:
        folder = STATE / f"{self.name}.credentials"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for entry in self.all("LoadCredential"):
            name, _, source = entry.partition(":")
            (folder / name).write_bytes(Path(source).read_bytes())
            shutil.chown(folder / name, self.user())
            (folder / name).chmod(0o400)
        for key, base in (
            ("CacheDirectory", "/var/cache"),
            ("RuntimeDirectory", "/run"),
            ("StateDirectory", "/var/lib"),
        ):
            for name in self.all(key):
                (Path(base) / name).mkdir(parents=True, exist_ok=True)
                shutil.chown(Path(base) / name, self.user())

    def words(self, command: str, environment: dict[str, str]) -> list[str]:
        """`$NAME` alone becomes several words, `${NAME}` one."""
        words: list[str] = []
        for word in shlex.split(command):
            if re.fullmatch(r"\$\w+", word):
                words += environment.get(word[1:], "").split()
            else:
                words.append(re.sub(r"\$\{(\w+)\}", lambda found: environment.get(found[1], ""), word))
        return words


class Runner:
    """Keeps a unit running until SIGTERM. Its processes are listed where the kernel would list the unit's."""

    def __init__(self, unit: Unit) -> None:
        self._unit, self._stopping = unit, False
        self._restarts = 0

    def run(self) -> int:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGTERM, self._stop)
        while True:
            code = self._once()
            if self._stopping or self._unit.last("Restart", "no") == "no":
                self._tell("inactive" if code == 0 else "failed")
                return code
            self._tell("activating")
            time.sleep(float(self._unit.last("RestartSec", "0.1")))
            self._restarts += 1

    def _once(self) -> int:
        unit, environment = self._unit, self._unit.environment()
        unit.load_credentials()
        for command in unit.all("ExecStartPre"):
            plain = command.lstrip("+-")
            argv = self._as_user(unit.words(plain, environment), privileged="+" in command[:2])
            if not shutil.which(unit.words(plain, environment)[0]) and "-" in command[:2]:
                continue
            if subprocess.run(argv, env=environment, check=False).returncode and "-" not in command[:2]:
                return 1
        command = unit.all("ExecStart")[-1]
        argv = self._as_user(unit.words(command, environment), privileged=False)
        child = subprocess.Popen(argv, env=environment, start_new_session=True, stdin=subprocess.DEVNULL)
        self._tell("active")
        while (code := child.poll()) is None:
            self._list()
            time.sleep(0.5)
        self._end(list(self._family()))
        return code

    def _as_user(self, argv: list[str], *, privileged: bool) -> list[str]:
        user = self._unit.user()
        if privileged or user == "root":
            return argv
        return [
            "setpriv",
            f"--reuid={user}",
            f"--regid={'nogroup' if user == 'nobody' else user}",
            "--clear-groups",
            *argv,
        ]

    def _stop(self, *_: object) -> None:
        self._stopping = True
        for child in psutil.Process().children():
            child.terminate()
        _, left = psutil.wait_procs(list(self._family()), timeout=float(self._unit.last("TimeoutStopSec", "90")))
        self._end(left)

    @staticmethod
    def _family() -> Iterator[psutil.Process]:
        yield from psutil.Process().children(recursive=True)

    @staticmethod
    def _end(left: list[psutil.Process]) -> None:
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue

    def _list(self) -> None:
        listing = CGROUPS / self._unit.name / "cgroup.procs"
        listing.parent.mkdir(parents=True, exist_ok=True)
        fresh = listing.with_suffix(".new")
        fresh.write_text("".join(f"{process.pid}\n" for process in self._family()), encoding="ascii")
        fresh.replace(listing)

    def _tell(self, state: str) -> None:
        facts = {"runner": os.getpid(), "state": state, "restarts": self._restarts}
        fresh = STATE / f".{self._unit.name}.new"
        fresh.write_text(json.dumps(facts), encoding="utf-8")
        fresh.replace(STATE / f"{self._unit.name}.json")


if __name__ == "__main__":
    sys.exit(Runner(Unit(sys.argv[1])).run())
