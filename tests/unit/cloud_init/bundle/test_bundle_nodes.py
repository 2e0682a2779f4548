"""What a bundle tells each node: what it runs, with which words, and what it serves to whom."""

from __future__ import annotations

import dataclasses
import json
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cloud_init import bundle
from cloud_init.bundle import shipped_registry
from cloud_init.bundle.services import Unit
from cloud_init.bundle.wrapper_config import wrapper_config
from cloud_init.huddle_apply.paths import NodePaths
from cloud_init.huddle_apply.services import readiness
from gateway_policies.entities import NODE_CANNOT_SERVE
from huddle import registry
from huddle.headers import BACKEND_KEY_HEADER, PROMPT_HASH_HEADER
from huddle.launch.cli import app as launch
from huddle.probe import ladder, verdict
from huddle.wrapper.config import WrapperConfig
from huddle.wrapper.routes import EngineRoute, Route
from plan.vocabulary import Segment, Topology
from tests.unit import stack_values
from tests.unit.cloud_init import rendered
from tests.unit.cloud_init.rendered import HEAD, KINDS, WORKER, built, environment, launch_words, node_json, plans


def test_two_nodes_differ_in_what_is_theirs_and_in_nothing_else() -> None:
    """Ray and vLLM get one address, each node its own (docs/facts/vllm-and-ray.md#one-address-per-node)."""
    head, worker = (environment("distributed", host, "ray.env") for host in (HEAD, WORKER))
    assert head["VLLM_HOST_IP"] == "10.0.0.4"
    assert worker["VLLM_HOST_IP"] == "10.0.0.5"
    assert {key for key in head if head[key] != worker[key]} == {"VLLM_HOST_IP", "HUDDLE_ROLE"}
    assert head["RAY_HEAD_IP"] == worker["RAY_HEAD_IP"] == "10.0.0.4"
    assert "--node-ip 10.0.0.4 " in launch_words("distributed", HEAD)
    assert f"http://{head['VLLM_HOST_IP']}:8000" == node_json("distributed", HEAD)["expects"]["wrapper"]


def test_the_fabric_is_the_sizes_and_nccl_looks_for_no_infiniband_over_tcp() -> None:
    for kind, fabric in (("dev", "tcp-40g"), ("distributed", "tcp-80g")):
        assert environment(kind, HEAD, "ray.env")["NCCL_IB_DISABLE"] == "1"
        assert f"--fabric {fabric} " in launch_words(kind, HEAD)


def test_the_engine_is_laid_out_as_the_plan_says() -> None:
    assert " --tp 1 --pp 1" in launch_words("dev", HEAD)
    assert " --tp 8 --pp 2 " in launch_words("distributed", HEAD)


def registry_files(kind: str) -> dict[str, bytes]:
    """A bundle's registry and what lies beside it."""
    files = built(kind).files.items()
    return {path.removeprefix("registry/"): content for path, content in files if path.startswith("registry/")}


def test_huddle_launch_takes_the_chat_template_of_the_bundle(tmp_path: Path) -> None:
    rendered.write(registry_files("dev"), tmp_path)
    line = [rendered.MODEL, "--registry", str(tmp_path / "models.yaml"), "--store", str(tmp_path), "--gpu", "h100-nvl"]
    argv = json.loads(CliRunner().invoke(launch, [*line, "--dry-run", "--json"]).stdout)["argv"]
    template = Path(argv[argv.index("--chat-template") + 1])
    assert template == tmp_path / "models" / "Llama-3.2-3B-Instruct" / "chat_template.jinja"
    shipped = registry.DEFAULT_PATH.parent / template.relative_to(tmp_path)
    assert template.read_bytes() == shipped.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_huddle_launch_takes_the_words_of_the_unit(kind: str, tmp_path: Path) -> None:
    rendered.write(registry_files(kind), tmp_path)
    words = launch_words(kind, HEAD).replace("/opt/huddle/current/registry", str(tmp_path))
    done = CliRunner().invoke(launch, [*words.split(), "--dry-run", "--gpu", plans()[kind].compute.size.gpu, "--json"])
    assert done.exit_code == 0, done.output + str(done.exception)
    command = json.loads(done.stdout)
    assert command["argv"][:2] == ["/opt/huddle/current/venv/bin/vllm", "serve"]
    distributed = plans()[kind].serving.topology is Topology.DISTRIBUTED
    assert command["env"]["VLLM_HOST_IP"] == ("10.0.0.4" if distributed else "127.0.0.1")
    assert command["env"]["GLOO_SOCKET_IFNAME"] == ("eth0" if distributed else "lo"), (
        "a replica opens nothing to others"
    )
    assert ("ray" in command["argv"]) == distributed


def test_a_model_across_nodes_is_launched_by_the_head_over_ray() -> None:
    words = launch_words("distributed", HEAD)
    assert words.endswith("--executor ray --nodes 2 --head 10.0.0.4")
    units = {host: [row["unit"] for row in node_json("distributed", host)["services"]] for host in (HEAD, WORKER)}
    assert units == {
        HEAD: [Unit.FIREWALL, Unit.RAY, Unit.MODELS, Unit.VLLM.of(0), Unit.WRAPPER, Unit.PROBE.of(0), Unit.JUPYTER],
        WORKER: [Unit.FIREWALL, Unit.RAY, Unit.MODELS],
    }
    assert node_json("distributed", HEAD)["expects"]["ray"]["required"] is True
    assert node_json("distributed", WORKER)["expects"]["answers"] == []


@pytest.mark.parametrize(
    ("kind", "expected"), [("dev", {Unit.MODELS}), ("distributed", {Unit.MODELS, Unit.RAY})], ids=["dev", "distributed"]
)
def test_another_copy_of_the_model_restarts_who_holds_a_part_of_it(kind: str, expected: set[Unit]) -> None:
    """The engine follows. Ray's workers of a model across nodes would load one copy here and another there."""
    for host in (HEAD, WORKER):
        rows = node_json(kind, host)["services"]
        assert {row["unit"] for row in rows if row["reads_model"]} == expected


def test_every_replica_serves_by_itself() -> None:
    for host in (HEAD, WORKER):
        node = node_json("dev", host)
        units = [Unit.FIREWALL, Unit.RAY, Unit.MODELS, Unit.VLLM.of(0), Unit.WRAPPER, Unit.PROBE.of(0)]
        assert [row["unit"] for row in node["services"]] == units
        assert node["expects"]["ray"]["required"] is False
        assert "--executor" not in launch_words("dev", host)


@pytest.mark.parametrize("kind", KINDS)
def test_hosts_maps_every_name_to_its_private_address(kind: str) -> None:
    hosts = built(kind).files["rootfs/etc/hosts"].decode().splitlines()
    for node in plans()[kind].nodes:
        assert f"{node.address} {node.name}" in hosts


@pytest.mark.parametrize("kind", KINDS)
def test_the_wrapper_understands_its_configuration(kind: str) -> None:
    plan = plans()[kind]
    for node in plan.nodes:
        config = WrapperConfig.model_validate(yaml.safe_load(built(kind).files[f"nodes/{node.name}/wrapper.yaml"]))
        assert config.listen == f"{node.address}:{plan.serving.wrapper_port}"
        ports = range(plan.serving.vllm_port, plan.serving.vllm_port + plan.serving.copies(node.model))
        assert [str(address) for address in config.addresses] == [f"http://127.0.0.1:{port}" for port in ports]
        assert len(set(config.verdict_files)) == len(ports)
        assert config.authentication is True
        assert config.gateway_addresses == (plan.callers[Segment.GATEWAY],)
        files = [
            *(model.system_prompt_file for model in config.models.values()),
            *(product.system_prompt_file for product in config.products.values()),
        ]
        for file in filter(None, files):
            assert str(file).removeprefix("/opt/huddle/current/") in built(kind).files


@pytest.mark.parametrize("words", [("--scheduling-policy", "priority"), ("--scheduling-policy=priority",)])
def test_the_wrapper_knows_an_engine_that_schedules_by_priority(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stack_values.plan(serving={"models": {rendered.MODEL: {}}})
    assert "priority_scheduling" not in wrapper_config(plan, plan.nodes[0])["models"][rendered.MODEL]
    shipped = shipped_registry.load()
    model = shipped.models[rendered.MODEL].model_copy(update={"extra_args": words})
    registry = dataclasses.replace(shipped, models={**shipped.models, rendered.MODEL: model})
    monkeypatch.setattr(shipped_registry, "load", lambda: registry)
    assert wrapper_config(plan, plan.nodes[0])["models"][rendered.MODEL]["priority_scheduling"] is True


def test_a_product_is_unknown_on_a_node_that_serves_none_of_its_models() -> None:
    small, large = (
        {"display_name": "A product", "models": [model]} for model in (rendered.MODEL, rendered.OTHER_MODEL)
    )
    plan = stack_values.plan(
        serving={"models": {rendered.MODEL: {"nodes": [1]}, rendered.OTHER_MODEL: {"nodes": [2]}}},
        gateway={"products": {"small": small, "large": large}},
    )
    files = bundle.build(plan).files
    first, second = (yaml.safe_load(files[f"nodes/{host}/wrapper.yaml"]) for host in (HEAD, WORKER))
    assert first["products"] == {"small": {"models": [rendered.MODEL], "weight": 1}}
    assert second["products"] == {"large": {"models": [rendered.OTHER_MODEL], "weight": 1}}
    assert set(second["models"]) == {rendered.OTHER_MODEL}


def test_the_program_on_the_node_knows_the_wrappers_headers() -> None:
    """It runs before our libraries are there, so it says them itself."""
    said = (readiness.BACKEND_KEY_HEADER, readiness.PROMPT_HASH_HEADER)
    assert tuple(name.lower() for name in said) == (BACKEND_KEY_HEADER, PROMPT_HASH_HEADER)


def test_the_program_on_the_node_knows_where_probes_speak() -> None:
    assert NodePaths(Path("/")).verdict(3) == verdict.path_of(3)


def test_the_program_on_the_node_has_a_question_for_each_route() -> None:
    paths = {word: question.path for word, question in readiness.QUESTIONS.items()}
    assert paths == {word.value: Route[word.name].value for word in EngineRoute}


def test_the_stacks_own_prompt_wins_and_readiness_asks_for_its_hash() -> None:
    plan = stack_values.plan(serving={"models": {rendered.MODEL: {"system_prompt": "  Be brief.\n"}}})
    files = bundle.build(plan).files
    assert files[f"prompts/models/{rendered.MODEL}.txt"] == b"Be brief.\n"
    answers = json.loads(files[f"nodes/{HEAD}/node.json"])["expects"]["answers"]
    names = [rendered.MODEL, "hl"]  # the engine answers to all of them, and says the first one
    prompt = sha256(b"Be brief.").hexdigest()
    assert answers == [{"model": rendered.MODEL, "route": "chat", "names": names, "prompt_sha256": prompt}]


def test_routes_go_to_the_wrapper_and_readiness_asks_on_one_of_them() -> None:
    plan = stack_values.plan(
        serving={"models": {rendered.MODEL: {"routes": ["embeddings", "responses"]}}},
        gateway={"products": {"apps": {"display_name": "Apps", "routes": ["responses"]}}},
    )
    files = bundle.build(plan).files
    config = WrapperConfig.model_validate(yaml.safe_load(files[f"nodes/{HEAD}/wrapper.yaml"]))
    assert config.models[rendered.MODEL].routes == (EngineRoute.EMBEDDINGS, EngineRoute.RESPONSES)
    assert config.products["apps"].routes == (EngineRoute.RESPONSES,)
    (answer,) = json.loads(files[f"nodes/{HEAD}/node.json"])["expects"]["answers"]
    assert answer["route"] == "responses"


@pytest.mark.parametrize("kind", KINDS)
def test_the_registry_in_the_bundle_serves_what_the_stack_names(kind: str, tmp_path: Path) -> None:
    rendered.write({"models.yaml": built(kind).files["registry/models.yaml"]}, tmp_path)
    known = registry.load(tmp_path / "models.yaml")
    shipped = registry.load()
    for served in plans()[kind].serving.models:
        assert known.resolve(served.name) == shipped.resolve(served.name)


def test_an_alias_brings_its_base() -> None:
    plan = stack_values.plan(serving={"models": {"hl": {}}})
    document = yaml.safe_load(bundle.build(plan).files["registry/models.yaml"])
    assert set(document["models"]) == {"llama-3.2-3b"}
    assert set(document["aliases"]) == {"hl"}


def test_what_a_sweep_found_travels_with_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"streams": 8, "tokens-per-s": 100.0, "ttft-p95-ms": 20.0, "token-p95-ms": 3.0}
    conditions = {"gpu": "h200-sxm", "vllm": "0.26.0", "tensor-parallel-size": 1, "pipeline-parallel-size": 1}
    found = {"load": "chat", **conditions, "date": "2026-11-29", "engines": 12, "flags": {"max-num-seqs": 512}}
    found |= {"whole": True, "digest": "0123456789ab"}
    tuned = registry.Tuned.model_validate({**found, "measured": {"tuned": [figures], "untold": [figures]}})
    shipped = shipped_registry.load()
    model = shipped.models[rendered.MODEL].model_copy(update={"tuned": (tuned,)})
    known = dataclasses.replace(shipped, models={**shipped.models, rendered.MODEL: model})
    monkeypatch.setattr(shipped_registry, "load", lambda: known)
    plan = stack_values.plan(serving={"models": {rendered.MODEL: {}}})
    rendered.write({"models.yaml": bundle.build(plan).files["registry/models.yaml"]}, tmp_path)
    assert registry.load(tmp_path / "models.yaml").models[rendered.MODEL].tuned == (tuned,)


def test_a_wrapper_that_ends_rests_at_the_gateway_as_long_as_its_node_waits() -> None:
    plan = rendered.plans()["dev"]
    told = wrapper_config(plan, plan.nodes[0])["timeouts"]["restart_s"]
    assert told == node_json("dev", HEAD)["rejoin_s"] == NODE_CANNOT_SERVE.rest_s


def test_each_gpu_of_a_node_has_an_engine_a_probe_and_a_place_behind_the_wrapper() -> None:
    node, config = (node_json("two-gpus", HEAD), yaml.safe_load(built("two-gpus").files[f"nodes/{HEAD}/wrapper.yaml"]))
    engines = ["huddle-vllm@0.service", "huddle-vllm@1.service"]
    probes = ["huddle-probe@0.service", "huddle-probe@1.service"]
    rows = {row["unit"]: row for row in node["services"]}
    assert list(rows) == [Unit.FIREWALL, Unit.RAY, Unit.MODELS, *engines, Unit.WRAPPER, *probes]
    assert rows[Unit.WRAPPER]["follows"] == engines
    assert node["expects"]["engines"] == engines == [ladder.unit_of(copy) for copy in (0, 1)], "as its probe ends it"
    assert config["upstream"] == ["http://127.0.0.1:5005", "http://127.0.0.1:5006"]
    assert config["probe_verdict_file"] == [f"/run/huddle-probe/{copy}/verdict.json" for copy in (0, 1)]
    assert config["limits"] == {"concurrency": 2048, "connections": 4096}
    for kind, host, own in (
        ("dev", HEAD, engines[:1]),
        ("distributed", HEAD, engines[:1]),
        ("distributed", WORKER, []),
    ):
        assert node_json(kind, host)["expects"]["engines"] == own


@pytest.mark.parametrize("copy", [0, 1])
def test_the_words_of_the_unit_start_each_engine_on_its_own_gpu_and_port(copy: int, tmp_path: Path) -> None:
    rendered.write(registry_files("two-gpus"), tmp_path)
    words = launch_words("two-gpus", HEAD).replace("/opt/huddle/current/registry", str(tmp_path)).split()
    done = CliRunner().invoke(launch, [*words, "--copy", str(copy), "--dry-run", "--gpu", "h100-nvl", "--json"])
    command = json.loads(done.stdout)
    assert command["env"]["CUDA_VISIBLE_DEVICES"] == str(copy)
    assert command["argv"][command["argv"].index("--port") + 1] == str(5005 + copy)
