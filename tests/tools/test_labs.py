"""The deep labs: which of them a change calls for, and how a run that was cut off goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from plan.stack_file import ROOT
from tools.labs import __main__ as command
from tools.labs import change, progress, table
from tools.labs.progress import Passed
from tools.labs.table import Lab
from tools.lint.check_tree import tracked_files

LABS = table.load()
LAB = Lab.model_validate(
    {"name": "one", "is": "a lab", "tests": ["tests"], "minutes": 5, "paths": ["read/", "one.txt"]}
)


def names(*changed: str) -> set[str]:
    return {lab.name for lab in table.touched(LABS, changed)}


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_a_lab_reads_what_is_there_its_own_tests_among_it(lab: Lab) -> None:
    tracked = [path.relative_to(ROOT).as_posix() for path in tracked_files(ROOT)]
    for path in (*lab.paths, *(f"{tests}/" for tests in lab.tests)):
        assert any(lab.reads(name) and name.startswith(path) for name in tracked), path


@pytest.mark.parametrize(
    ("changed", "called_for"),
    [
        ("README.md", set()),
        ("simulator/azure/cloud/subscription.py", set()),
        ("cloud_init/templates/units/huddle-vllm@.service.j2", {"node", "namespaces"}),
        ("serving/src/huddle/wrapper/relay.py", {"node", "namespaces", "engines", "soak", "fuzz"}),
        ("tools/node_lab/guest.py", {"node"}),
        ("tools/venvs/vllm_cpu.py", {"namespaces", "engines"}),
        ("tools/bench/load.py", {"soak"}),
    ],
)
def test_a_change_calls_for_the_labs_that_read_it(changed: str, called_for: set[str]) -> None:
    assert names(changed) == called_for
    assert names("docs/architecture.md", changed) == called_for


def test_every_folder_with_a_lab_s_tests_is_in_the_table_and_the_makefile_has_a_target_for_each() -> None:
    marked = {path.parent.name for path in (ROOT / "tests").rglob("*.py") if "mark.lab" in path.read_text()}
    own = {Path(tests).name for lab in LABS for tests in lab.tests}
    assert marked - {"tools"} == own
    makefile = (ROOT / "Makefile").read_text()
    for lab in LABS:
        assert f"\n{lab.name}-lab:" in makefile


def test_what_a_lab_leaves_out_is_another_s() -> None:
    others = {tests for lab in LABS for tests in lab.tests}
    for lab in LABS:
        for left in lab.without:
            assert left in others - set(lab.tests)


def test_ci_runs_the_tests_and_the_labs_of_the_change_the_night_runs_all() -> None:
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    made = [line.removeprefix("make ") for line in script if line.startswith("make ")]
    assert made == ["setup", "engine", "lint", "test"]
    assert any("tools.labs changed --minutes" in line for line in script)
    nightly = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())
    assert "make labs" in [step.get("run") for job in nightly["jobs"].values() for step in job["steps"]]


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A repository with one old commit on main."""
    root = tmp_path / "tree"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    commit(root, "read/old", day=1)
    yield root


def git(root: Path, *words: str, day: int = 1) -> str:
    who = {f"GIT_{role}_{what}": "t" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    when = {f"GIT_{role}_DATE": f"2026-01-{day:02}T12:00:00Z" for role in ("AUTHOR", "COMMITTER")}
    done = subprocess.run(["git", *words], cwd=root, env={**who, **when}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(root: Path, name: str, *, day: int) -> str:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(name)
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", name, day=day)
    return git(root, "rev-parse", "HEAD")


def test_on_a_branch_the_change_is_what_the_branch_brings(tree: Path) -> None:
    left = git(tree, "rev-parse", "HEAD")
    git(tree, "checkout", "--quiet", "-b", "branch")
    commit(tree, "one", day=3)
    commit(tree, "two", day=9)
    assert change.base(tree, "main") == left
    assert change.files(left, tree) == ["one", "two"]


def test_after_a_merge_the_change_is_what_was_merged(tree: Path) -> None:
    git(tree, "checkout", "--quiet", "-b", "branch")
    commit(tree, "one", day=3)
    commit(tree, "two", day=9)
    git(tree, "checkout", "--quiet", "main")
    before = commit(tree, "meanwhile", day=9)
    git(tree, "merge", "--quiet", "--no-edit", "branch", day=9)
    assert change.base(tree, "main") == before
    assert change.files(before, tree) == ["one", "two"]


def test_on_a_line_of_commits_the_change_began_after_the_last_pause(tree: Path) -> None:
    old = commit(tree, "old", day=5)
    commit(tree, "one", day=8)
    commit(tree, "two", day=8)
    assert change.base(tree, "main") == old
    assert change.files(old, tree) == ["one", "two"]


def test_where_the_history_is_too_short_every_file_counts(tree: Path) -> None:
    assert change.base(tree, "main") is None
    assert change.files(None, tree) == ["read/old"]


def test_the_digest_is_that_of_what_a_lab_reads_also_before_a_commit(tree: Path) -> None:
    first = progress.inputs_digest(LAB, tree)
    (tree / "other").write_text("not read")
    assert progress.inputs_digest(LAB, tree) == first
    (tree / "read/new").write_text("read")
    second = progress.inputs_digest(LAB, tree)
    (tree / "read/old").write_text("changed")
    assert len({first, second, progress.inputs_digest(LAB, tree)}) == 3


def test_progress_on_another_tree_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    digest = "a" * 12
    monkeypatch.setattr(progress, "inputs_digest", lambda lab: digest)
    Passed(progress.file_of(LAB)).note("t.py::test", passed=True)
    assert Passed(progress.file_of(LAB)).names == {"t.py::test"}
    digest = "b" * 12
    assert Passed(progress.file_of(LAB)).names == set()
    digest = "a" * 12
    assert Passed(progress.file_of(LAB)).names == set(), "what is left of other trees is removed"


SCENARIOS = """
import pathlib, pytest

@pytest.mark.groundwork
def test_boot(): print("ran boot")
@pytest.mark.lab
def test_one(): print("ran one")
@pytest.mark.lab
def test_two():
    print("ran two")
    assert pathlib.Path("fixed").exists()
@pytest.mark.lab
def test_three(): print("ran three")
def test_of_make_test(): print("ran another")
"""


def scenarios(folder: Path) -> tuple[int, list[str]]:
    """Run the scenarios: pytest's exit status, and which ran."""
    words = ["-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "tools.labs.resume", "--passed", "passed"]
    done = subprocess.run(
        [sys.executable, *words, "-m", command.SELECTED, "--rootdir", ".", "."],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, [word for word in done.stdout.split() if word in {"boot", "one", "two", "three", "another"}]


@pytest.mark.slow  # starts pytest four times
def test_a_run_goes_on_with_what_has_not_passed_and_with_its_groundwork(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SCENARIOS)
    (tmp_path / "conftest.py").write_text("")
    assert scenarios(tmp_path) == (1, ["boot", "one", "two", "three"])
    assert scenarios(tmp_path) == (1, ["boot", "two"])
    (tmp_path / "fixed").touch()
    assert scenarios(tmp_path) == (0, ["boot", "two"])
    assert scenarios(tmp_path) == (pytest.ExitCode.NO_TESTS_COLLECTED, [])


def run_all(monkeypatch: pytest.MonkeyPatch, minutes: float, *results: str) -> tuple[int, list[str]]:
    ran: list[str] = []
    left = list(results)

    def instead(lab: Lab, workers: str) -> str:
        ran.append(lab.name)
        return left.pop(0)

    monkeypatch.setattr(command, "_run", instead)
    return command.run_all(LABS, "2", within_s=minutes * 60), ran


def test_a_failed_lab_fails_the_run_and_the_others_run_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_all(monkeypatch, 99, "passed", "failed", "passed", "passed", "passed") == (1, [lab.name for lab in LABS])
    assert run_all(monkeypatch, 99, *["passed", "has passed on this tree before", "passed", "passed", "passed"])[0] == 0


def test_a_lab_for_which_the_time_is_too_short_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_all(monkeypatch, 10, *["passed"] * 4) == (0, ["namespaces", "engines", "soak", "fuzz"])
    assert "node         left out: it takes 30 minutes" in capsys.readouterr().err


def test_an_unknown_lab_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(["run", "nodes"])
    assert refused.value.code == 2
    assert "there is no lab nodes; there are node, namespaces, engines, soak, fuzz" in capsys.readouterr().err


def test_all_labs_end_within_their_time() -> None:
    assert sum(lab.minutes for lab in LABS) <= 50
