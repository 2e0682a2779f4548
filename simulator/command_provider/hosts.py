"""Hosts that a rehearsal dials in place of nodes: none is there, nothing runs, each answers as a good node would."""

import base64
import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from simulator.command_provider.command import CommandFailedError, Result, Say

VARIABLE: Final = "SIMULATED_HOSTS"
"""Set, no connection is dialled."""
_SHOWS_ITS_KEY: Final = "ssh-keyscan"
_KIND: Final = b"ssh-ed25519"


def run(command: str, inputs: Mapping[str, Any], _: Mapping[str, str], say: Say) -> Result:
    """What a node prints: its host key when asked for it, else that it serves."""
    say(f"simulated host {inputs['connection']['host']}: nothing is run")
    if _SHOWS_ITS_KEY in command:
        return Result(_host_key(str(inputs["connection"]["host"])), "")
    return Result(json.dumps({"state": "serving", "simulated": True}), "")


def copy(inputs: Mapping[str, Any], say: Say) -> None:
    """Nothing is copied, but what would be must be there."""
    path = inputs["source"].get("path")
    if path is not None and not Path(path).exists():
        msg = f"copying {path}: there is no such file"
        raise CommandFailedError(msg)
    say(f"simulated host {inputs['connection']['host']}: nothing is copied")


def _host_key(host: str) -> str:
    """A line as `ssh-keyscan` prints it; the same host shows the same key, and nobody holds its other half."""
    parts = (_KIND, sha256(host.encode()).digest())
    blob = b"".join(len(part).to_bytes(4) + part for part in parts)
    return f"{_KIND.decode()} {base64.b64encode(blob).decode()}"
