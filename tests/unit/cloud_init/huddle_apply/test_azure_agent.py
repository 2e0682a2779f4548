"""Azure's agent is made to look often: on machines that have it, once, and never at the cost of an apply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_init.huddle_apply import ledger
from cloud_init.huddle_apply.machine import vm_agent
from tests.unit.cloud_init.node import FakeNode, apply, deliver, engine_changed

IMAGE = "# of the image\nExtensions.Enabled=y\nExtensions.GoalStatePeriod=300\nExtensions.InitialGoalStatePeriod=6\n"
RESTART = "systemd-run --collect --quiet --on-active=20 --timer-property=AccuracySec=1s systemctl try-restart"


def have_agent(node: FakeNode, text: str = IMAGE) -> None:
    path = node.paths.agent_configuration
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_the_agent_looks_often_from_shortly_after_the_first_apply(node: FakeNode) -> None:
    have_agent(node)
    bundle = deliver(node.port)
    assert apply(node, bundle) == 0
    assert node.paths.agent_configuration.read_text() == IMAGE.replace("=300", "=6")
    assert node.calls("--collect") == [f"{RESTART} walinuxagent.service"]
    assert apply(node, bundle) == 0
    assert node.calls("--collect") == [], "once is enough"


def test_a_failed_apply_is_told_soon_as_well(node: FakeNode) -> None:
    have_agent(node)
    bundle = deliver(node.port)
    node.dumb.add(bundle.digest)
    assert apply(node, bundle) == 1
    assert len(node.calls("--collect")) == 1


def test_after_what_is_prepared_a_command_follows_that_a_restart_would_end(node: FakeNode) -> None:
    have_agent(node)
    bundle = deliver(node.port)
    assert apply(node, bundle, "--prepare") == 0
    assert node.paths.agent_configuration.read_text() == IMAGE
    assert node.calls("--collect") == []


def test_at_boot_the_agent_is_left_alone(node: FakeNode) -> None:
    bundle = deliver(node.port)
    apply(node, bundle)
    have_agent(node)
    assert apply(node, bundle, "--boot") == 0
    assert node.paths.agent_configuration.read_text() == IMAGE
    assert node.calls("--collect") == []


def test_a_machine_without_the_agent_has_nothing_to_do(node: FakeNode) -> None:
    assert apply(node, deliver(node.port)) == 0
    assert node.calls("--collect") == [] and node.status()["warnings"] == []


@pytest.mark.parametrize("broken", ["restart", "configuration"])
def test_an_agent_that_cannot_be_set_is_a_warning(node: FakeNode, broken: str) -> None:
    have_agent(node)
    if broken == "restart":
        (node.fake / "bin/systemd-run").write_text("#!/bin/sh\nexit 1\n")
    else:
        node.paths.agent_configuration.write_bytes(b"\xff\n")
    assert apply(node, deliver(node.port)) == 0
    assert "Azure's agent goes on looking" in node.status()["warnings"][-1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("Extensions.Enabled=y\n", "Extensions.Enabled=y\n"),  # without the key the agent's default is 6
        ("Extensions.GoalStatePeriod=6", "Extensions.GoalStatePeriod=6"),
        ("Extensions.GoalStatePeriod=2\n", "Extensions.GoalStatePeriod=2\n"),
        (" Extensions.GoalStatePeriod = 300 # s\n#x\n", "Extensions.GoalStatePeriod=6\n#x\n"),
        ("#Extensions.GoalStatePeriod=300\n", "#Extensions.GoalStatePeriod=300\n"),
        ("Extensions.GoalStatePeriod=?\n", "Extensions.GoalStatePeriod=?\n"),
    ],
)
def test_only_a_longer_period_is_changed(before: str, after: str) -> None:
    assert vm_agent.lowered(before) == after


@given(log=st.text(max_size=5_000), sentence=st.text(min_size=1, max_size=5_000))
def test_last_words_are_short_and_end_with_the_sentence(log: str, sentence: str) -> None:
    said = ledger.last_words(log, sentence)
    assert len(said.encode()) <= 3 * 1024
    if len(sentence.encode()) < 3_000:
        assert said.endswith(f"{sentence}\n")


def test_after_going_back_stderr_still_ends_with_the_reason(node: FakeNode, capfd: pytest.CaptureFixture[str]) -> None:
    """What the program that is gone back to says of its own failure must not push the reason out of the last 4 KiB."""
    before = deliver(node.port)
    apply(node, before)
    node.set("log/huddleai_api.service", f"{'a long line ' * 20}\n" * 40)
    node.dumb |= {before.digest, (after := engine_changed(node.port)).digest}
    assert apply(node, after) == 1
    said = capfd.readouterr().err
    assert len(said.encode()) <= 3 * 1024
    assert said.splitlines()[-1].startswith("huddle-apply: readiness: not ready after 1 s")
    assert said.endswith("does not serve either\n")
