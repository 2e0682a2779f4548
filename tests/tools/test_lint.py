"""Which files `make lint` looks at, and that one failing check fails the whole."""

from pathlib import Path

import pytest

from tools.lint import __main__ as lint

SHELL = {
    "a.sh": "echo",
    "run": "#!/usr/bin/env bash\n",
    "launch": "#!/bin/sh\n",
    "unit-script.sh.j2": "#!/bin/bash\n# shellcheck shell=bash\n",
    "marked.sh": "# shellcheck shell=bash\n{% if x %}\n",
}
NOT_SHELL = {
    "template.sh.j2": "#!/bin/bash\necho {{ x }}\n",
    "template.sh": "#!/bin/bash\n{% if x %}\n",
    "a.py": "#!/usr/bin/env python3\n",
    "a.txt": "#!/bin/shellfish",
    "binary": "\udcff",
}


@pytest.mark.parametrize("name", [*SHELL, *NOT_SHELL])
def test_shell_files(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_bytes({**SHELL, **NOT_SHELL}[name].encode(errors="surrogateescape"))
    assert lint.is_shell(path) == (name in SHELL)


def test_yaml_files():
    assert lint.is_yaml(Path("stacks/Pulumi.dev.yaml"))
    assert not lint.is_yaml(Path("cloud_init/templates/user-data.yaml"))
    assert not lint.is_yaml(Path("README.md"))


def test_all_checks_run_and_one_failure_counts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    good, bad = lint.Outcome(passed=True, output="quiet"), lint.Outcome(passed=False, output="line 1\nline 2")
    monkeypatch.setattr(lint, "checks", lambda: [("bad", lambda: bad), ("good", lambda: good)])
    assert lint.main() == 1
    out = capsys.readouterr().out
    assert "FAILED bad" in out
    assert "    line 1\n    line 2\n" in out
    assert "ok     good" in out
    assert "quiet" not in out
    assert out.endswith("lint failed: bad\n")
    monkeypatch.setattr(lint, "checks", lambda: [("good", lambda: good)])
    assert lint.main() == 0


def test_the_tree_has_something_to_check():
    names = [name for name, _ in lint.checks()]
    assert not any("(0 files)" in name for name in names)
    assert len(names) == 9
