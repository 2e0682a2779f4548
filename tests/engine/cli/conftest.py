"""A small project on a file backend, driven by the real Pulumi command."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from infra.engine import PulumiEngine, locate
from infra.engine.versions import ROOT
from tools.deadlines import scaled


@dataclass(frozen=True)
class Project:
    """`write` the program, then run `pulumi` in it."""

    root: Path
    engine: PulumiEngine

    def write(self, program: str) -> None:
        (self.root / "program" / "__main__.py").write_text(dedent(program))

    def configure(self, **values: object) -> None:
        path = self.root / "stacks" / "Pulumi.dev.yaml"
        document = yaml.safe_load(path.read_text()) if path.exists() else {}
        document.setdefault("config", {}).update({f"h100-inference:{key}": value for key, value in values.items()})
        path.write_text(yaml.safe_dump(document))

    def pulumi(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**self.engine.offline_environment(self.root / "state"), "PULUMI_STACK": "dev"}
        command = [str(self.engine.pulumi), *arguments, "--non-interactive", "--color", "never"]
        return subprocess.run(
            command,
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            input=stdin,
            check=False,
            timeout=scaled(120),
        )


@pytest.fixture(scope="session")
def engine() -> PulumiEngine:
    return locate()


def make_project(root: Path, engine: PulumiEngine) -> Project:
    (root / "program").mkdir()
    (root / "stacks").mkdir()
    document = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    document["main"] = "program"
    document["runtime"]["options"]["virtualenv"] = os.fspath(ROOT / ".venv")
    document["config"] = {
        "serving": {"type": "object"},
        "network": {"type": "object", "default": {}},
        "backend_key": {"type": "string", "secret": True},
    }
    (root / "Pulumi.yaml").write_text(yaml.safe_dump(document))
    made = Project(root, engine)
    answer = made.pulumi("stack", "init", "dev")
    assert answer.returncode == 0, answer.stderr
    return made


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory, engine: PulumiEngine) -> tuple[Path, Path]:
    """A project with an empty stack, and one with its settings: made once, copied for each test."""
    empty = make_project(tmp_path_factory.mktemp("empty"), engine)
    configured = Project(tmp_path_factory.mktemp("configured") / "copy", engine)
    shutil.copytree(empty.root, configured.root)
    configured.configure(serving={"models": {"hl": {}}})
    answer = configured.pulumi("config", "set", "--secret", "backend_key", stdin="canary-77aa")
    assert answer.returncode == 0, answer.stderr
    return empty.root, configured.root


@pytest.fixture
def project(tmp_path: Path, engine: PulumiEngine, templates: tuple[Path, Path]) -> Project:
    shutil.copytree(templates[0], tmp_path / "project")
    return Project(tmp_path / "project", engine)


@pytest.fixture
def configured(tmp_path: Path, engine: PulumiEngine, templates: tuple[Path, Path]) -> Project:
    shutil.copytree(templates[1], tmp_path / "project")
    return Project(tmp_path / "project", engine)
