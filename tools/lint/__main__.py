"""`make lint`: every check in turn, one line each; the output of those that fail; exit status 1 when any did."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from huddle import versions
from infra.engine import EngineUnavailableError
from infra.engine.cache import cache_root
from infra.engine.go_build import build_tool
from infra.engine.versions import ROOT
from tools import engines
from tools.lint import check_tree

BIN = ROOT / ".venv" / "bin"
SHEBANG = re.compile(r"#!(?:/usr)?/bin/(?:env )?(?:ba)?sh\b")
SHELL_MARK = "# shellcheck shell="
YAML_SUFFIXES = {".yaml", ".yml"}
HEAD_LINES = 5


@dataclass(frozen=True)
class Outcome:
    """What a check printed, and whether it found nothing wrong."""

    passed: bool
    output: str


def is_shell(path: Path) -> bool:
    """A script by suffix or first line, or a template that says `# shellcheck shell=…` near its top."""
    try:
        head = path.read_text(encoding="utf-8").splitlines()[:HEAD_LINES]
    except (UnicodeDecodeError, OSError):
        return False
    if any(line.strip().startswith(SHELL_MARK) for line in head):
        return True
    is_template = path.suffix == ".j2" or any("{%" in line or "{{" in line for line in head)
    return not is_template and (path.suffix == ".sh" or bool(head and SHEBANG.match(head[0])))


def is_yaml(path: Path) -> bool:
    """YAML that is data; templates become YAML only when they are rendered."""
    return path.suffix in YAML_SUFFIXES and "templates" not in path.parts


def run(*command: str | Path) -> Outcome:
    """One tool over the tree."""
    answer = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)
    return Outcome(answer.returncode == 0, answer.stdout + answer.stderr)


def run_over(command: Sequence[str | Path], files: Sequence[Path]) -> Outcome:
    """One tool over the files it is for; a tree without such files passes."""
    return run(*command, *files) if files else Outcome(passed=True, output="")


def actionlint(workflows: Sequence[Path]) -> Outcome:
    """Built from its Go module (seconds, once); a machine on which it cannot be built fails the check, and says why."""
    try:
        program = build_tool(
            ROOT / "tools" / "lint" / "actionlint", "github.com/rhysd/actionlint/cmd/actionlint", cache_root(), say
        )
    except EngineUnavailableError as error:
        return Outcome(passed=False, output=str(error))
    return run_over([program, "-no-color"], workflows)


def tree_rules() -> Outcome:
    """The project's own rules for committed files."""
    findings = check_tree.check(check_tree.tracked_files(ROOT), ROOT)
    lines = [str(finding) for finding in findings]
    return Outcome(not any(finding.is_error for finding in findings), "\n".join(lines))


def engine_table() -> Outcome:
    """Every engine of the table has run here, and every field of its requests is judged."""
    found = list(engines.findings(versions.load()))
    return Outcome(not found, "\n".join(found))


def checks() -> list[tuple[str, Callable[[], Outcome]]]:
    """Name and action of every check, quick ones first."""
    files = check_tree.tracked_files(ROOT)
    shell = [path for path in files if is_shell(path)]
    yaml = [path for path in files if is_yaml(path)]
    workflows = [path for path in yaml if path.parent == ROOT / ".github" / "workflows"]
    return [
        ("ruff check", lambda: run(BIN / "ruff", "check", "--quiet", "--output-format", "concise", ".")),
        ("ruff format", lambda: run(BIN / "ruff", "format", "--check", "--quiet", "--output-format", "concise", ".")),
        ("imports", lambda: run(BIN / "lint-imports", "--no-logo", "--no-cache")),
        ("tree rules", tree_rules),
        ("engine table", engine_table),
        (f"yamllint ({len(yaml)} files)", lambda: run_over([BIN / "yamllint", "--strict"], yaml)),
        (f"shellcheck ({len(shell)} files)", lambda: run_over(["shellcheck", "--external-sources"], shell)),
        (f"actionlint ({len(workflows)} files)", lambda: actionlint(workflows)),
        ("mypy", lambda: run(BIN / "mypy")),
    ]


def say(text: str) -> None:
    """Print one line of progress at once."""
    print(text, flush=True)


def main() -> int:
    """Run all checks, also after one has failed."""
    failed = []
    for name, action in checks():
        started = time.monotonic()
        outcome = action()
        say(f"{'ok    ' if outcome.passed else 'FAILED'} {name} ({time.monotonic() - started:.1f} s)")
        if outcome.output.strip() and (not outcome.passed or name == "tree rules"):
            say("    " + outcome.output.strip().replace("\n", "\n    "))
        if not outcome.passed:
            failed.append(name)
    say(f"lint failed: {', '.join(failed)}" if failed else "lint passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
