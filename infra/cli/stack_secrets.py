"""The first `make up` of a stack: create it in the backend and give it the secrets that it lacks.

Generated values go to the CLI on stdin, never into arguments, and into the stack file only encrypted.
"""

import json
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.engine import PulumiEngine
from infra.engine.versions import ROOT
from plan.stack_file import PROJECT, path_of
from plan.targets import DEFAULT, required_secrets

TOKEN_BYTES = 32


class StackNotReadyError(RuntimeError):
    """A step of the preparation failed; the CLI has said why."""


def missing_secrets(document: Mapping[str, Any]) -> list[str]:
    """The secrets that the stack file's target requires and the file does not hold yet."""
    config = document.get("config") or {}
    target = config.get(f"{PROJECT}:target", DEFAULT)
    return [key for key in required_secrets(target) if f"{PROJECT}:{key}" not in config]


def missing_in(root: Path, stack: str) -> list[str]:
    """The same, read from the (already validated) file."""
    return missing_secrets(yaml.safe_load(path_of(stack, root).read_text(encoding="utf-8")) or {})


def prepare(
    engine: PulumiEngine,
    stack: str,
    environment: Mapping[str, str],
    *,
    secrets_provider: str | None = None,
    root: Path = ROOT,
) -> None:
    """Create the stack if the backend lacks it, then make missing secrets.

    The secrets provider counts only when the stack is created: a later change needs `stack change-secrets-provider`.

    Raises:
        StackNotReadyError: the CLI refuses; it says why.
    """

    def pulumi(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        answer = subprocess.run(
            [engine.pulumi, *arguments], cwd=root, env=dict(environment), text=True, check=False, **options
        )
        if answer.returncode:
            msg = f"`pulumi {' '.join(arguments[:2])}` failed for stack {stack} (its message is above)"
            raise StackNotReadyError(msg)
        return answer

    listed = json.loads(pulumi("stack", "ls", "--json", stdout=subprocess.PIPE).stdout)
    if stack not in {str(entry["name"]).rsplit("/", 1)[-1] for entry in listed}:
        chosen = ["--secrets-provider", secrets_provider] if secrets_provider else []
        pulumi("stack", "init", stack, "--no-select", *chosen, stdout=sys.stderr)
    for key in missing_in(root, stack):
        print(f"making secret {key} of stack {stack}", file=sys.stderr, flush=True)
        pulumi("config", "set", "--secret", key, "--stack", stack, input=secrets.token_urlsafe(TOKEN_BYTES))
