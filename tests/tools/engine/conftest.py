"""A small project on a file backend, driven by the real Pulumi command."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from tools.engine import Engine, locate
from tools.engine.versions import ROOT


@dataclass(frozen=True)
class Project:
    """`write` the program, then run `pulumi` in it."""

    root: Path
    engine: Engine

    def write(self, program: str) -> None:
        (self.root / "program" / "__main__.py").write_text(dedent(program))

    def configure(self, **values: object) -> None:
        path = self.root / "stacks" / "Pulumi.dev.yaml"
        document = yaml.safe_load(path.read_text()) if path.exists() else {}
        document.setdefault("config", {}).update({f"h100-inference:{key}": value for key, value in values.items()})
        path.write_text(yaml.safe_dump(document))

    def pulumi(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = self.engine.offline_environment(self.root / "state")
        command = [str(self.engine.pulumi), *arguments, "--non-interactive", "--color", "never"]
        return subprocess.run(
            command,
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            input=stdin,
            check=False,
            timeout=120,
        )


@pytest.fixture(scope="session")
def engine() -> Engine:
    return locate()


@pytest.fixture
def project(tmp_path: Path, engine: Engine) -> Project:
    (tmp_path / "program").mkdir()
    (tmp_path / "stacks").mkdir()
    document = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    document["main"] = "program"
    document["runtime"]["options"]["virtualenv"] = os.fspath(ROOT / ".venv")
    document["config"] = {
        "serving": {"type": "object"},
        "network": {"type": "object", "default": {}},
        "backend_key": {"type": "string", "secret": True},
    }
    (tmp_path / "Pulumi.yaml").write_text(yaml.safe_dump(document))
    made = Project(tmp_path, engine)
    assert made.pulumi("stack", "init", "dev").returncode == 0
    return made


@pytest.fixture
def configured(project: Project) -> Project:
    project.configure(serving={"models": {"hl": {}}})
    answer = project.pulumi("config", "set", "--secret", "backend_key", stdin="canary-77aa")
    assert answer.returncode == 0, answer.stderr
    return project
