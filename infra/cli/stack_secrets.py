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

from infra.engine import Engine
from infra.engine.versions import ROOT

TOKEN_BYTES = 32


class StackNotReadyError(RuntimeError):
    """A step of the preparation failed; the CLI has said why."""


def required_secrets(project: Mapping[str, Any]) -> list[str]:
    """The secrets that Pulumi.yaml declares; a secret without a default is required."""
    return sorted(key for key, entry in project["config"].items() if isinstance(entry, dict) and entry.get("secret"))


def missing_secrets(project: Mapping[str, Any], stack_document: Mapping[str, Any]) -> list[str]:
    """Required secrets that the stack file does not hold yet."""
    config = stack_document.get("config") or {}
    return [key for key in required_secrets(project) if f"{project['name']}:{key}" not in config]


def missing_in(root: Path, stack: str) -> list[str]:
    """The same, read from the files."""
    project = yaml.safe_load((root / "Pulumi.yaml").read_text(encoding="utf-8"))
    stack_file = root / project["stackConfigDir"] / f"Pulumi.{stack}.yaml"
    return missing_secrets(project, yaml.safe_load(stack_file.read_text(encoding="utf-8")) or {})


def prepare(
    engine: Engine,
    stack: str,
    environment: Mapping[str, str],
    *,
    secrets_provider: str | None = None,
    root: Path = ROOT,
) -> None:
    """Create the stack if the backend lacks it, then make missing secrets. StackNotReadyError when the CLI refuses.

    The secrets provider counts only when the stack is created: a later change needs `stack change-secrets-provider`.
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
