"""Generates a stack's secrets into its encrypted config. Values travel on stdin, never in an argument."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra import stack_file
from infra.errors import Fault, InputError
from infra.settings import OPTIONAL_SECRET_KEYS, SECRET_KEYS

TOKEN_BYTES = 32


@dataclass(frozen=True)
class Wanted:
    """Which secrets to write, and why."""

    missing: tuple[str, ...]
    rotated: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys to write."""
        return (*self.missing, *self.rotated)


def wanted(config: Mapping[str, object], rotate: Iterable[str], file: str) -> Wanted:
    """What has to be generated: the required secrets a stack lacks, and those that were asked for anew. Pure.

    Raises:
        InputError: a name is not a generated secret.
    """
    generated = [key for key in SECRET_KEYS if key not in OPTIONAL_SECRET_KEYS]
    asked = tuple(dict.fromkeys(rotate))
    for key in asked:
        if key not in generated:
            raise InputError(Fault(file, key, f"is not a generated secret; allowed: {', '.join(generated)}"))
    missing = stack_file.missing_secrets(config)
    return Wanted(missing=tuple(missing), rotated=tuple(key for key in asked if key not in missing))


def write(keys: Iterable[str], stack: str, pulumi: Path, environment: Mapping[str, str], root: Path) -> None:
    """Give each key a new random value in the stack's encrypted config.

    Raises:
        InputError: Pulumi refused (no such stack, no passphrase); its own words are passed on.
    """
    for key in keys:
        command = [str(pulumi), "config", "set", "--secret", f"{stack_file.PROJECT}:{key}", "--stack", stack]
        done = subprocess.run(
            command,
            input=secrets.token_urlsafe(TOKEN_BYTES),
            capture_output=True,
            text=True,
            env=dict(environment),
            cwd=root,
            check=False,
        )
        if done.returncode != 0:
            reason = " ".join(done.stderr.split()) or "Pulumi gave no reason"
            raise InputError(Fault(f"stacks/Pulumi.{stack}.yaml", key, f"could not be set: {reason}"))
