"""The bundle's program on a node with two GPUs: an engine on each, and readiness is both of theirs."""

from __future__ import annotations

from typing import Any

import pytest

from huddle.probe import verdict
from tests.unit.cloud_init.node import (
    PROBE,
    VLLM,
    WRAPPER,
    Delivered,
    FakeNode,
    apply,
    deliver,
    services_of,
)

SECOND = VLLM.replace("@0", "@1")


@pytest.fixture(autouse=True)
def _two_gpus(node: FakeNode) -> None:
    node.set("gpus", "".join(f"GPU {number}: NVIDIA H100 NVL (UUID: GPU-{number})\n" for number in (0, 1)))


def of_two_engines(port: int, **facts: Any) -> Delivered:
    return deliver(port, kind="two-gpus", **facts)


def engines_changed(port: int) -> Delivered:
    """The next bundle: both engines are made from something else."""
    services = services_of(port, kind="two-gpus")
    for service in services:
        if service["unit"] in (VLLM, SECOND):
            service["restart"] = "another"
    return of_two_engines(port, services=services)


def verdicts(node: FakeNode, *reasons: str | None) -> None:
    """What the probes of a node's engines say; None: that all is well."""
    for copy, reason in enumerate(reasons):
        path = node.paths.verdict(copy)
        path.parent.mkdir(parents=True, exist_ok=True)
        verdict.write(path, verdict="x", ready=reason is None, reason=reason or "tokens come", restarts=0)


def test_engines_of_one_node_stop_together_after_the_wrapper(node: FakeNode) -> None:
    node.set("engines", "2")
    verdicts(node, None, None)
    assert apply(node, of_two_engines(node.port)) == 0
    node.calls()
    assert apply(node, engines_changed(node.port)) == 0
    assert node.calls("stop") == [f"systemctl stop {WRAPPER}", f"systemctl stop {SECOND} {VLLM}"]
    assert node.status()["restarted"] == [VLLM, SECOND, WRAPPER]


@pytest.mark.parametrize(
    ("reasons", "seen", "sentence", "log"),
    [
        ((None, "no token"), 2, f"{SECOND} does not serve: no token", SECOND),
        ((None,), 2, f"{SECOND} does not serve: its probe has not spoken", SECOND),
        ((None, None), 1, "1 of 2 engines answer", WRAPPER),
    ],
)
def test_a_node_is_ready_when_each_of_its_engines_is(
    node: FakeNode,
    capfd: pytest.CaptureFixture[str],
    reasons: tuple[str | None, ...],
    seen: int,
    sentence: str,
    log: str,
) -> None:
    """The wrapper answers with one of them."""
    node.set("engines", str(seen))
    verdicts(node, *reasons)
    assert apply(node, of_two_engines(node.port)) == 1
    assert node.status()["reason"].startswith(f"not ready after 1 s: {sentence}")
    assert f"the log of {log}" in capfd.readouterr().err


def test_one_gpu_less_stops_its_engine_after_the_wrapper(node: FakeNode) -> None:
    node.set("engines", "2")
    verdicts(node, None, None)
    assert apply(node, of_two_engines(node.port)) == 0
    node.calls()
    node.set("gpus", "GPU 0: NVIDIA H100 NVL (UUID: GPU-0)\n")
    assert apply(node, deliver(node.port)) == 0
    stopped = [unit for call in node.calls("stop") for unit in call.split()[2:]]
    assert stopped.index(WRAPPER) < stopped.index(SECOND)
    assert PROBE.replace("@0", "@1") in stopped
