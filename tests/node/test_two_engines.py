"""A node with two GPUs, booted: an engine on each. One is lost, freezes and comes back; the node serves on."""

from __future__ import annotations

import json

import pytest

from cloud_init.bundle import Bundle
from cloud_init.bundle.services import Unit
from tests.node.probes import QUICK_S, VLLM, eventually, main_pid
from tools.node_lab import bundles
from tools.node_lab.lab import Lab, Node

pytestmark = pytest.mark.lab
TWO_GPUS = {"size": "Standard_NC80adis_H100_v5", "quota_vcpus": 160}
SECOND, SECOND_PROBE = Unit.VLLM.of(1), Unit.PROBE.of(1)


@pytest.fixture(scope="module")
def two(lab: Lab) -> Bundle:
    """The same stack on VMs with two GPUs."""
    return lab.bundle(bundles.plan(lab.public_key, nodes=TWO_GPUS), deadlines_s=QUICK_S)


def answering(node: Node) -> int:
    """How many engines the wrapper sees answer."""
    url = f"http://{node.of.address}:{node.plan.serving.wrapper_port}/ready"
    return int(json.loads(node.shell.out(f"curl -sS -m 20 {url}"))["engines"]["answering"])


def serves_while_one_is_away(node: Node) -> None:
    """Requests go to the other one, before and after the probe has noticed."""
    for _ in range(5):
        assert node.serves("hl")


@pytest.mark.groundwork
def test_each_gpu_has_an_engine(node: Node, two: Bundle) -> None:
    """Two GPUs: two engines, and the run command ends when both have shown a token."""
    node.boot()
    node.shell.out("echo 2 >/etc/lab/gpus")
    done = node.apply(two)
    assert done.code == 0, f"{done.out}\n{done.err}"
    assert answering(node) == 2
    said = node.shell.out("huddle status")
    assert "serves    yes\n" in said
    assert "probe 0   healthy" in said and "probe 1   healthy" in said
    environment = node.shell.out(f"tr '\\0' '\\n' </proc/{main_pid(node, SECOND)}/environ")
    assert "CREDENTIALS_DIRECTORY" in environment, "it is the unit's own process"
    gpus = node.shell.out("for pid in $(pgrep --exact vllm); do tr '\\0' '\\n' </proc/$pid/environ; done")
    assert {"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"} <= set(gpus.splitlines())


def test_one_engine_is_lost(node: Node, two: Bundle) -> None:
    """kill -9 of one engine: the other one serves, nobody is refused, systemd brings it back."""
    first, before = main_pid(node, VLLM), main_pid(node, SECOND)
    node.shell.out(f"systemctl kill --signal=KILL {SECOND}")
    serves_while_one_is_away(node)
    eventually(lambda: main_pid(node, SECOND) not in (0, before), "the second engine is started again")
    eventually(lambda: answering(node) == 2, "both answer again")
    assert main_pid(node, VLLM) == first


def test_one_engine_freezes(node: Node, two: Bundle) -> None:
    """SIGSTOP of one engine: its own probe ends it, and the other engine is left alone."""
    first, before = main_pid(node, VLLM), main_pid(node, SECOND)
    node.shell.out(f"systemctl kill --signal=STOP {SECOND}")
    eventually(lambda: answering(node) == 1, "its probe suspects it")
    assert "serves    yes" in node.shell.out("huddle status")
    serves_while_one_is_away(node)
    eventually(lambda: main_pid(node, SECOND) not in (0, before), "its probe ends it")
    eventually(lambda: answering(node) == 2, "both answer again")
    assert main_pid(node, VLLM) == first


def test_back_to_one_gpu(node: Node, lab: Lab, first: Bundle) -> None:
    """The same stack on VMs with one GPU: the second engine and its probe are gone."""
    node.shell.out("echo 1 >/etc/lab/gpus")
    done = node.apply(first)
    assert done.code == 0, f"{done.out}\n{done.err}"
    states = node.shell.run(f"systemctl is-active {VLLM} {SECOND} {SECOND_PROBE}").out.split()
    assert states == ["active", "inactive", "inactive"]
    assert node.serves("hl")
