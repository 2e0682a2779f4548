"""What the last merged change touched, as git has it."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

from infra.engine.versions import ROOT

MAIN = "origin/main"
PAUSE_S = 3600
"""On a line of single commits nothing says where a change began. Those with less than an hour between them are one."""


def base(root: Path = ROOT, main: str = MAIN) -> str | None:
    """The commit before the last change; None where the history does not reach that far.

    On a branch: where it left main. On main: the first parent of a merge, else the commit before the last pause.
    """
    head = _git(root, "rev-parse", "HEAD")
    left_at = _git(root, "merge-base", "HEAD", main)
    if left_at and left_at != head:
        return left_at
    if _git(root, "rev-parse", "--verify", "--quiet", "HEAD^2"):
        return _git(root, "rev-parse", "HEAD^1")
    commits = [line.split() for line in _git(root, "log", "--first-parent", "--format=%H %ct").splitlines()]
    for (_, later), (earlier, before) in pairwise(commits):
        if int(later) - int(before) >= PAUSE_S:
            return earlier
    return None


def files(since: str | None, root: Path = ROOT) -> list[str]:
    """The files that differ from a commit, old and new names; without a commit, every file."""
    if since is None:
        return _git(root, "ls-files").splitlines()
    return _git(root, "diff", "--name-only", "--no-renames", since, "HEAD").splitlines()


def _git(root: Path, *words: str) -> str:
    """What git says; empty when it fails."""
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.strip()
