"""A Pulumi stack's outputs, read with a `pulumi` program. Secrets come through a pipe and are in no argument."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huddle.errors import InputError

TIMEOUT_S = 120.0  # a state backend across the ocean
_NO_STACK = "no stack named "
"""How the pinned Pulumi begins when its backend has no such stack (seen, 3.274.1)."""


class StackOutputsError(InputError):
    """Pulumi did not give the outputs. `reason`: its own words, where it has said why."""

    def __init__(self, sentence: str, reason: str = "") -> None:
        super().__init__(sentence)
        self.reason = reason

    @property
    def no_stack(self) -> bool:
        """Whether the backend has no such stack. Other reasons leave that open."""
        return self.reason.startswith(_NO_STACK)


def read(
    stack: str, environ: Mapping[str, str], *, pulumi: str = "pulumi", cwd: Path | None = None, secrets: bool = True
) -> dict[str, Any]:
    """The outputs of the last `up`. `cwd`: a folder with a Pulumi program, where the stack's name alone needs one.

    Raises:
        StackOutputsError: no such program, no such stack, a state that cannot be read, or no answer in `TIMEOUT_S`.
    """
    line = [pulumi, "stack", "output", "--json", *(["--show-secrets"] if secrets else []), "--non-interactive"]
    env = {"PULUMI_SKIP_UPDATE_CHECK": "true", **environ}
    try:
        answer = subprocess.run(
            [*line, "--stack", stack],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise StackOutputsError(
            f"there is no pulumi on PATH to read the outputs of stack {stack} with; in the project's directory, "
            f"`make pulumi ARGS='stack output --show-secrets -s {stack}'` shows its URL and keys"
        ) from None
    except subprocess.TimeoutExpired:
        raise StackOutputsError(f"pulumi did not give the outputs of stack {stack} within {TIMEOUT_S:g} s") from None
    if answer.returncode:
        lines = [line.strip() for line in answer.stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if line.startswith("error:")), lines[-1] if lines else "it said nothing")
        reason = reason.removeprefix("error: ")
        raise StackOutputsError(f"pulumi cannot read the outputs of stack {stack}: {reason}", reason)
    try:
        outputs = json.loads(answer.stdout or "{}")
    except ValueError:
        outputs = None
    if not isinstance(outputs, dict):
        raise StackOutputsError(f"pulumi's outputs of stack {stack} are not a JSON object")
    return outputs
