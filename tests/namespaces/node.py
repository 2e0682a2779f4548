"""The product on a host in namespaces: its own bundle, unpacked where a node has it, with real engines behind it.

Two things differ from a node with GPUs, both said here: the model's files are the tiny model's, and the launch words
and the registry entry ask for the CPU.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cloud_init.bundle import Bundle, contents
from huddle import tiny_model
from plan.azure.model import AzurePlan
from plan.model import NodePlan
from tests.namespaces.host import INSIDE, Host, hand_over
from tools.deadlines import scaled

RAY, VLLM, WRAPPER = "huddle-ray.service", "huddle-vllm@0.service", "huddleai_api.service"
PROBE = "huddle-probe@0.service"
BACKEND_KEY = "canary-backend-key-of-this-test"
RAY_TOKEN = "b" * 64
_SLOW_S = 900.0  # the start of two real engines on two busy cores


@dataclass(frozen=True)
class Node:
    """A host with the bundle of its stack."""

    host: Host
    plan: NodePlan
    wrapper_port: int

    def current_files(self) -> Path:
        """The node's own files in the bundle that serves; the link itself leads somewhere on the host only."""
        bundle = next((self.host.root / "opt/huddle/bundles").iterdir())
        return bundle / "nodes" / self.host.name

    def wait(self, condition: Callable[[], bool], what: str, deadline_s: float = _SLOW_S) -> None:
        """Until a condition holds; the logs of all services are the error."""
        end = time.monotonic() + scaled(deadline_s)
        while not condition():
            if time.monotonic() > end:
                logs = "\n".join(f"--- {unit}\n{self.host.log(unit)[-3000:]}" for unit in (RAY, VLLM, WRAPPER, PROBE))
                raise AssertionError(f"{self.host.name}: {what} did not come within {deadline_s:.0f} s\n{logs}")
            time.sleep(0.5)

    def ask(self, method: str, url: str, body: Any = None, *, key: str = "", user: str | None = None) -> dict[str, Any]:
        """One HTTP request made on this host."""
        words = [
            sys.executable,
            "-B",
            str(INSIDE / "ask.py"),
            method,
            url,
            *([] if body is None else [json.dumps(body)]),
        ]
        done = subprocess.run(
            self.host.argv(words, user), input=key, capture_output=True, text=True, timeout=scaled(120), check=True
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def wrapper(self) -> str:
        """The wrapper's address."""
        return f"http://{self.host.address}:{self.wrapper_port}"

    def ready(self) -> bool:
        return bool(self.ask("GET", f"{self.wrapper()}/ready")["status"] == 200)

    def ray_nodes(self, head: str) -> list[str]:
        """What the product's own counter says; empty while there is no cluster."""
        token = "RAY_AUTH_TOKEN_PATH=/etc/huddle/credentials/ray_token"
        done = self.host.run("env", token, "/opt/huddle/current/bin/huddle-ray-nodes", head, timeout_s=120)
        return list(json.loads(done.stdout)) if done.returncode == 0 else []


def install(host: Host, plan: AzurePlan, number: int, bundle: Bundle, *, node_python: Path, vllm_python: Path) -> Node:
    """Lay everything out as `huddle-apply` leaves it, services not yet started."""
    root, node = host.root, plan.nodes[number - 1]
    unpacked = root / "opt/huddle/bundles" / bundle.digest
    for path, content in bundle.files.items():
        _write(unpacked / path, content, executable=path in contents.executables(bundle.files))
        if path.startswith("rootfs/etc/"):
            _write(root / path.removeprefix("rootfs/"), content)
    for path, content in bundle.files.items():
        if path.endswith(".whl"):
            with zipfile.ZipFile(io.BytesIO(content)) as wheel:
                wheel.extractall(unpacked / "site")
    _environment(unpacked / "venv", node_python, vllm_python)
    _for_the_cpu(unpacked, node.name)
    (root / "opt/huddle/current").symlink_to(Path("/opt/huddle/bundles") / bundle.digest)
    credentials = root / "etc/huddle/credentials"
    for name, value in (("backend_key", BACKEND_KEY), ("ray_token", RAY_TOKEN), ("model_hub_token", "")):
        _write(credentials / name, value.encode())
        (credentials / name).chmod(0o600)
    workspace = root / "mnt/nvme/workspace"
    for name in ("inference_cache", "vllm_cache", "models", "scratch"):
        (workspace / name).mkdir(parents=True)
    tiny_model.make(workspace / "models" / json.loads(bundle.files[f"nodes/{node.name}/model.json"])["directory"])
    hand_over(workspace)
    return Node(host, node, plan.serving.wrapper_port)


def _write(path: Path, content: bytes, *, executable: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755 if executable else 0o644)


def _environment(venv: Path, node_python: Path, vllm_python: Path) -> None:
    """The node's environment, of two that exist outside: Ray and the libraries of `huddle`, and vLLM for the CPU."""
    base = node_python.parent.parent
    (venv / "bin").mkdir(parents=True)
    shutil.copyfile(base / "pyvenv.cfg", venv / "pyvenv.cfg")
    (venv / "lib").symlink_to(base / "lib")
    (venv / "bin/python").symlink_to(node_python.readlink())
    (venv / "bin/ray").symlink_to(base / "bin/ray")
    (venv / "bin/vllm").symlink_to(vllm_python.with_name("vllm"))


def _for_the_cpu(unpacked: Path, host: str) -> None:
    words = unpacked / "nodes" / host / "engine.env"
    words.write_text(words.read_text(encoding="utf-8").rstrip("\n") + " --device cpu\n", encoding="utf-8")
    registry = unpacked / "registry/models.yaml"
    document = yaml.safe_load(registry.read_text(encoding="utf-8"))
    for entry in document["models"].values():
        entry["extra-args"] = ["--enforce-eager"]  # the tiny model knows no tool calls
        entry["env"] = {**entry.get("env", {}), "OMP_NUM_THREADS": "1"}
        entry["max-num-seqs"] = 16
    registry.write_text(yaml.safe_dump(document), encoding="utf-8")
