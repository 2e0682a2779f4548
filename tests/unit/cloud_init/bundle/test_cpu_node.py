"""A node without GPU gets the engine for the CPU, and nothing else differs; a node with GPUs sees none of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from cloud_init import bundle
from cloud_init.bundle import node_facts
from cloud_init.bundle.contents import collect
from cloud_init.bundle.serving_code import SERVING
from cloud_init.huddle_apply.machine import commands
from cloud_init.huddle_apply.services import readiness
from huddle.launch.cli import app as launch
from tests.unit.builders import plan

CPU, GPU = plan("proof"), plan("dev")


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return collect(CPU)


def test_the_engines_lock_is_the_one_for_the_cpu(files: dict[str, bytes]) -> None:
    assert files["requirements/engine.lock"] == (SERVING / "engine-cpu.lock").read_bytes()
    assert collect(GPU)["requirements/engine.lock"] == (SERVING / "engine.lock").read_bytes()


def test_the_node_asks_for_no_gpu_and_brings_a_compiler(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = json.loads(files[f"nodes/{CPU.head.name}/node.json"])
    assert node["expects"]["gpus"] == 0
    assert {"g++", "python3-dev"} <= set(node["packages"])
    assert not {"g++", "python3-dev"} & set(node_facts.packages(GPU))

    def never(*_: Any, **__: Any) -> str:
        raise AssertionError("a machine without driver was asked for its GPUs")

    monkeypatch.setattr(commands, "run", never)
    assert readiness.check_gpus(0) == 0


def test_huddle_launch_takes_the_words_of_the_node(files: dict[str, bytes]) -> None:
    words = files[f"nodes/{CPU.head.name}/engine.env"].decode().strip().partition("=")[2]
    kept = words.replace("--registry /opt/huddle/current/registry/models.yaml ", "")
    done = CliRunner().invoke(launch, [*kept.split(), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "VLLM_CPU_KVCACHE_SPACE=1" in done.output
    assert "--gpu-memory-utilization" not in done.output


def test_a_bundle_of_the_proof_stack_is_built() -> None:
    assert bundle.build(CPU).digest != bundle.build(GPU).digest
