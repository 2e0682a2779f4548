"""Several engines on a node: each has GPUs, ports, a record and a compile cache of its own, and a dry run shows it."""

import json
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle.launch import command
from huddle.launch.copies import Share
from huddle.launch.request import COPIES, RENDEZVOUS_PORTS
from tests.serving.launch.test_command import huddle, request
from tests.serving.launch.world import World
from tools.ports import reserve_port

# What nvidia-smi answers: the first GPU is full.
GPUS = """\
0, GPU-aaaa1111, NVIDIA H100 NVL, 95830, 90000, 5830
1, GPU-bbbb2222, NVIDIA H100 NVL, 95830, 4, 95826
"""


def two_gpus(world: World, more: str = "") -> None:
    (world.root / "gpus").write_text(GPUS + more)
    world.program("nvidia-smi", f'case "$1" in --query-gpu*) cat {world.root}/gpus;; esac')


class TestCommand:
    def test_no_two_copies_share_a_port_that_torch_may_take_and_all_are_in_the_table(self):
        first, last = RENDEZVOUS_PORTS
        starts = [int(command.build(request("llama-3.2-3b", copy=copy)).env["VLLM_PORT"]) for copy in range(COPIES)]
        assert starts == list(range(first, last + 1, 10)) == [29500 + 10 * copy for copy in range(8)]

    def test_a_copy_sees_its_gpus_and_no_other(self):
        env = command.build(request("llama-3.1-70b", copy=1, visible_gpus=("2", "3"))).env
        assert (env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"]) == ("2,3", "PCI_BUS_ID")
        assert not {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"} & set(command.build(request("llama-3.1-70b")).env)

    def test_copies_share_all_but_the_part_that_vllm_writes_in_place(self):
        first, second = (command.build(request("llama-3.1-8b", copy=copy)).env for copy in (0, 1))
        different = {name for name in first if first[name] != second[name]}
        assert different == {"VLLM_CACHE_ROOT", "VLLM_PORT"}
        assert second["VLLM_CACHE_ROOT"] == first["VLLM_CACHE_ROOT"] + "-1"


class TestDryRun:
    LINE = ("launch", "llama-3.2-3b", "--dry-run", "--gpu", "h100-nvl")

    def dry(self, *words: str, gpus: str | None = None) -> dict:
        done = huddle(*self.LINE, "--json", *words, env=None if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @pytest.mark.parametrize(
        ("words", "given", "gpus", "port", "torch"),
        [
            ([], None, "0", "5005", "29500"),
            (["--copy", "3"], None, "3", "5008", "29530"),
            (["--copy", "1", "--tp", "2", "--port", "7000"], None, "2,3", "7001", "29510"),
            (["--copy", "1"], "5,GPU-abc", "GPU-abc", "5006", "29510"),
            (["--copy", "1", "--tp", "2"], "7, 6, 5, 4", "5,4", "5006", "29510"),
        ],
    )
    def test_gpus_and_ports(self, words, given, gpus, port, torch):
        document = self.dry(*words, gpus=given)
        argv, env = document["argv"], document["env"]
        assert argv[argv.index("--port") + 1] == port
        assert (env["CUDA_VISIBLE_DEVICES"], env["VLLM_PORT"]) == (gpus, torch)

    @pytest.mark.parametrize(
        ("words", "given", "sentence"),
        [
            (["--copy", "8"], None, "--copy: '8' must be 7 or less"),
            (["--copy", "-1"], None, "--copy: '-1' must be 0 or more"),
            (["--copy", "7", "--port", "65530"], None, "--port 65530 leaves no port up to 65535 for copy 7"),
            (
                ["--copy", "1", "--tp", "2"],
                "0,1,2",
                "TP 2 × PP 1 needs 2 GPUs in CUDA_VISIBLE_DEVICES, from GPU 2 on, as copy 1; there are 3, "
                "GPU 3 is missing (counted from 0)",
            ),
            ([], "", "TP 1 × PP 1 needs 1 GPU in CUDA_VISIBLE_DEVICES; there are 0, GPU 0 is missing"),
            (
                ["--copy", "1", "--pp", "2", "--nodes", "2", "--node-ip", "127.0.0.1", "--head", "127.0.0.1"],
                None,
                "--copy 1: of 'llama-3.2-3b' there is one engine here, since it spans nodes, or Ray places it",
            ),
            (
                ["--copy", "1", "--executor", "ray", "--node-ip", "127.0.0.1"],
                None,
                "--copy 1: of 'llama-3.2-3b' there is one engine here, since it spans nodes, or Ray places it",
            ),
        ],
    )
    def test_one_sentence_and_exit_2(self, words, given, sentence):
        done = huddle(*self.LINE, *words, env=None if given is None else {"CUDA_VISIBLE_DEVICES": given})
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1

    def test_over_nodes_and_ray_the_gpus_are_not_chosen_here(self):
        place = ("--pp", "2", "--nodes", "2", "--node-ip", "127.0.0.1", "--head", "127.0.0.1")
        for words in (place, (*place, "--executor", "ray"), ("--device", "cpu")):
            assert "CUDA_VISIBLE_DEVICES" not in self.dry(*words)["env"]

    def test_an_engine_that_spreads_itself_takes_what_it_finds(self, tmp_path):
        entry = {"model": "Qwen/Qwen3-8B", "description": "own", "extra-args": ["--data-parallel-size", "2"]}
        (tmp_path / "models.yaml").write_text(json.dumps({"models": {"own": entry}}))
        line = ["launch", "own", "--dry-run", "--gpu", "h100-nvl", "--registry", str(tmp_path / "models.yaml")]
        shown = huddle(*line)
        assert shown.returncode == 0, shown.stderr
        assert "CUDA_VISIBLE_DEVICES" not in shown.stdout
        refused = huddle(*line, "--copy", "1")
        assert refused.returncode == 2
        assert "of 'own' there is one engine here, since its extra-args have data parallel" in refused.stderr

    @given(st.integers(1, 4), st.integers(0, 7), st.integers(0, 32))
    def test_copies_split_the_gpus_without_gap_or_overlap(self, each, copy, present):
        shares = [Share(each, 1, copy=number) for number in range(copy + 1)]
        assert [name for share in shares for name in share.names] == [str(gpu) for gpu in range(each * (copy + 1))]
        assert (shares[-1].shortage(present) is None) == (present >= each * (copy + 1))


class TestStart:
    def test_a_copy_is_judged_by_its_own_gpus(self, world):
        """GPU 0 is full, so only a look at exactly GPU 1 lets the second copy start."""
        two_gpus(world)
        port = reserve_port()
        process = world.launch("--copy", "1", "--port", str(port), device="cuda")
        world.wait_for(f"ready serve {world.model}")
        process.send(signal.SIGTERM)
        code, output = process.finish()
        assert code == 0, output
        assert "on the GPU 1" in output and f"--port {port + 1} " in output

    def test_a_copy_whose_gpus_are_not_there(self, world):
        two_gpus(world)
        sentence = "TP 1 × PP 2 needs 2 GPUs on this node, from GPU 2 on, as copy 1; there are 2, GPU 2 and GPU 3 are"
        assert sentence in world.refused("--copy", "1", "--pp", "2", device="cuda")
        assert sentence in world.refused("--copy", "1", "--pp", "2", "--gpu", "h100-nvl", device="cuda")
        two_gpus(world, "2, GPU-cccc, NVIDIA H100 NVL, 95830, 4, 95826\n")
        assert "there are 3, GPU 3 is missing" in world.refused("--copy", "1", "--pp", "2", device="cuda")

    def test_each_copy_has_a_record_of_its_own(self, world):
        code, output = world.launch("--copy", "1", engine="crash").finish()
        assert code == 3, output
        scratch = world.root / "workspace" / "scratch"
        assert [path.name for path in scratch.iterdir()] == ["launch-tiny@1.json"]
        world.notes.unlink()
        process = world.launch()  # without a pause
        world.wait_for(f"ready serve {world.model}")
        process.send(signal.SIGTERM)
        code, output = process.finish()
        assert code == 0
        assert "died young" not in output
