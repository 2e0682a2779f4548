"""Run a Pulumi program in a process of its own, as the official host does."""

import json
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import language_pb2

from simulator.language_host.environment import EnvironmentNotUsableError, PythonEnvironment

LAUNCHER = "pulumi-language-python-exec"
# The launcher's exit status after it has shown its error to the user itself.
ALREADY_REPORTED = 32


def project_environment(info: language_pb2.ProgramInfo) -> PythonEnvironment:
    """The Python that the project asks for. EnvironmentNotUsableError when there is none."""
    options: dict[str, Any] = MessageToDict(info.options)
    return PythonEnvironment.of_project(Path(info.root_directory), options)


def launch_command(request: language_pb2.RunRequest, interpreter: Path, launcher: Path, engine: str) -> list[str]:
    """The launcher's command line. Config is not on it: secrets never belong in a process list."""
    settings = {
        "monitor": request.monitor_address,
        "engine": engine,
        "project": request.project,
        "root_directory": request.info.root_directory,
        "stack": request.stack,
        "organization": request.organization,
        "pwd": request.pwd or request.info.program_directory,
        "parallel": str(request.parallel),
        "dry_run": "true" if request.dryRun else "false",
    }
    flags = [part for name, value in settings.items() if value for part in (f"--{name}", value)]
    program = Path(request.info.program_directory) / request.info.entry_point
    return [str(interpreter), "-u", str(launcher), *flags, str(program), *request.args]


def config_variables(request: language_pb2.RunRequest) -> dict[str, str]:
    """Where Pulumi's Python SDK looks for the stack's configuration."""
    return {
        "PULUMI_CONFIG": json.dumps(dict(request.config)),
        "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
    }


def find_launcher() -> Path:
    """The launcher lies beside the CLI, whose folder infra/engine puts on PATH. EnvironmentNotUsableError if not."""
    found = shutil.which(LAUNCHER)
    if found is None:
        msg = f"{LAUNCHER} is not on PATH; start pulumi by `make` or `python -m infra.engine run -- …`"
        raise EnvironmentNotUsableError(msg)
    return Path(found)


class ProgramRunner:
    """Starts programs and ends those still running when the engine cancels or goes away."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def run(self, request: language_pb2.RunRequest) -> language_pb2.RunResponse:
        """Run to the end. Its output goes to this process' own, which the engine shows line by line."""
        try:
            environment = project_environment(request.info)
            command = launch_command(request, environment.interpreter, find_launcher(), self._engine)
        except EnvironmentNotUsableError as error:
            return language_pb2.RunResponse(error=str(error))
        variables = {**environment.variables(), **config_variables(request)}
        with subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, cwd=request.pwd or None) as process:
            with self._lock:
                self._running.add(process)
            status = process.wait()
            with self._lock:
                self._running.discard(process)
        return response_for(status)

    def cancel(self) -> None:
        """Ask running programs to end."""
        with self._lock:
            for process in self._running:
                process.send_signal(signal.SIGTERM)


def response_for(status: int) -> language_pb2.RunResponse:
    """Bail means: failed, and the reason has been shown; otherwise the exit status is all that is known."""
    if status == 0:
        return language_pb2.RunResponse()
    if status == ALREADY_REPORTED:
        return language_pb2.RunResponse(bail=True)
    cause = f"signal {-status}" if status < 0 else f"exit status {status}"
    return language_pb2.RunResponse(error=f"the Python program ended with {cause}")
