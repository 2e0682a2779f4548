"""An update reaches one node after the other, the gateway's key comes last. The tests run in order on one stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from pulumi import automation

from simulator.azure.rules.compute.run_command import KIND
from simulator.azure.state.store import OperationRecord
from tests.engine.life import Life

NODES = ("huddleai-h100-node-1", "huddleai-h100-node-2")
KEY = "gateway-api-backend-key"
SLOW_S = 1.5


@pytest.fixture(scope="module")
def life(open_life: Callable[[str], Life]) -> Life:
    return open_life("dev")


def slow(*commands: str) -> str:
    """Commands that take their time, so that what waits for them can be told from what does not."""
    match = f'{{type: "{KIND}", name: '
    return (
        "faults: [" + ", ".join(f"{{kind: slow, delay_s: {SLOW_S}, match: {match}'{it}'}}}}" for it in commands) + "]"
    )


def operations(life: Life, since: int) -> Mapping[str, OperationRecord]:
    """What Azure was asked since then, by the program's names; the last of each."""
    return {record.urn.rpartition("::")[2]: record for record in life.azure.operations[since:]}


def change_prompt(life: Life, prompt: str) -> None:
    life.edit(lambda settings: settings["serving"]["models"].update({"hl": {"system_prompt": prompt}}))


def rotate(life: Life, key: str) -> None:
    life.sandbox.stack.set_config("h100-inference:backend_key", automation.ConfigValue(key, secret=True))


def test_the_nodes_of_a_new_stack_start_side_by_side(life: Life) -> None:
    life.faults(slow("*-apply"))
    life.up()
    done = operations(life, 0)
    first, second = (done[f"{node}-apply"] for node in NODES)
    assert second.start < first.end and first.start < second.end


def test_an_update_prepares_all_and_then_takes_one_after_the_other(life: Life) -> None:
    since = len(life.azure.operations)
    life.faults(slow("*-prepare", "*-apply"))
    change_prompt(life, "Answer in verse.")
    life.up()
    done = operations(life, since)
    (one, two), (first, second) = ([done[f"{node}-{it}"] for node in NODES] for it in ("prepare", "apply"))
    assert two.start < one.end and one.start < two.end, "both prepare at once"
    assert first.end <= second.start or second.end <= first.start, "one serves while the other is away"
    assert one.end <= first.start and two.end <= second.start
    assert life.preview().touched() == {}


def test_the_first_node_that_fails_ends_the_update_and_the_next_up_goes_on(life: Life) -> None:
    since = len(life.azure.operations)
    life.faults("faults: [{kind: run_command, times: 1, match: {name: 'huddleai-h100-node-1-apply'}}]")
    change_prompt(life, "Answer in prose.")
    rotate(life, "another-key")
    life.fail(life.sandbox.stack.up)
    done = operations(life, since)
    assert f"{NODES[0]}-apply" in done
    assert f"{NODES[1]}-apply" not in done, "the other node serves on with what it has"
    assert KEY not in done, "the gateway shows the key that both nodes take"
    since = len(life.azure.operations)
    life.up()
    done = operations(life, since)
    assert done[f"{NODES[0]}-apply"].end <= done[f"{NODES[1]}-apply"].start
    assert f"{NODES[0]}-prepare" not in done, "it is prepared"
    assert done[KEY].start >= done[f"{NODES[1]}-apply"].end
    assert life.preview().touched() == {}


def test_another_key_alone_reaches_both_nodes_before_the_gateway(life: Life) -> None:
    since = len(life.azure.operations)
    life.faults(slow("*-apply"))
    rotate(life, "a-third-key")
    life.up()
    done = operations(life, since)
    applied = [done[f"{node}-apply"] for node in NODES]
    assert applied[0].end <= applied[1].start
    assert done[KEY].start >= max(record.end or 0 for record in applied)
    assert not [name for name in done if name.endswith("-prepare")]


def test_a_stack_that_goes_asks_no_node(life: Life) -> None:
    since = len(life.azure.operations)
    life.faults(None)
    life.destroy()
    assert not [record for record in life.azure.operations[since:] if record.token.endswith(KIND)]
    assert life.azure.resources == {}
