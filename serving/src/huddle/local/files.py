"""What a local service consists of: its files, its two programs, and how a person talks to it. Pure."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huddle.launch.request import Device

MODEL = "tiny"
HOST = "127.0.0.1"
DRAIN_S = 5  # nobody's work depends on this service
SYSTEM_PROMPT = "You are a small model on somebody's own machine. You speak nonsense, politely.\n"
HUDDLE = (sys.executable, "-c", "from huddle.cli import main; main()")


@dataclass(frozen=True)
class Ports:
    """Where the three listeners are, all on loopback."""

    wrapper: int
    engine: int
    metrics: int


@dataclass(frozen=True)
class LocalPaths:
    """The files of one service, below its state directory (absolute)."""

    root: Path

    @property
    def connection(self) -> Path:
        """The connection file, for `--connection`."""
        return self.root / "connection.yaml"

    @property
    def key(self) -> Path:
        """The subscriber's key; it stays the same from start to start."""
        return self.root / "key"

    @property
    def registry(self) -> Path:
        """The launcher's registry, with the one model."""
        return self.root / "models.yaml"

    @property
    def wrapper(self) -> Path:
        """The wrapper's configuration."""
        return self.root / "wrapper.yaml"

    @property
    def prompt(self) -> Path:
        """The system prompt: change it, and send the wrapper SIGHUP or start again."""
        return self.root / "system_prompt.txt"

    @property
    def programs(self) -> Path:
        """The command lines that the supervisor runs, as JSON."""
        return self.root / "programs.json"

    @property
    def store(self) -> Path:
        """The model store; it holds the tiny model only."""
        return self.root / "store"

    @property
    def workspace(self) -> Path:
        """The engine's caches."""
        return self.root / "workspace"

    def log(self, program: str) -> Path:
        """The log file of a program: supervisor, engine or wrapper."""
        return self.root / "log" / f"{program}.log"


def base_url(ports: Ports) -> str:
    """The wrapper's base URL, which ends in /v1."""
    return f"http://{HOST}:{ports.wrapper}/v1"


def connection(ports: Ports) -> dict[str, Any]:
    """The connection file; the key lies beside it."""
    return {"base_url": base_url(ports), "api_key_file": "key", "model": MODEL}


def registry(device: Device) -> dict[str, Any]:
    """One model that starts as fast as can be and takes little: no compilation, a tenth of a GPU, one thread."""
    entry: dict[str, Any] = {
        "model": f"huddle/{MODEL}",
        "description": "random weights, for trying out the service",
        "max-model-len": 2048,
        "max-num-seqs": 16,
        "gpu-memory-utilization": 0.1,
        "extra-args": ["--enforce-eager", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"],
    }
    if device is Device.CPU:
        entry["env"] = {"OMP_NUM_THREADS": "1"}
    return {"models": {MODEL: entry}}


def wrapper(paths: LocalPaths, ports: Ports, key_sha256: str) -> dict[str, Any]:
    """The wrapper as on a node, with one own product instead of a gateway's key."""
    return {
        "listen": f"{HOST}:{ports.wrapper}",
        "metrics_listen": f"{HOST}:{ports.metrics}",
        "upstream": f"http://{HOST}:{ports.engine}",
        "models": {MODEL: {"system_prompt_file": str(paths.prompt)}},
        "products": {"local": {"keys": [{"name": "me", "sha256": key_sha256}]}},
        "timeouts": {"drain_s": DRAIN_S},
    }


def programs(paths: LocalPaths, ports: Ports, device: Device, vllm: str) -> Mapping[str, list[str]]:
    """The two command lines. The engine's is the launcher's, as on a node."""
    launch = ["launch", MODEL, "--device", device.value, "--vllm", vllm, "--port", str(ports.engine)]
    launch += ["--registry", str(paths.registry), "--store", str(paths.store), "--workspace", str(paths.workspace)]
    launch += ["--shutdown-timeout", str(DRAIN_S), "--clear-leftovers"]
    return {"engine": [*HUDDLE, *launch], "wrapper": [*HUDDLE, "wrapper", "--config", str(paths.wrapper)]}


def lines(paths: LocalPaths, ports_url: str, directory: Path) -> tuple[str, str, str]:
    """How to talk to it, ready to paste in `directory`; the key is read from its file, never written out."""
    here = Path(os.path.relpath(paths.root, directory)) if paths.root.is_relative_to(directory) else paths.root
    programs = Path(sys.executable).parent
    shown = Path(os.path.relpath(programs, directory)) if programs.is_relative_to(directory) else programs
    return (
        f"{shown}/huddle chat --connection {here}/connection.yaml",
        f'export OPENAI_BASE_URL={ports_url} OPENAI_API_KEY="$(cat {here}/key)"',
        f"{shown}/python examples/streaming.py",
    )
