"""Two nodes as they serve: one Ray cluster, an engine and a wrapper on each, and nothing open that should not be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest

from huddle.wrapper.access.auth import keyed_hash
from plan.azure.model import AzurePlan
from plan.ports import Flow
from plan.vocabulary import Segment
from tests.namespaces.conftest import Pair
from tests.namespaces.node import BACKEND_KEY, PROBE, RAY, RAY_TOKEN, VLLM, WRAPPER, Node
from tests.node.listeners import BOUND_EVERYWHERE, BOUND_WIDER

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def serving(installed: Pair) -> Iterator[Pair]:
    """Everything started, in the worst order: the worker's part first, long before its head."""
    head, worker = installed.both
    worker.host.start(RAY)
    worker.wait(lambda: "waiting for the head 10.0.0.4:6379" in worker.host.log(RAY), "a worker that waits")
    for node in installed.both:
        node.host.start(VLLM)
        node.host.start(PROBE)  # without it, the wrapper says that nobody watches the engine
        node.host.start(WRAPPER)
    head.host.start(RAY)
    for node in installed.both:
        node.wait(node.ready, "a ready wrapper")
    yield installed


def expected_prompts(node: Node) -> dict[str, str]:
    facts = json.loads((node.current_files() / "node.json").read_text(encoding="utf-8"))
    return {answer["model"]: answer["prompt_sha256"] for answer in facts["expects"]["answers"]}


def test_both_nodes_are_in_one_cluster_though_the_worker_came_first(serving: Pair) -> None:
    addresses = ["10.0.0.4", "10.0.0.5"]
    serving.head.wait(lambda: serving.head.ray_nodes(serving.cluster) == addresses, "two nodes", 120)


@pytest.mark.parametrize("number", [0, 1])
def test_each_node_completes_with_its_own_engine_and_the_prompts_of_the_stack(serving: Pair, number: int) -> None:
    node = serving.both[number]
    prompts = expected_prompts(node)
    assert set(prompts) == {"hl", "llama-3.2-3b"}
    for model, prompt in prompts.items():
        question = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        answer = node.ask("POST", f"{node.wrapper()}/v1/chat/completions", question, key=BACKEND_KEY)
        assert answer["status"] == 200, answer
        assert answer["headers"]["x-huddle-prompt-sha256"] == keyed_hash(BACKEND_KEY, prompt)
        body = json.loads(answer["body"])
        assert body["model"] in prompts, "vLLM answers in the first of its names, whichever was asked"
        assert body["usage"]["completion_tokens"] > 0


def test_without_the_backend_key_nobody_gets_an_answer(serving: Pair) -> None:
    question = {"model": "hl", "messages": [{"role": "user", "content": "Hello"}]}
    answer = serving.worker.ask("POST", f"{serving.head.wrapper()}/v1/chat/completions", question, key="wrong")
    assert answer["status"] == 401


def test_a_second_gcs_is_refused_beside_a_running_one(serving: Pair) -> None:
    done = serving.head.host.run("/opt/huddle/current/bin/huddle-ray-guard")
    assert done.returncode == 1
    assert re.search(r"another Ray runs on this machine; stop it first \(ray stop\): \d+ gcs_server", done.stderr)


def bindings(plan: AzurePlan, node: Node) -> dict[int, set[str]]:
    """Where each port of the table may be bound. Ray binds what other nodes call to every address of the node."""
    found: dict[int, set[str]] = {}
    for flow in plan.flows:
        if flow.listener is Segment.NODES:
            wide = not flow.loopback_only or flow.name in BOUND_WIDER
            for first, last in flow.ports:
                for port in range(first, last + 1):
                    here = found.setdefault(port, {"127.0.0.1"})
                    if wide:
                        here.add(node.host.address)
                    if (wide and flow.process == RAY) or flow.name in BOUND_EVERYWHERE:
                        here |= {"0.0.0.0", "::"}
    return found


def ports_of(plan: AzurePlan, wanted: Callable[[Flow], bool]) -> set[int]:
    """Every port of the nodes' flows that fulfil a condition."""
    flows = [flow for flow in plan.flows if flow.listener is Segment.NODES and wanted(flow)]
    return {port for flow in flows for first, last in flow.ports for port in range(first, last + 1)}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_every_listening_socket_is_one_of_the_port_table(serving: Pair, number: int, user: str) -> None:
    node = serving.both[number]
    table = bindings(serving.plan, node)
    found = json.loads(node.host.python("listening.py", user=user))
    assert {one["port"] for one in found} >= {8000, 9400, 5005, 6380, *([6379, 8265] if number == 0 else [])}
    assert [one for one in found if one["address"] not in table.get(one["port"], set())] == []


def test_the_other_host_reaches_what_the_table_lets_it_and_what_ray_cannot_be_told_to_hide(serving: Pair) -> None:
    """No security group stands between the two here: this is what is left if there were none."""
    found = set(json.loads(serving.worker.host.python("scan.py", serving.head.host.address)))
    callable_ = ports_of(serving.plan, lambda flow: not flow.loopback_only or flow.name in BOUND_WIDER)
    assert found <= callable_
    hidden = ports_of(serving.plan, lambda flow: flow.loopback_only and flow.name not in BOUND_WIDER)
    assert {5005, 8265, 9400} <= hidden
    assert not found & hidden


def test_what_ray_shows_to_other_hosts_asks_for_the_token(serving: Pair) -> None:
    head = serving.head.host.address
    for path in ("6385/api/job_agent/jobs/", "6382/"):
        answer = serving.worker.ask("GET", f"http://{head}:{path}")
        assert answer["status"] == 401, answer
    stranger = ["env", "RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN_PATH=/dev/null"]
    counted = serving.worker.host.run(*stranger, "/opt/huddle/current/bin/huddle-ray-nodes", serving.cluster)
    assert counted.returncode != 0


def test_a_second_user_of_the_node_reads_no_secret(serving: Pair) -> None:
    for name in ("backend_key", "ray_token"):
        done = serving.head.host.run("cat", f"/etc/huddle/credentials/{name}", user="nobody")
        assert done.returncode != 0
        assert BACKEND_KEY not in done.stdout
        assert RAY_TOKEN not in done.stdout


def test_a_frozen_engine_is_seen_held_back_and_brought_back(serving: Pair) -> None:
    """The worker's engine stops moving: SIGSTOP, which leaves /health at 200."""
    node = serving.worker
    node.wait(lambda: '"verdict": "healthy"' in node.host.log(PROBE), "a healthy engine")
    frozen = node.host.run("pkill", "--signal=STOP", "--full", "EngineCore|VLLM::Worker")
    assert frozen.returncode == 0
    assert node.ask("GET", "http://127.0.0.1:5005/health")["status"] == 200
    node.wait(lambda: '"verdict": "suspect"' in node.host.log(PROBE), "a suspicion")
    node.wait(lambda: not node.ready(), "an unready wrapper", 60)
    node.wait(lambda: '"event": "restart"' in node.host.log(PROBE), "a restart", 300)
    kept = sorted((node.host.root / "var/lib/huddle-probe/0").glob("*.json"))
    evidence = json.loads(kept[0].read_text(encoding="utf-8"))
    assert "T" in {process.get("state") for process in evidence["processes"]}
    node.wait(node.ready, "an engine that came back")


def test_a_head_that_was_lost_comes_back_to_both_nodes(serving: Pair) -> None:
    head, worker = serving.both
    head.host.kill_all(RAY)
    worker.wait(lambda: worker.host.restarts(RAY) > 0, "a worker that has noticed", 300)
    for node in serving.both:
        assert node.ready(), "replicas serve without Ray"
    head.host.start(RAY)
    head.wait(lambda: head.ray_nodes(serving.cluster) == ["10.0.0.4", "10.0.0.5"], "two nodes again", 300)
