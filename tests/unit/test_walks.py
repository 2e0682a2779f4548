"""The walks of docs/architecture.md, taken: their changes are made to a copy of the tree, their commands run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from plan.stack_file import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
PACKAGES = ("plan", "gateway_policies", "cloud_init", "components", "simulator", "infra", "serving", "tests")
COPIED = (*PACKAGES, "stacks", "docs", "tools")
HUDDLE = "from huddle.cli import main; main()"
BLOCK = re.compile(
    r"(?:In `(?P<file>[^`]+)`, after `(?P<after>[^`]+)`:|New file `(?P<new>[^`]+)`:)\n\n```\w+\n(?P<text>.*?)```"
    r"|```console\n(?P<console>.*?)```",
    re.DOTALL,
)


@dataclass(frozen=True)
class Walk:
    """One section of the page."""

    title: str
    text: str


def walks() -> list[Walk]:
    parts = re.split(r"^## (Add a .*)$", PAGE, flags=re.MULTILINE)[1:]
    found = [Walk(title, text) for title, text in zip(parts[::2], parts[1::2], strict=True)]
    return [walk for walk in found if "```console" in walk.text]


def take(block: re.Match[str], tree: Path) -> None:
    """Make a change, or run commands and look for what they are said to print."""
    if block["file"]:
        path = tree / block["file"]
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        (at,) = [number for number, line in enumerate(lines) if line.startswith(block["after"])]
        path.write_text("".join([*lines[: at + 1], block["text"], *lines[at + 1 :]]), encoding="utf-8")
    elif block["new"]:
        path = tree / block["new"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block["text"], encoding="utf-8")
    else:
        for command, printed in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block["console"], flags=re.MULTILINE):
            run(command, printed, tree)


def run(command: str, printed: str, tree: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{tree}:{tree / 'serving/src'}"}
    program, *words = command.split()
    start = [sys.executable, "-c", HUDDLE] if program == "huddle" else [sys.executable]
    done = subprocess.run([*start, *words], cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for line in printed.splitlines():
        assert line in done.stdout


def test_there_is_a_walk_for_each_thing_that_people_add() -> None:
    assert re.findall(r"^## (Add a .*)$", PAGE, flags=re.MULTILINE) == ["Add a setting", "Add a model", "Add a target"]
    assert [walk.title for walk in walks()] == ["Add a setting", "Add a model"]


@pytest.mark.parametrize("walk", walks(), ids=lambda walk: walk.title)
def test_a_walk_leads_where_it_says(walk: Walk, tmp_path: Path) -> None:
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for file in ("Pulumi.yaml", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    blocks = list(BLOCK.finditer(walk.text))
    assert len(blocks) == walk.text.count("```") // 2
    for block in blocks:
        take(block, tmp_path)


def test_what_the_page_names_is_there() -> None:
    new = set(re.findall(r"New file `([^`]+)`", PAGE))
    named = set(re.findall(rf"`((?:{'|'.join(PACKAGES)})/[\w./]+\.\w+)`", PAGE))
    assert len(named) > 8
    assert [name for name in sorted(named - new) if not (ROOT / name).exists()] == []
