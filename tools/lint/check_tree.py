"""The project's own rules for committed files: nothing that ties it to one machine or network, no bad habits."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from infra.engine.versions import ROOT

LARGEST_MODULE_LINES = 400
LARGEST_FILE_BYTES = 1_000_000
FORBIDDEN_NAMES = {
    "uv.lock": "names a registry's host in every entry; locks here are requirements/*.lock",
    "poetry.lock": "the project's locks are requirements/*.lock",
    "Pipfile.lock": "the project's locks are requirements/*.lock",
    "package-lock.json": "names a registry's host in every entry",
    "yarn.lock": "names a registry's host in every entry",
}

# Spelled in parts so that this file passes its own rules.
_HOSTS = (
    r"(?:test\.)?py" r"pi\.org",
    r"files\.python" r"hosted\.org",
    r"registry\.npm" r"js\.org",
    r"registry\.yarn" r"pkg\.com",
    r"proxy\.go" r"lang\.org",
    r"sum\.go" r"lang\.org",
    r"(?:deb|security|snapshot)\.debian" r"\.org",
    r"repo1?\.maven" r"\.(?:apache\.)?org",
    r"(?:static|index)\.cra" r"tes\.io",
    r"download\.py" r"torch\.org",
)
REGISTRY_HOST = re.compile("|".join(_HOSTS))
# Paths of the nodes are the project's own business: their administrator's home, root's SSH files.
MACHINE_PATH = re.compile(
    r"(?<![\w.${}~-])/(?:ro" r"ot/(?!\.ssh)|wo" r"rk/|home/(?!huddle/|azureuser/)[a-z][\w-]*/|Users/[A-Za-z]\w*/)[\w.-]"
)
REMINDER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
SKIP = re.compile(
    r"pytest\.(?:mark\.)?(?:sk" r"ip|sk" r"ipif|xf" r"ail|import" r"orskip)\b|unittest\.sk" r"ip|@sk" r"ip"
)
INDEX_OPTION = re.compile(r"^\s*(?:-i|--index-url|--extra-index-url|-f|--find-links|--trusted-host)\b|@ https?://")
# Files and modules of ours that a document names. "then `tools/old.py`" says that it was called so once.
NAMED_FILE = re.compile(r"(?<!\bthen )`((\w+)/[\w./-]+\.(?:md|py|sh|toml|yaml))\b")
NAMED_MODULE = re.compile(
    r"(?<!\bthen )`(?:python -m )?((?:cloud_init|components|gateway_policies|huddle|infra|simulator|tools)(?:\.\w+)+)"
)
LOCKED_PACKAGE = re.compile(r"^[A-Za-z0-9][\w.\[\],-]*==")


@dataclass(frozen=True)
class Finding:
    """A place and what is wrong there; a warning is told but does not fail the check."""

    path: Path
    line: int
    text: str
    is_error: bool = True

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{place}: {'' if self.is_error else 'warning: '}{self.text}"


Rule = Callable[[Path, str], Iterator[Finding]]


def no_registry_host(path: Path, text: str) -> Iterator[Finding]:
    """The tools' own settings say where packages come from, never a committed file."""
    yield from _matches(REGISTRY_HOST, path, text, "names a package registry's host")


def no_machine_path(path: Path, text: str) -> Iterator[Finding]:
    """A path that exists on one machine only."""
    yield from _matches(MACHINE_PATH, path, text, "names a path of one machine")


def no_reminder(path: Path, text: str) -> Iterator[Finding]:
    """Open ends belong in issues."""
    yield from _matches(REMINDER, path, text, "leaves a reminder in the code")


def no_skipped_test(path: Path, text: str) -> Iterator[Finding]:
    """A test that does not run proves nothing."""
    if path.suffix == ".py" and "tests" in path.parts:
        yield from _matches(SKIP, path, text, "leaves a test out")


def whole_lock(path: Path, text: str) -> Iterator[Finding]:
    """Every package of a lock has a hash, and no line says where to download from."""
    if path.suffix != ".lock":
        return
    yield from _matches(INDEX_OPTION, path, text, "a lock must not hold an index address")
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if LOCKED_PACKAGE.match(line):
            following = lines[number] if number < len(lines) else ""
            if "--hash=" not in line + following:
                yield Finding(path, number, f"{line.split()[0]} has no hash")


def small_module(path: Path, text: str) -> Iterator[Finding]:
    """A module that grows past this has more than one reason to change."""
    count = text.count("\n")
    if path.suffix == ".py" and count > LARGEST_MODULE_LINES:
        yield Finding(path, 0, f"{count} lines; {LARGEST_MODULE_LINES} is the aim", is_error=False)


def no_name_of_what_is_gone(path: Path, text: str) -> Iterator[Finding]:
    """A document names files and modules that exist; a path may leave out its first folders."""
    if path.suffix != ".md":
        return
    for number, line in enumerate(text.splitlines(), start=1):
        gone = [name for name, folder in NAMED_FILE.findall(line) if folder in _folders() and name not in _endings()]
        gone += [name for name in NAMED_MODULE.findall(line) if not _is_in_a_module(name)]
        yield from (Finding(path, number, f"names what does not exist: {name}") for name in gone)


@cache
def _endings() -> Mapping[str, Path]:
    """The files of this tree by every ending of their paths: `a/b.py` and `b.py`."""
    files = tracked_files(ROOT)
    return {
        "/".join(parts[n:]): file
        for file in files
        for parts in [file.relative_to(ROOT).parts]
        for n in range(len(parts))
    }


@cache
def _folders() -> frozenset[str]:
    return frozenset(part for file in tracked_files(ROOT) for part in file.relative_to(ROOT).parts[:-1])


def _is_in_a_module(name: str) -> bool:
    """Whether a dotted name is a module, or stands in the last module on its way."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        stem = "/".join(parts[:length])
        file = _endings().get(f"{stem}.py") or _endings().get(f"{stem}/__init__.py")
        if file:
            inside = parts[length : length + 1]
            return not inside or re.search(rf"\b{inside[0]}\b", file.read_text(encoding="utf-8")) is not None
    return False


RULES: tuple[Rule, ...] = (
    no_registry_host,
    no_machine_path,
    no_reminder,
    no_skipped_test,
    no_name_of_what_is_gone,
    whole_lock,
    small_module,
)


def check(files: Iterable[Path], root: Path) -> list[Finding]:
    """Findings in *files*, told relative to *root*."""
    findings: list[Finding] = []
    for file in files:
        path = file.relative_to(root)
        if path.name in FORBIDDEN_NAMES:
            findings.append(Finding(path, 0, FORBIDDEN_NAMES[path.name]))
            continue
        data = file.read_bytes()
        if len(data) > LARGEST_FILE_BYTES:
            findings.append(Finding(path, 0, f"{len(data):,} bytes; {LARGEST_FILE_BYTES:,} are allowed"))
        if b"\0" in data[:8192]:
            continue
        text = data.decode("utf-8", errors="replace")
        findings.extend(finding for rule in RULES for finding in rule(path, text))
    return findings


def tracked_files(root: Path) -> list[Path]:
    """What git has, and what it would take: ignored files are nobody's business."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted(path for name in set(names) if name and (path := root / name).is_file() and not path.is_symlink())


def _matches(pattern: re.Pattern[str], path: Path, text: str, reason: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), start=1):
        match = pattern.search(line)
        if match:
            yield Finding(path, number, f"{reason}: {match[0].strip()}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the tree (or the files named); exit status 1 when a rule is broken."""
    named = sys.argv[1:] if arguments is None else arguments
    files = [Path(name).resolve() for name in named] or tracked_files(ROOT)
    findings = check(files, ROOT)
    print("\n".join(str(finding) for finding in findings) or "the tree keeps its rules")
    return 1 if any(finding.is_error for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
