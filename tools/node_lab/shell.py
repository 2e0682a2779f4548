"""A way into a guest: ssh to its loopback port, one connection kept open. Stands in for Azure's run command."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.deadlines import scaled

CONNECT_S = 600.0
"""An emulated machine takes minutes to boot. All times here are an idle host's."""


class ShellError(Exception):
    """A command in a guest that failed or did not end in time; the text has what it said."""


@dataclass(frozen=True)
class Done:
    """Exit code and output (UTF-8) of a command."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """ssh as the operator of the stack, who may become root."""

    port: int
    user: str
    key: Path
    folder: Path  # for the connection's socket: a short path

    def wait(self, fault: Callable[[], str], timeout_s: float = CONNECT_S) -> None:
        """Wait until the guest lets us in, or `fault` says why it never will.

        Raises:
            ShellError: it does not.
        """
        end = time.monotonic() + scaled(timeout_s)
        while True:
            done = self._ssh("true", "", 90)
            if done.code == 0:
                return
            if why := fault():
                raise ShellError(f"no way in through port {self.port}: {why}")
            if time.monotonic() > end:
                raise ShellError(f"no way in through port {self.port} after {timeout_s:.0f} s: {done.err.strip()}")
            time.sleep(1)

    def run(self, command: str, *, user: str = "root", timeout_s: float = 120, stdin: str = "") -> Done:
        """Run a shell command as a user of the guest, whatever its exit code."""
        become = "sudo -n" if user == "root" else f"sudo -n -u {user}"
        return self._ssh(f"{become} bash -c {shlex.quote(command)}", stdin, timeout_s)

    def out(self, command: str, *, user: str = "root", timeout_s: float = 120, stdin: str = "") -> str:
        """What a command says on stdout.

        Raises:
            ShellError: it failed.
        """
        done = self.run(command, user=user, timeout_s=timeout_s, stdin=stdin)
        if done.code != 0:
            raise ShellError(f"`{command}` ended with {done.code}\n{done.out}\n{done.err}")
        return done.out

    def run_script(self, script: str, timeout_s: float) -> Done:
        """Run a script as Azure's agent does: written to a file of root's, started by /bin/sh."""
        path = "/var/lib/lab-run-command/script.sh"
        command = f"umask 077; mkdir -p {path.rpartition('/')[0]}; cat >{path}; chmod 700 {path}; /bin/sh -c {path}"
        return self.run(command, timeout_s=timeout_s, stdin=script)

    def disconnect(self) -> None:
        """Close the kept connection: the guest goes away."""
        subprocess.run([*self._words(), "-O", "exit", "guest"], capture_output=True, check=False)

    def _words(self) -> list[str]:
        options = {
            "Port": self.port,
            "User": self.user,
            "IdentityFile": self.key,
            "IdentitiesOnly": "yes",
            "HostName": "127.0.0.1",
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "BatchMode": "yes",
            "ConnectTimeout": 60,
            "ServerAliveInterval": 5,
            "ServerAliveCountMax": 24,
            "ControlMaster": "auto",
            "ControlPersist": 600,
            "ControlPath": self.folder / f"c{self.port}",
        }
        return ["ssh", "-F", "none", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]

    def _ssh(self, command: str, stdin: str, timeout_s: float) -> Done:
        try:
            done = subprocess.run(
                [*self._words(), "guest", command],
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=scaled(timeout_s),
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            said = late.output.decode(errors="replace") if isinstance(late.output, bytes) else ""
            return Done(124, said, f"did not end within {timeout_s:.0f} s")
        return Done(done.returncode, done.stdout, done.stderr)
