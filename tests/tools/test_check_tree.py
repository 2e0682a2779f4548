"""The tree's own rules: each catches what it is for, and leaves the lookalike alone."""

from pathlib import Path

import pytest

from infra.engine.versions import ROOT
from tools.lint import check_tree

# Spelled in parts, so that this file keeps the rules it tests.
HOST = "https://py" + "pi.org/simple"
HASH = "--hash=sha256:" + "0" * 64

CAUGHT = {
    "registry host": ("docs/a.md", f"from {HOST}", "names a package registry's host"),
    "module proxy": ("tools/x.sh", "GOPROXY=https://proxy.go" + "lang.org", "names a package registry's host"),
    "machine path": ("infra/a.py", 'ROOT = "/wo' + 'rk/main/infra"', "names a path of one machine"),
    "a person's home": ("README.md", "cd /ho" + "me/alice/h100", "names a path of one machine"),
    "reminder": ("infra/a.py", "# TO" + "DO: later", "leaves a reminder in the code"),
    "skipped test": ("tests/unit/test_a.py", "@pytest.mark.sk" + "ip", "leaves a test out"),
    "expected failure": ("tests/unit/test_a.py", "@pytest.mark.xf" + "ail(reason='x')", "leaves a test out"),
    "skip at run time": ("serving/tests/test_a.py", "    pytest.sk" + "ip('no GPU')", "leaves a test out"),
    "unhashed package": ("requirements/a.lock", "numpy==2.0.0\n", "numpy==2.0.0 has no hash"),
    "half hashed": ("requirements/a.lock", f"a==1 \\\n    {HASH}\nb==2\n", "b==2 has no hash"),
    "index address": (
        "requirements/a.lock",
        "--index-url https://example.com/simple",
        "must not hold an index address",
    ),
    "direct address": ("requirements/a.lock", "a @ https://example.com/a.whl", "must not hold an index address"),
    "file that is gone": (
        "docs/a.md",
        "see `cloud_init/render.py`.",
        "names what does not exist: cloud_init/render.py",
    ),
    "module that is gone": (
        "docs/a.md",
        "`cloud_init.render.user_data` gives it",
        "names what does not exist: cloud_init.render.user_data",
    ),
    "uv's lock": ("uv.lock", "", "names a registry's host"),
    "npm's lock": ("docs/site/package-lock.json", "{}", "names a registry's host"),
    "huge file": ("docs/a.bin", "x" * 1_000_001, "1,000,001 bytes; 1,000,000 are allowed"),
}

ALLOWED = {
    "hashed lock": ("requirements/a.lock", f"numpy==2.0.0 ; python_version < '3.13' \\\n    {HASH}\n"),
    "path below a variable": ("tools/x.sh", 'cd "$HOME/work/it"'),
    "path on the node": (
        "cloud_init/templates/a",
        "/var/lib/huddle /home/{{ user }}/.ssh /home/huddle/.ssh /ro" + "ot/.ssh",
    ),
    "the word in prose": ("docs/a.md", "skip this section, to do so is fine; a working tree at work/main"),
    "skip outside of tests": ("infra/a.py", "def skip(self): ..."),
    "file that is there": ("docs/a.md", "`tools/lint/check_tree.py`, `lint/check_tree.py`, `python -m tools.lint`"),
    "name in a module": ("docs/a.md", "`infra.engine.locate()`"),
    "another project's file": ("docs/a.md", "vLLM's `renderers/params.py`"),
    "file of the past": ("docs/a.md", "then `cloud_init/render.py` and then `cloud_init.render.user_data`"),
    "requirements list": ("requirements/a.in", "numpy==2.0.0\n"),
}


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(("name", "text", "reason"), CAUGHT.values(), ids=CAUGHT)
def test_violation_is_caught_with_its_place(tmp_path: Path, name: str, text: str, reason: str):
    (finding,) = check_tree.check([write(tmp_path, name, text)], tmp_path)
    assert finding.is_error
    assert str(finding).startswith(name)
    assert reason in str(finding)


@pytest.mark.parametrize(("name", "text"), ALLOWED.values(), ids=ALLOWED)
def test_lookalike_is_left_alone(tmp_path: Path, name: str, text: str):
    assert check_tree.check([write(tmp_path, name, text)], tmp_path) == []


def test_a_long_module_is_a_warning(tmp_path: Path):
    (finding,) = check_tree.check([write(tmp_path, "infra/big.py", "x = 1\n" * 401)], tmp_path)
    assert not finding.is_error
    assert str(finding) == "infra/big.py: warning: 401 lines; 400 is the aim"


def test_exit_status_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(check_tree, "ROOT", tmp_path)
    assert check_tree.main([str(write(tmp_path, "ok.py", "x = 1\n"))]) == 0
    assert check_tree.main([str(write(tmp_path, "bad.py", "# FIX" + "ME\n"))]) == 1
    assert "bad.py:1: leaves a reminder in the code" in capsys.readouterr().out


def test_tracked_files_leave_ignored_ones_out():
    names = {path.relative_to(ROOT).as_posix() for path in check_tree.tracked_files(ROOT)}
    assert "Makefile" in names
    assert not any(name.startswith(".venv/") for name in names)
