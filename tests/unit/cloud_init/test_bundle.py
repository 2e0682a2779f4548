"""The bundle: the same bytes every time, everything a node needs, nothing secret, small."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cloud_init import bundle
from cloud_init.bundle import Kind, Piece, node_facts, parts, serving_code, shipped_registry
from cloud_init.bundle.services import Unit
from cloud_init.bundle.wrapper_config import wrapper_config
from cloud_init.delivery import run_command as apply
from cloud_init.huddle_apply import readiness
from components import gpu_node
from huddle import registry
from huddle.headers import BACKEND_KEY_HEADER, PROMPT_HASH_HEADER
from huddle.launch.cli import app as launch
from huddle.wrapper.config import WrapperConfig
from plan.vocabulary import Topology
from tests.unit import stack_values
from tests.unit.cloud_init import rendered
from tests.unit.cloud_init.rendered import KINDS, built, plans

HEAD, WORKER = "huddleai-h100-node-1", "huddleai-h100-node-2"
WHEEL = "wheels/huddle-0.1.0-py3-none-any.whl"
DIGEST_IN_A_FRESH_PROCESS = """
from cloud_init import bundle
from infra import program
print(bundle.build(program.load_plan("dev")).digest)
"""


def json_of(kind: str, path: str) -> dict[str, Any]:
    return json.loads(built(kind).files[path])


def piece_of(kind: str, name: str) -> Piece:
    return next(piece for piece in built(kind).pieces if piece.name == name)


def environment(kind: str, host: str, file: str) -> dict[str, str]:
    lines = built(kind).files[f"nodes/{host}/{file}"].decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_two_builds_are_the_same_bytes() -> None:
    first, again = bundle.build(plans()["dev"]), bundle.build(plans()["dev"])
    assert again.archive == first.archive
    assert again.digest == sha256(again.archive).hexdigest()
    assert again.name == f"huddle-{again.digest[:12]}"


def test_the_digest_does_not_depend_on_hash_seed_time_zone_or_umask() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST_IN_A_FRESH_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": f"UTC{seed}", "LC_ALL": "C"},
            cwd=Path(__file__).parents[3],
            umask=umask,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, umask in (("0", 0o022), ("1", 0o077))
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"serving": {"models": {rendered.OTHER_MODEL: {}}}}, id="model"),
        pytest.param({"serving": {"models": {rendered.MODEL: {"system_prompt": "Be brief."}}}}, id="prompt"),
        pytest.param({"gateway": {"products": {"more": {"display_name": "More"}}}}, id="product"),
        pytest.param({"serving": {"ports": {"wrapper": 8100}}}, id="port"),
        pytest.param({"jupyter": {"enabled": True}}, id="JupyterLab"),
        pytest.param({"nodes": {"count": 3, "quota_vcpus": 120}}, id="node count"),
    ],
)
def test_the_digest_follows_what_runs_on_the_node(changes: dict[str, Any]) -> None:
    assert rendered.digest(**changes) != rendered.digest()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tags": {"owner": "somebody"}}, id="tags"),
        pytest.param({"monitoring": {"retention_days": 90}}, id="retention"),
        pytest.param({"gateway": {"products": {"developers": {"display_name": "X"}}}}, id="a product's title"),
    ],
)
def test_the_digest_is_left_alone_by_what_does_not(changes: dict[str, Any]) -> None:
    assert rendered.digest(**changes) == rendered.digest()


def test_the_archive_holds_the_files_with_fixed_metadata() -> None:
    one = built("dev")
    with tarfile.open(fileobj=io.BytesIO(one.archive), mode="r:bz2") as archive:
        members = archive.getmembers()
        assert [member.name for member in members] == sorted(path for path in one.files if parts.kind_of(path) is None)
        for member in members:
            assert (member.uid, member.gid, member.mtime, member.isfile()) == (0, 0, 0, True)
            content = archive.extractfile(member)
            assert content is not None
            assert content.read() == one.files[member.name]
            executable = one.files[member.name].startswith(b"#!")
            assert bool(member.mode & stat.S_IXUSR) is executable, member.name


@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_covers_every_file(kind: str) -> None:
    files = dict(built(kind).files)
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["format"] == 1
    assert manifest["files"] == {path: sha256(content).hexdigest() for path, content in files.items()}
    assert manifest["parts"] == {
        "package": {"pieces": [["package", piece_of(kind, "package").digest]], "files": [WHEEL]},
        "installer": {
            "pieces": [["installer", piece_of(kind, "installer").digest]],
            "files": sorted(path for path in files if parts.kind_of(path) is Kind.INSTALLER),
        },
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_run_command_stays_within_our_limit(kind: str) -> None:
    plan = plans()[kind]
    script = rendered.script(plan, plan.nodes[0], built(kind))
    assert len(script) <= apply.SCRIPT_LIMIT_BYTES


def test_a_run_command_is_given_the_time_that_applying_may_take() -> None:
    assert node_facts.longest_s() <= gpu_node.APPLY_TIMEOUT_S


def test_a_bundle_that_outgrows_the_limit_is_refused_with_its_largest_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "SCRIPT_LIMIT_BYTES", 1000)
    plan = plans()["dev"]
    with pytest.raises(apply.ScriptTooLargeError, match=r"allowed: 1000\. Largest files of the bundle: \S+ \(\d+\), "):
        rendered.script(plan, plan.nodes[0], built("dev"))


def test_two_nodes_differ_in_what_is_theirs_and_in_nothing_else() -> None:
    """Ray and vLLM get one address, each node its own (docs/facts/vllm-and-ray.md#one-address-per-node)."""
    head, worker = (environment("distributed", host, "ray.env") for host in (HEAD, WORKER))
    assert head["VLLM_HOST_IP"] == "10.0.0.4"
    assert worker["VLLM_HOST_IP"] == "10.0.0.5"
    assert {key for key in head if head[key] != worker[key]} == {"VLLM_HOST_IP", "HUDDLE_ROLE"}
    assert head["RAY_HEAD_IP"] == worker["RAY_HEAD_IP"] == "10.0.0.4"
    assert "--node-ip 10.0.0.4 " in environment("distributed", HEAD, "engine.env")["HUDDLE_LAUNCH_WORDS"]
    assert (
        f"http://{head['VLLM_HOST_IP']}:8000" == json_of("distributed", f"nodes/{HEAD}/node.json")["expects"]["wrapper"]
    )


def test_the_fabric_is_the_sizes_and_nccl_looks_for_no_infiniband_over_tcp() -> None:
    for kind, fabric in (("dev", "tcp-40g"), ("distributed", "tcp-80g")):
        assert environment(kind, HEAD, "ray.env")["NCCL_IB_DISABLE"] == "1"
        assert f"--fabric {fabric} " in environment(kind, HEAD, "engine.env")["HUDDLE_LAUNCH_WORDS"]


def test_the_engine_is_laid_out_as_the_plan_says() -> None:
    assert " --tp 1 --pp 1" in environment("dev", HEAD, "engine.env")["HUDDLE_LAUNCH_WORDS"]
    assert " --tp 8 --pp 2 " in environment("distributed", HEAD, "engine.env")["HUDDLE_LAUNCH_WORDS"]


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
    words = environment(kind, HEAD, "engine.env")["HUDDLE_LAUNCH_WORDS"].replace(
        "/opt/huddle/current/registry", str(tmp_path)
    )
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
    words = environment("distributed", HEAD, "engine.env")["HUDDLE_LAUNCH_WORDS"]
    assert words.endswith("--executor ray --nodes 2 --head 10.0.0.4")
    units = {
        host: [row["unit"] for row in json_of("distributed", f"nodes/{host}/node.json")["services"]]
        for host in (HEAD, WORKER)
    }
    assert units == {
        HEAD: [Unit.FIREWALL, Unit.RAY, Unit.MODELS, Unit.VLLM, Unit.WRAPPER, Unit.PROBE, Unit.JUPYTER],
        WORKER: [Unit.FIREWALL, Unit.RAY, Unit.MODELS],
    }
    assert json_of("distributed", f"nodes/{HEAD}/node.json")["expects"]["ray"]["required"] is True
    assert json_of("distributed", f"nodes/{WORKER}/node.json")["expects"]["answers"] == []


@pytest.mark.parametrize(
    ("kind", "expected"), [("dev", {Unit.MODELS}), ("distributed", {Unit.MODELS, Unit.RAY})], ids=["dev", "distributed"]
)
def test_another_copy_of_the_model_restarts_who_holds_a_part_of_it(kind: str, expected: set[Unit]) -> None:
    """The engine follows. Ray's workers of a model across nodes would load one copy here and another there."""
    for host in (HEAD, WORKER):
        rows = json_of(kind, f"nodes/{host}/node.json")["services"]
        assert {row["unit"] for row in rows if row["reads_model"]} == expected


def test_every_replica_serves_by_itself() -> None:
    for host in (HEAD, WORKER):
        node = json_of("dev", f"nodes/{host}/node.json")
        units = [Unit.FIREWALL, Unit.RAY, Unit.MODELS, Unit.VLLM, Unit.WRAPPER, Unit.PROBE]
        assert [row["unit"] for row in node["services"]] == units
        assert node["expects"]["ray"]["required"] is False
        assert "--executor" not in environment("dev", host, "engine.env")["HUDDLE_LAUNCH_WORDS"]


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
        assert config.upstream == f"http://127.0.0.1:{plan.serving.vllm_port}"
        assert config.authentication is True
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
    assert first["products"] == {"small": {"models": [rendered.MODEL]}}
    assert second["products"] == {"large": {"models": [rendered.OTHER_MODEL]}}
    assert set(second["models"]) == {rendered.OTHER_MODEL}


def test_the_program_on_the_node_knows_the_wrappers_headers() -> None:
    """It runs before our libraries are there, so it says them itself."""
    said = (readiness.BACKEND_KEY_HEADER, readiness.PROMPT_HASH_HEADER)
    assert tuple(name.lower() for name in said) == (BACKEND_KEY_HEADER, PROMPT_HASH_HEADER)


def test_the_stacks_own_prompt_wins_and_readiness_asks_for_its_hash() -> None:
    plan = stack_values.plan(serving={"models": {rendered.MODEL: {"system_prompt": "  Be brief.\n"}}})
    files = bundle.build(plan).files
    assert files[f"prompts/models/{rendered.MODEL}.txt"] == b"Be brief.\n"
    answers = json.loads(files[f"nodes/{HEAD}/node.json"])["expects"]["answers"]
    names = [rendered.MODEL, "hl"]  # the engine answers to all of them, and says the first one
    assert answers == [{"model": rendered.MODEL, "names": names, "prompt_sha256": sha256(b"Be brief.").hexdigest()}]


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


def fingerprints(**changes: Any) -> dict[str, tuple[str, str]]:
    files = bundle.build(stack_values.plan(**changes)).files
    rows = json.loads(files[f"nodes/{HEAD}/node.json"])["services"]
    return {row["unit"]: (row["restart"], row["reload"]) for row in rows}


@pytest.mark.parametrize(
    ("changes", "restarted", "reloaded"),
    [
        pytest.param({}, set(), set(), id="nothing"),
        pytest.param(
            {"serving": {"models": {rendered.MODEL: {"system_prompt": "Be brief."}, "hl": {}}}},
            set(),
            {Unit.WRAPPER},
            id="a prompt",
        ),
        pytest.param(
            # The engine answers to its aliases' names, too.
            {"serving": {"models": {rendered.MODEL: {}}}},
            {Unit.VLLM},
            {Unit.WRAPPER},
            id="an alias less",
        ),
        pytest.param(
            {"gateway": {"products": {"more": {"display_name": "More"}}}}, set(), {Unit.WRAPPER}, id="a product"
        ),
        pytest.param(
            {"serving": {"models": {rendered.OTHER_MODEL: {}}}},
            {Unit.MODELS, Unit.VLLM},
            {Unit.WRAPPER},
            id="the model",
        ),
        pytest.param(
            {"serving": {"ports": {"wrapper": 8100}}},
            {Unit.WRAPPER},
            {Unit.WRAPPER, Unit.FIREWALL},
            id="the wrapper's port",
        ),
        pytest.param({"serving": {"ports": {"ray_gcs": 6300}}}, {Unit.RAY}, {Unit.FIREWALL}, id="a port of Ray"),
        pytest.param({"nodes": {"count": 3, "quota_vcpus": 120}}, set(), set(), id="one more node"),
    ],
)
def test_a_change_restarts_what_is_made_from_it(
    changes: dict[str, Any], restarted: set[str], reloaded: set[str]
) -> None:
    before, after = fingerprints(), fingerprints(**changes)
    assert {unit for unit in after if after[unit][0] != before[unit][0]} == restarted
    assert {unit for unit in after if after[unit][1] != before[unit][1]} == reloaded


def test_another_chat_template_restarts_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprints()
    shutil.copytree(registry.DEFAULT_PATH.parent, tmp_path / "data")
    template = tmp_path / "data" / "models" / "Llama-3.2-3B-Instruct" / "chat_template.jinja"
    template.write_text("{{ messages }}", encoding="utf-8")
    known = registry.load(tmp_path / "data" / "models.yaml")
    monkeypatch.setattr(shipped_registry, "load", lambda: known)
    after = fingerprints()
    assert {unit for unit in after if after[unit] != before[unit]} == {Unit.VLLM}


def test_the_wrappers_code_does_not_restart_the_engine() -> None:
    engine, wrapper = (set(serving_code.closure(f"huddle.{name}.cli")) for name in ("launch", "wrapper"))
    assert "huddle/wrapper/server.py" in wrapper - engine
    assert "huddle/launch/command.py" in engine - wrapper
    assert "huddle/registry/loader.py" in engine


@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_and_no_operator_is_in_a_bundle(kind: str) -> None:
    plan = plans()[kind]
    text = b"\n".join(built(kind).files.values()).decode(errors="replace") + rendered.script(
        plan, plan.nodes[0], built(kind)
    )
    for key in plan.compute.ssh_public_keys:
        assert key not in text
    assert "BEGIN " not in text
    node = json_of(kind, f"nodes/{plan.nodes[0].name}/node.json")
    assert node["credentials"] == {
        "backend_key": {"secret": "backend-key", "required": True},
        "ray_token": {"secret": "ray-token", "required": True},
        "model_hub_token": {"secret": "model-hub-token", "required": False},
    }


def test_jupyterlab_is_there_only_when_asked_for() -> None:
    unit, lock = f"rootfs/etc/systemd/system/{Unit.JUPYTER}", "requirements/jupyter.lock"
    assert unit not in built("dev").files
    assert lock not in built("dev").files
    assert unit in built("distributed").files
    assert lock in built("distributed").files


def test_collectives_get_the_port_range_that_the_security_groups_allow() -> None:
    path = "rootfs/etc/sysctl.d/60-huddle.conf"
    assert path not in built("dev").files
    line = built("distributed").files[path].decode().splitlines()[-1]
    span = next(flow.ports[0] for flow in plans()["distributed"].flows if flow.name == "collectives")
    assert line == f"net.ipv4.ip_local_port_range = {span[0]} {span[1]}"
