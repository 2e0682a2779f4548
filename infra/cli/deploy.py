"""`make preview|up|destroy`: check stack file, Azure login and state backend, run the real `pulumi`, explain failures.

Each thing that is missing ends with one sentence and exit status 2, before Pulumi starts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from huddle.errors import HuddleError
from infra import targets
from infra.cli import edge, stack_secrets
from infra.engine import EngineUnavailableError, PulumiEngine, locate
from infra.engine.versions import ROOT
from infra.operations.failures import Failure
from infra.program import load_plan

EXIT_INPUT = 2
EXIT_NO_ENGINE = 3
EXIT_NOT_READY = 1
SLACK_S = 15
"""More than Azure asks to wait: its clock began before the error came here."""
Wait = Callable[[float], None]


def has_backend(environ: Mapping[str, str]) -> bool:
    """Whether Pulumi knows where to keep the state: by environment, or by an earlier `pulumi login`."""
    if environ.get("PULUMI_BACKEND_URL") or environ.get("PULUMI_ACCESS_TOKEN"):
        return True
    home = Path(environ.get("PULUMI_HOME") or Path(environ.get("HOME") or "/") / ".pulumi")
    try:
        return bool(json.loads((home / "credentials.json").read_text(encoding="utf-8")).get("current"))
    except (OSError, ValueError):
        return False


def no_backend(environ: Mapping[str, str]) -> str | None:
    """What to do where no state backend is chosen; None when one is."""
    if not has_backend(environ):
        return (
            "No state backend: run `make pulumi ARGS='login azblob://CONTAINER?storage_account=NAME'`, "
            "or set PULUMI_BACKEND_URL to the place that keeps the stack's state."
        )
    return None


def unsafe_flag(action: str, flags: Sequence[str]) -> str | None:
    """Without its preview, a destroy deletes all that is not protected before it fails on what is (seen, 3.274.1)."""
    if action == "destroy" and any(flag in ("-f", "--skip-preview") for flag in flags):
        return (
            "--skip-preview is not allowed with destroy: on a protected stack it deletes the nodes and then fails; "
            "leave it out."
        )
    return None


def lack_of_secrets(stack: str, missing: Sequence[str]) -> str | None:
    """A preview changes nothing, so it makes no secrets; and without them the CLI refuses the stack."""
    if not missing:
        return None
    return (
        f"Stack {stack} lacks its secrets ({', '.join(missing)}): run `make up STACK={stack}`, "
        "which makes them, shows the preview and asks before it creates anything."
    )


def run_pulumi(engine: PulumiEngine, command: list[str], stack: str, *, wait: Wait = time.sleep) -> int:
    """Run pulumi on this terminal and, when it fails, say what that means. Exit status: pulumi's own.

    An `up` that Azure lets through a few minutes later is tried once more: it has been confirmed already.
    """
    status, failure = _attempt(engine, command, stack)
    if failure and failure.again_in_s and command[0] == "up":
        pause = failure.again_in_s + SLACK_S
        print(f"Waiting {pause} s, then trying once more (Ctrl-C leaves everything as it is).", file=sys.stderr)
        wait(pause)
        status, _ = _attempt(engine, [*command, "--yes"], stack)
    return status


def _attempt(engine: PulumiEngine, command: list[str], stack: str) -> tuple[int, Failure | None]:
    """One run. An Output used as text is a bug that must not reach a resource: the SDK then raises."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "events.jsonl")
        environment = {
            **engine.environment(),
            "PULUMI_ERROR_OUTPUT_STRING": "1",
            "PULUMI_DEBUG_COMMANDS": "true",  # what makes the event log's flag available
        }
        done = subprocess.run(
            [str(engine.pulumi), *command, "--event-log", str(log)], env=environment, cwd=ROOT, check=False
        )
        failure = meaning(log, stack) if done.returncode else None
        if failure:
            print(f"\n{failure.what}\nNext: {failure.next_step}", file=sys.stderr)
        return done.returncode, failure


def meaning(event_log: Path, stack: str) -> Failure | None:
    """What the errors in an engine's event log mean, where that is known."""
    lines = event_log.read_text(encoding="utf-8").splitlines() if event_log.exists() else []
    diagnostics = [json.loads(line).get("diagnosticEvent") or {} for line in lines if line.strip()]
    errors = [entry["message"] for entry in diagnostics if entry.get("severity") == "error"]
    plan = load_plan(stack)
    return targets.of(plan.target).explain("\n".join(errors), plan) if errors else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, then run pulumi; everything after `--` goes to it."""
    parser = argparse.ArgumentParser(prog="python -m infra.cli.deploy", description=__doc__)
    parser.add_argument("action", choices=["preview", "up", "destroy"])
    parser.add_argument("stack")
    parser.add_argument("flags", nargs="*", help="more flags for pulumi")
    options = parser.parse_args(arguments)
    if problem := unsafe_flag(options.action, options.flags):
        print(problem, file=sys.stderr)
        return EXIT_INPUT
    validate = [ROOT / ".venv/bin/infra", "validate", "-s", options.stack]
    validated = subprocess.run(validate, check=False, stdout=sys.stderr)  # stdout is pulumi's: it may be JSON
    if validated.returncode:
        return validated.returncode
    plan = load_plan(options.stack)
    target = targets.of(plan.target)
    problem = target.obstacle(os.environ) or no_backend(os.environ)
    if options.action == "preview":
        problem = problem or lack_of_secrets(options.stack, stack_secrets.missing_in(ROOT, options.stack))
    if problem:
        print(problem, file=sys.stderr)
        return EXIT_INPUT
    try:
        engine = locate()
    except EngineUnavailableError as error:
        print(error, file=sys.stderr)
        return EXIT_NO_ENGINE
    if options.action == "up":
        try:
            provider = os.environ.get("SECRETS_PROVIDER")
            stack_secrets.prepare(engine, options.stack, engine.environment(), secrets_provider=provider)
        except stack_secrets.StackNotReadyError as error:
            print(error, file=sys.stderr)
            return EXIT_NOT_READY
    if options.action != "preview" and (refused := target.refused_before(options.action, plan)):
        return refused
    print(f"pulumi {options.action} of stack {options.stack} (Pulumi {engine.version})", file=sys.stderr, flush=True)
    # One thing that can't go must not keep a GPU VM alive.
    more = ["--continue-on-error"] if options.action == "destroy" else []
    return run_pulumi(engine, [options.action, "--stack", options.stack, *more, *options.flags], options.stack)


def run() -> int:
    """`main`, where an error ends as its sentences: `infra validate` finds most of them before."""
    try:
        return main()
    except HuddleError as error:
        return edge.say(error)


if __name__ == "__main__":
    sys.exit(run())
