"""What a command resource is, wherever it runs: inputs, defaults, differences, which command, which variables."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Any

LOCAL_COMMAND = "command:local:Command"
LOCAL_RUN = "command:local:run"
REMOTE_COMMAND = "command:remote:Command"
REMOTE_COPY = "command:remote:CopyToRemote"

_COMMAND = {
    "create",
    "update",
    "delete",
    "stdin",
    "environment",
    "triggers",
    "logging",
    "addPreviousOutputInEnv",
}
INPUTS = {
    LOCAL_COMMAND: _COMMAND | {"dir", "interpreter"},
    REMOTE_COMMAND: _COMMAND | {"connection"},
    REMOTE_COPY: {"connection", "source", "remotePath", "triggers"},
}
REQUIRED = {LOCAL_COMMAND: set(), REMOTE_COMMAND: {"connection"}, REMOTE_COPY: {"connection", "source", "remotePath"}}
OUTPUTS = {LOCAL_COMMAND: ("stdout", "stderr"), REMOTE_COMMAND: ("stdout", "stderr"), REMOTE_COPY: ()}
TRIGGERS = "triggers"
DIALLING = {"user": "root", "port": 22, "perDialTimeout": 15, "dialErrorLimit": 10}


@unique
class Stage(StrEnum):
    """The three commands of a resource."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True)
class Result:
    """What a command printed, without the last line's end."""

    stdout: str
    stderr: str


class CommandFailedError(RuntimeError):
    """The command ended badly or could not be run; like the real plugin's, the text holds command and output."""


Say = Callable[[str], None]


def with_defaults(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs as the plugin's check hands them back."""
    filled = dict(inputs)
    if kind == REMOTE_COMMAND:
        filled.setdefault("addPreviousOutputInEnv", True)
    if "connection" in filled and isinstance(filled["connection"], Mapping):
        connection = {**DIALLING, **filled["connection"]}
        if isinstance(connection.get("proxy"), Mapping):
            connection["proxy"] = {**DIALLING, **connection["proxy"]}
        filled["connection"] = connection
    return filled


def failures(kind: str, inputs: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Property and reason, for each input that is missing, unknown to the plugin, or left out of this stand-in."""
    for name in sorted(REQUIRED[kind] - set(inputs)):
        yield name, f"missing required property '{name}'"
    for name in sorted(set(inputs) - INPUTS[kind]):
        yield name, f"property '{name}' is not one that this stand-in for pulumi-resource-command knows"
    connection = inputs.get("connection")
    if isinstance(connection, Mapping) and not connection.get("host"):
        yield "connection.host", "missing required property 'host'"


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Names of inputs that differ. The connection is one of them, so a rotated key runs every command again."""
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def command_for(stage: Stage, inputs: Mapping[str, Any]) -> str | None:
    """`update` falls back on `create`; a stage without a command does nothing."""
    if stage is Stage.UPDATE and inputs.get("update") is None:
        stage = Stage.CREATE
    command: str | None = inputs.get(stage)
    return command


def automatic_variables(inputs: Mapping[str, Any], previous: Mapping[str, Any]) -> dict[str, str]:
    """The last run's output, offered to `update` and `delete` unless switched off."""
    if inputs.get("addPreviousOutputInEnv") is False:
        return {}
    named = {"PULUMI_COMMAND_STDOUT": "stdout", "PULUMI_COMMAND_STDERR": "stderr"}
    return {variable: str(previous[key]) for variable, key in named.items() if previous.get(key)}


def failure(command: str, status: str, output: str) -> CommandFailedError:
    """The plugin's sentence: the whole command line and all output, which is why secrets belong on stdin."""
    return CommandFailedError(f'{status}: running "{command}":\n{output}')
