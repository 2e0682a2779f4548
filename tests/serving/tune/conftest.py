"""A node whose engine has a known optimum."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.launch.world import Running, World
from tools.ports import reserve_port

ENGINE = Path(__file__).parent / "data" / "fake_engine.py"
REGISTRY = """\
# What is served here.
models:
  tiny: # the one
    model: org/tiny
    description: for tests
    max-model-len: 2048
    extra-args: [--enable-auto-tool-choice, --tool-call-parser, hermes]

  # another one
  other:
    model: org/other
    description: also for tests
"""


class Bed(World):
    """A world in which `huddle tune tiny` runs."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.registry.write_text(REGISTRY)
        self.program("vllm", f'exec {sys.executable} {ENGINE} "$@"')
        self.port = reserve_port()

    @property
    def registry(self) -> Path:
        return self.root / "models.yaml"

    def tune(self, *words: str, device: str = "cpu") -> Running:
        """Start `huddle tune tiny` for a few streams; it takes a port of its own."""
        line = [sys.executable, "-c", "from huddle.cli import main; main()", "tune", "tiny", "--device", device]
        line += [
            "--registry",
            str(self.registry),
            "--store",
            str(self.root / "store"),
            "--streams",
            "10",
            "--tolerance",
            "100",
        ]
        line += ["--workspace", str(self.root / "workspace"), *words]
        env = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "NOTES": str(self.notes)} | self.env
        return self._start(line, env)

    def engines(self) -> list[str]:
        """How each engine was started so far."""
        return [line.removeprefix("argv ") for line in self.noted() if line.startswith("argv ")]


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path / "node")
    yield made
    made.clean_up()
