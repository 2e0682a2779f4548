"""A node that the launcher can run on: a model store, a workspace, and a `vllm` that behaves as the test wants."""

import json
import os
import signal
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tools.deadlines import scaled, until
from tools.ports import reserve_port

ENGINE = Path(__file__).parent / "data" / "fake_engine.py"

REGISTRY = """\
models:
  tiny:
    model: org/tiny
    description: for tests
    max-model-len: 512
"""

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
}


def safetensors(tensor_bytes: int = 16) -> bytes:
    """A small, valid safetensors file."""
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [tensor_bytes // 4], "data_offsets": [0, tensor_bytes]}}
    ).encode()
    return struct.pack("<Q", len(header)) + header + bytes(tensor_bytes)


@dataclass
class Running:
    """A launcher. Its output goes to a file, which, unlike a pipe, does not stay open with what it leaves behind."""

    process: subprocess.Popen[bytes]
    path: Path

    @property
    def output(self) -> str:
        """What it said so far."""
        return self.path.read_text()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def finish(self) -> tuple[int, str]:
        """Wait for its end: exit code and output."""
        return self.process.wait(timeout=scaled(60)), self.output


@dataclass
class World:
    """Everything below one directory."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    started: list[Running] = field(default_factory=list)
    port: int = field(default_factory=reserve_port)
    """Its engine's: the default is one for the whole machine, and another run of these tests may have it."""

    def __post_init__(self) -> None:
        model = self.model
        model.mkdir(parents=True)
        (self.root / "workspace").mkdir()
        (self.root / "bin").mkdir()
        (self.root / "models.yaml").write_text(REGISTRY)
        (model / "config.json").write_text(json.dumps(CONFIG))
        (model / "tokenizer.json").write_text("{}")
        (model / "model.safetensors").write_bytes(safetensors())
        self.program("vllm", f'exec {sys.executable} {ENGINE} "$@"')

    @property
    def model(self) -> Path:
        """The model's directory in the store."""
        return self.root / "store" / "tiny"

    @property
    def notes(self) -> Path:
        """Where the fake engine writes what happens to it."""
        return self.root / "notes"

    def program(self, name: str, line: str) -> None:
        """Put a program on PATH."""
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def launch(self, *words: str, engine: str = "polite", device: str = "cpu") -> Running:
        """Start `huddle launch tiny` with an engine of the given manners."""
        line = [sys.executable, "-c", "from huddle.cli import main; main()", "launch", "tiny", "--device", device]
        line += ["--registry", str(self.root / "models.yaml"), "--store", str(self.root / "store")]
        line += ["--workspace", str(self.root / "workspace"), "--port", str(self.port), *words]
        env = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}
        env |= {"NOTES": str(self.notes), "MANNERS": engine} | self.env
        return self._start(line, env)

    def _start(self, line: list[str], env: dict[str, str]) -> Running:
        output = self.root / f"output{len(self.started)}"
        with output.open("w") as file:
            running = Running(subprocess.Popen(line, env=env, stdout=file, stderr=subprocess.STDOUT), output)
        self.started.append(running)
        return running

    def refused(self, *words: str, device: str = "cpu") -> str:
        """The output of a launch that must be refused with 2 before anything was started or created."""
        code, output = self.launch(*words, device=device).finish()
        assert code == 2, output
        assert "Traceback" not in output
        assert not self.notes.exists()
        assert list((self.root / "workspace").iterdir()) == []
        return output

    def supervised(self, engine: str, **settings: float) -> Running:
        """The engine under `supervise.run` alone, with limits that a test can wait for; prints the exit code."""
        code = (
            "import os, sys; from huddle.launch import supervise\n"
            "with supervise.Signals() as signals:\n"
            f"    code, asked = supervise.run(['vllm', 'serve', {str(self.model)!r}], os.environ, signals=signals,\n"
            f"        slot='test', log=print, **{settings!r})\n"
            "print('asked', asked); sys.exit(code)"
        )
        env = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}
        env |= {"NOTES": str(self.notes), "MANNERS": engine}
        return self._start([sys.executable, "-c", code], env)

    def noted(self) -> list[str]:
        """What the engine wrote so far."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def wait_for(self, note: str) -> None:
        """Wait until the engine has written a note."""
        until(lambda: note in self.noted(), f"note {note!r}")

    def engine_pids(self) -> list[int]:
        """The pids of all processes that the engine started, itself included."""
        return [int(line.split()[1]) for line in self.noted() if line.startswith("pid ")]

    def clean_up(self) -> None:
        """End whatever a failing test left."""
        for running in self.started:
            running.process.kill()
            running.process.wait()
        for pid in self.engine_pids():
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
