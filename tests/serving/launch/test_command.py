"""The launcher's command: exact words and variables, checked by running them in bash against a `vllm` that records."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from huddle import engine, registry, versions
from huddle.launch import command
from huddle.launch.request import Device, Executor, LaunchRequest, Node
from huddle.registry import reserved
from huddle.registry.schema import ModelSpec
from tools.deadlines import scaled

KNOWN = registry.load()
PINS = list(versions.load().cpu_engines)

ANY_CHARACTER = st.characters(exclude_characters="\0", exclude_categories=["Cs"])

# A vllm that writes down how it was called.
RECORDER = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["RECORD"], "w") as file:
    json.dump({{"argv": sys.argv[1:], "env": dict(os.environ)}}, file)
"""


def request(name: str, **changes) -> LaunchRequest:
    served = KNOWN.resolve(name)
    model = served.model
    made = LaunchRequest(
        served=served,
        served_names=KNOWN.served_names(name),
        model_path=f"/mnt/models/{model.store_directory}",
        local=True,
        tensor=model.tensor_parallel_size,
        pipeline=model.pipeline_parallel_size,
        gpu="h100-nvl",
        vllm_version=PINS[0],
        workspace="/mnt/nvme/workspace",
        chat_template=f"/opt/{model.store_directory}/{model.chat_template}" if model.chat_template else None,
        max_model_len=model.max_model_len,
        max_num_seqs=model.max_num_seqs,
        utilization=model.gpu_memory_utilization,
    )
    return replace(made, **changes)


def variants(name: str) -> list[LaunchRequest]:
    """Every form in which a model can be launched."""
    two = Node(ip="10.0.0.4", interface="eth0", count=2, head="10.0.0.4")
    return [
        request(name),
        request(name, front_ends=4, ready_timeout_s=1200),
        request(name, device=Device.CPU, gpu="cpu"),
        request(name, node=two, tensor=8, pipeline=2),
        request(name, node=replace(two, ip="10.0.0.5", rank=1), tensor=8, pipeline=2),
        request(name, node=two, tensor=8, pipeline=2, executor=Executor.RAY),
        request(name, local=False, model_path=KNOWN.resolve(name).model.model),
    ]


def huddle(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", "from huddle.cli import main; main()", *words]
    whole = {
        k: v for k, v in os.environ.items() if k not in {"MODEL_NAME", "HUDDLE_MODELS", "CUDA_VISIBLE_DEVICES"}
    } | (env or {})
    return subprocess.run(line, capture_output=True, text=True, timeout=scaled(60), check=False, env=whole)


@pytest.fixture
def recorder(tmp_path: Path) -> dict[str, str]:
    """An environment whose `vllm` records; the record is at $RECORD."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "vllm").write_text(RECORDER)
    (programs / "vllm").chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "RECORD": str(tmp_path / "record.json")}


def run_in_bash(text: str, env: dict[str, str]) -> dict:
    subprocess.run(["bash", "-euc", text], env=env, check=True, timeout=scaled(60))
    return json.loads(Path(env["RECORD"]).read_text())


class TestExactCommand:
    def test_the_seeds_model(self):
        assert shlex.join(command.build(request("llama-3.2-3b", front_ends=4)).argv) == (
            "vllm serve /mnt/models/Llama-3.2-3B-Instruct --served-model-name llama-3.2-3b hl --host 127.0.0.1 "
            '--port 5005 --shutdown-timeout 10 --structured-outputs-config \'{"backend":"xgrammar"}\' '
            "--allowed-media-domains nothing.invalid --api-server-count 4 "
            "--chat-template /opt/Llama-3.2-3B-Instruct/chat_template.jinja --dtype auto "
            "--tensor-parallel-size 1 --pipeline-parallel-size 1 --gpu-memory-utilization 0.9 --max-model-len 4096 "
            "--enable-auto-tool-choice --tool-call-parser llama3_json"
        )

    def test_what_torch_opens_on_every_address_has_a_known_port(self):
        assert command.build(request("llama-3.2-3b")).env["VLLM_PORT"] == "29500"

    def test_two_nodes_natively(self):
        head = Node(ip="10.0.0.4", interface="eth0", count=2, head="10.0.0.4")
        follower = replace(head, ip="10.0.0.5", rank=1)
        first, second = (command.build(request("llama-3.1-405b", node=node)) for node in (head, follower))
        place = "--nnodes 2 --node-rank {} --master-addr 10.0.0.4 --master-port 29501"
        assert shlex.join(first.argv).endswith(place.format(0))
        assert shlex.join(second.argv).endswith(place.format(1) + " --headless")
        assert "--port" in first.argv
        # A follower has no HTTP server, and exactly the leader's engine.
        assert not {"--port", "--host", "--api-server-count", "--served-model-name"} & set(second.argv)
        assert (first.env["VLLM_HOST_IP"], second.env["VLLM_HOST_IP"]) == ("10.0.0.4", "10.0.0.5")
        assert first.env["VLLM_CACHE_ROOT"] == second.env["VLLM_CACHE_ROOT"]

    def test_over_ray(self):
        node = Node(ip="10.0.0.4", interface="eth0", count=2, head="10.0.0.4")
        built = command.build(request("llama-3.1-405b", node=node, executor=Executor.RAY))
        assert "--nnodes" not in built.argv
        assert built.argv[built.argv.index("--distributed-executor-backend") + 1] == "ray"
        assert built.env["RAY_ADDRESS"] == "10.0.0.4:6379"
        copied = built.env["VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"].split(",")
        assert {"GLOO_SOCKET_IFNAME", "TRITON_CACHE_DIR", "TRANSFORMERS_OFFLINE"} <= set(copied)
        assert set(copied) <= set(built.env)
        assert "VLLM_RAY_WORKER_ENV_VARS" not in built.env  # docs/facts/vllm-and-ray.md#copied-variables

    def test_the_rays_token_is_named_by_its_file_only(self):
        node = Node(ip="10.0.0.4", interface="eth0", count=2, head="10.0.0.4")
        made = request("llama-3.1-405b", node=node, executor=Executor.RAY, ray_token_file="/run/credentials/ray_token")
        env = command.build(made).env
        assert (env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"]) == ("token", "/run/credentials/ray_token")
        assert "RAY_AUTH" not in env["VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"]
        assert "RAY_AUTH_MODE" not in command.build(replace(made, executor=Executor.MP)).env

    def test_a_credential_of_the_unit_is_found(self, tmp_path):
        (tmp_path / "ray_token").write_text("canary-token")
        words = ["--pp", "2", "--executor", "ray", "--nodes", "2", "--node-ip", "127.0.0.1", "--head", "127.0.0.1"]
        line = ["launch", "llama-3.1-8b", "--dry-run", "--gpu", "h100-nvl", *words]
        shown = huddle(*line, env={"CREDENTIALS_DIRECTORY": str(tmp_path)})
        assert f"RAY_AUTH_TOKEN_PATH={tmp_path}/ray_token" in shown.stdout
        assert "canary-token" not in shown.stdout + shown.stderr
        assert "RAY_AUTH" not in huddle(*line).stdout

    def test_the_engine_fetches_from_the_listed_hosts_only(self):
        line = ["launch", "llama-3.1-8b", "--dry-run", "--gpu", "h100-nvl"]
        listed = ["https://CDN.example/images/", "http://10.0.0.9:8080/a/", "https://cdn.example/more/"]
        shown = huddle(*line, *(word for url in listed for word in ("--media-url-prefix", url)))
        assert "--allowed-media-domains cdn.example 10.0.0.9 \\\n" in shown.stdout
        assert "VLLM_MEDIA_URL_ALLOW_REDIRECTS=0" in shown.stdout
        # An empty list would mean any host to the engine.
        assert "--allowed-media-domains nothing.invalid \\\n" in huddle(*line).stdout
        refused = huddle(*line, "--media-url-prefix", "https://cdn.example")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "--media-url-prefix: 'https://cdn.example' is not a URL prefix with a whole host" in refused.stderr

    def test_interfaces_and_the_fabric(self):
        tcp = command.build(request("llama-3.1-8b", node=Node(ip="10.0.0.4", interface="ens5"))).env
        assert tcp["NCCL_SOCKET_IFNAME"] == tcp["GLOO_SOCKET_IFNAME"] == "ens5"
        assert tcp["NCCL_IB_DISABLE"] == "1"
        rdma = command.build(request("llama-3.1-8b", node=Node(ip="10.0.0.4", interface="ens5", rdma=True))).env
        assert "NCCL_IB_DISABLE" not in rdma

    def test_offline_only_with_local_files(self):
        assert command.build(request("qwen3-8b")).env["HF_HUB_OFFLINE"] == "1"
        assert "HF_HUB_OFFLINE" not in command.build(request("qwen3-8b", local=False)).env

    def test_dangerous_switches_are_taken_from_the_inherited_environment(self):
        built = command.build(request("qwen3-8b"))
        inherited = {"VLLM_SERVER_DEV_MODE": "1", "HOME": "/home/x", "VLLM_HOST_IP": "8.8.8.8"}
        whole = built.environment(inherited)
        assert "VLLM_SERVER_DEV_MODE" not in whole
        assert (whole["HOME"], whole["VLLM_HOST_IP"]) == ("/home/x", "127.0.0.1")


@pytest.mark.parametrize("version", PINS)
@pytest.mark.parametrize("name", sorted(KNOWN.models))
def test_every_word_exists_in_the_pinned_engines(name, version):
    interface = engine.interface(version)
    assert interface is not None
    for made in variants(name):
        built = command.build(made)
        assert list(interface.objections(built.argv)) == []
        ours = {variable for variable in built.env if variable.startswith("VLLM_")}
        assert ours <= interface.variables
    assert set(reserved.DANGEROUS_ENV) <= interface.variables


def test_an_engine_without_the_option_is_noticed():
    interface = engine.interface(PINS[0])
    assert interface is not None
    assert list(interface.objections(["--no-such-flag", "--dtype", "bf16", "--tool-call-parser=x"])) == [
        f"vLLM {PINS[0]} has no option --no-such-flag",
        f"vLLM {PINS[0]} does not know --dtype bf16; it knows auto, bfloat16, float, float16, float32, half",
        *[s for s in interface.objections(["--tool-call-parser=x"]) if "llama3_json" in s],
    ]


def test_all_that_is_emitted_is_reserved_or_a_key_of_the_entry():
    keys = {f"--{field.alias}" for field in ModelSpec.model_fields.values()}
    for made in variants("gpt-oss-20b") + variants("llama-3.2-3b"):
        built = command.build(made)
        extra = set(made.served.model.extra_args)
        emitted = {word for word in built.argv if word.startswith("--")} - extra
        assert emitted <= reserved.FLAGS | keys
        by_default = {"VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_CPU_KVCACHE_SPACE"}  # an entry may set them otherwise
        assert set(built.env) <= reserved.ENV | by_default


class TestCacheDirectory:
    def test_what_compiles_differently_never_shares(self):
        base = request("llama-3.1-8b")
        others = [
            request("qwen3-8b"),
            replace(base, vllm_version="0.27.0"),
            replace(base, gpu="h100-sxm"),
            replace(base, tensor=2),
            replace(base, max_model_len=1024),
            replace(base, tensor=2, executor=Executor.RAY),
        ]
        directories = [command.cache_directory(made) for made in (base, *others)]
        assert len(set(directories)) == len(directories)

    def test_what_compiles_the_same_does_share(self):
        base = request("llama-3.1-8b")
        for other in (replace(base, port=1), replace(base, front_ends=4), replace(base, served_names=("x",))):
            assert command.cache_directory(other) == command.cache_directory(base)

    def test_all_caches_are_below_it_on_the_workspace(self):
        made = request("llama-3.1-8b", workspace="/fast")
        env = command.build(made).env
        root = str(command.cache_directory(made))
        assert root.startswith("/fast/vllm_cache/llama-3.1-8b/vllm-0.26.0-h100-nvl-")
        for variable in ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "FLASHINFER_WORKSPACE_BASE"):
            assert env[variable].startswith(root + "/")


class TestPasting:
    @pytest.mark.parametrize("name", ["gpt-oss-20b", "hl", "llama-3.1-70b-fp8"])
    def test_a_dry_run_pasted_into_bash_calls_vllm_exactly_so(self, name, recorder):
        shown = huddle("launch", name, "--dry-run", "--gpu", "h100-sxm")
        assert shown.returncode == 0, shown.stderr
        seen = run_in_bash(shown.stdout, recorder | {"VLLM_SERVER_DEV_MODE": "1"})
        document = json.loads(huddle("launch", name, "--dry-run", "--gpu", "h100-sxm", "--json").stdout)
        assert ["vllm", *seen["argv"]] == document["argv"]
        assert {key: seen["env"][key] for key in document["env"]} == document["env"]
        assert "VLLM_SERVER_DEV_MODE" not in seen["env"]

    @given(words=st.lists(st.text(ANY_CHARACTER, min_size=1), max_size=4))
    @settings(max_examples=25, deadline=None)
    def test_no_text_can_break_out_of_its_word(self, tmp_path_factory, words):
        directory = tmp_path_factory.mktemp("bin")
        (directory / "vllm").write_text(RECORDER)
        (directory / "vllm").chmod(0o755)
        env = {"PATH": f"{directory}:/usr/bin:/bin", "RECORD": str(directory / "record.json")}
        built = command.Command(("vllm", *words), {"FREE": "".join(words)})
        seen = run_in_bash(built.shell(), env)
        assert seen["argv"] == words
        assert seen["env"]["FREE"] == "".join(words)

    def test_the_name_may_come_from_the_environment(self):
        by_name = huddle("launch", "gpt-oss-20b", "--dry-run", "--gpu", "h100-nvl").stdout
        assert (
            huddle("launch", "--dry-run", "--gpu", "h100-nvl", env={"MODEL_NAME": "gpt-oss-20b"}).stdout
            == by_name
            != ""
        )

    def test_list(self):
        assert huddle("launch", "--list").stdout.split() == [served.name for served in KNOWN.served]

    def test_node_env_is_what_a_shell_can_read(self):
        done = huddle("launch", "--node-env", "--node-ip", "127.0.0.1")
        assert done.stdout.splitlines() == [
            "VLLM_HOST_IP=127.0.0.1",
            "NCCL_SOCKET_IFNAME=lo",
            "GLOO_SOCKET_IFNAME=lo",
            "TP_SOCKET_IFNAME=lo",
            "NCCL_IB_DISABLE=1",
        ]
        assert huddle("launch", "--node-env", "--node-ip", "192.0.2.1").returncode == 2


TWO_NODES = ("--nodes", "2", "--node-ip", "10.0.0.5", "--head", "10.0.0.4")


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ([], "which model? give its name or set MODEL_NAME"),
            (["llama-3.2-4b"], "did you mean 'llama-3.2-3b'"),
            (["llama-3.1-70b", "--tp", "1"], "weighs 131 GiB"),
            (["llama-3.1-8b", "--tp", "3"], "TP 3 does not divide the 32 attention heads"),
            (["llama-3.1-8b", "--nodes", "2", "--tp", "2"], "--node-ip is missing"),
            (["llama-3.1-8b", "--nodes", "2", "--tp", "2", "--node-ip", "127.0.0.1"], "--head is missing"),
            (["llama-3.1-8b", "--nodes", "2", "--node-ip", "127.0.0.1"], "2 nodes cannot share evenly"),
            (["llama-3.1-8b", "--node-rank", "1"], "--node-rank 1 is not below --nodes 1"),
            (["llama-3.1-8b", "--tp", "2", *TWO_NODES], "TP 2 would cross nodes of one GPU over 40 Gb/s TCP"),
            (
                ["llama-3.1-8b", "--pp", "2", "--executor", "ray", *TWO_NODES, "--node-rank", "1"],
                "other nodes join with ray start --address=10.0.0.4:6379 --node-ip-address=10.0.0.5",
            ),
        ],
    )
    def test_one_sentence_and_exit_2(self, words, sentence):
        done = huddle("launch", *words, "--dry-run", "--gpu", "h100-nvl")
        assert done.returncode == 2
        assert done.stdout == ""
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["TMPDIR", "TEMP", "TMP", "VLLM_RPC_BASE_PATH"])
def test_sockets_have_short_paths_whatever_the_temporary_directory_is(name: str) -> None:
    """A batch job's directory can be long; a Unix socket's path takes 107 bytes, and vLLM adds 37."""
    made = command.build(request("llama-3.2-3b"))
    long, short = "/" + 70 * "x", "/" + 69 * "x"
    assert made.environment({name: long})["VLLM_RPC_BASE_PATH"] == "/tmp"
    assert made.environment({name: "/" + 35 * "ü"})["VLLM_RPC_BASE_PATH"] == "/tmp", "bytes, not characters"
    assert made.environment({name: long}).get("TMPDIR") == (long if name == "TMPDIR" else None), "files stay there"
    assert made.environment({name: short}).get("VLLM_RPC_BASE_PATH") == (
        short if name == "VLLM_RPC_BASE_PATH" else None
    )
