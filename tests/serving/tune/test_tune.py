"""`huddle tune` with engines as processes: what is started, measured, kept and written, and what is refused before."""

import json
import os
import signal
import socket

import pytest
from typer.testing import CliRunner

from huddle import registry
from huddle.errors import InputError
from huddle.launch.request import COPIES, RENDEZVOUS_PORTS
from huddle.registry import Flags
from huddle.tune import cli, ports, search
from huddle.tune.load import Target
from huddle.tune.results import Results
from tests.serving.launch.world import alive
from tools.deadlines import until
from tools.ports import reserve_port

from .conftest import REGISTRY, Bed

FEW = ("--fix", "max-num-seqs", "--try", "kv-cache-dtype")
FEWEST = ("--fix", "max-num-seqs", "--fix", "max-num-batched-tokens")  # API servers only
GPUS = "0, GPU-aaaa1111, NVIDIA H100 NVL, 95830, 4, 95826\n"


def results(bed: Bed) -> Results:
    (path,) = (bed.root / "workspace" / "tune").glob("*.json")
    return Results.model_validate_json(path.read_bytes())


def nobody_left(bed: Bed) -> bool:
    return bool(bed.engine_pids()) and not any(alive(pid) for pid in bed.engine_pids())


@pytest.mark.slow
class TestSweep:
    def test_finds_the_known_optimum_and_the_launcher_uses_it(self, bed):
        code, output = bed.tune(*FEW, "--json").finish()
        assert code == 0, output
        document = json.loads(output[output.index("\n{") :])
        (chat,) = document["loads"]
        assert chat["flags"] == {"max-num-batched-tokens": 16384, "api-server-count": 2}
        assert chat["left_out"]["max-num-batched-tokens 16384, kv-cache-dtype fp8"] == (
            "ValueError: this GPU has no fp8 cache"
        )
        assert chat["to_untold"] > 2 and chat["to_plain"] > chat["to_untold"]
        assert document["whole"] and nobody_left(bed)
        # Every engine was the launcher's, but for the plain one; a load's prompts are of its length, each its own.
        plain = [argv for argv in bed.engines() if "--dtype" not in argv]
        (port,) = {argv.partition("--port ")[2].split()[0] for argv in bed.engines()}
        assert int(port) in ports.PORTS, "where no wrapper and no probe of a node looks"
        assert plain == [f"serve {bed.model} --host 127.0.0.1 --port {port}"]
        asked = [line.split(" ", 2) for line in bed.noted() if line.startswith("asked ")]
        assert all(abs(int(tokens) - 512) <= 3 for _, tokens, _ in asked)
        assert len(asked) == 7 * 40, "an engine's, less the one that failed"
        (tuned,) = registry.load(bed.registry).models["tiny"].tuned
        assert (tuned.gpu, tuned.vllm, tuned.engines, tuned.load) == ("cpu", "0.26.0", 8, "chat")
        assert tuned.whole and chat["whole"] and chat["written"] and chat["warnings"] == []
        assert [len(levels) for levels in (tuned.measured.tuned, tuned.measured.untold, tuned.measured.plain)] == [
            1
        ] * 3
        assert REGISTRY.splitlines()[2] in bed.registry.read_text()
        code, output = bed.launch("--dry-run").finish()
        assert "--max-num-batched-tokens 16384" in output and "--api-server-count 2" in output
        # A second run has nothing left to measure.
        started = len(bed.engines())
        code, again = bed.tune(*FEW).finish()
        assert code == 0 and len(bed.engines()) == started
        assert "best: max-num-batched-tokens 16384, api-server-count 2" in again
        words = f"huddle launch tiny --registry {bed.registry} --load chat"
        assert f"written into {bed.registry}: `{words}` uses it on cpu from now on" in again
        # With what the entry says now, it is another engine.
        bed.registry.write_text(bed.registry.read_text().replace("max-model-len: 2048", "max-model-len: 1024"))
        code, output = bed.launch("--dry-run").finish()
        assert "but beside other settings than these" in output and "--max-num-batched-tokens" not in output

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_stop_leaves_nothing_behind_and_the_next_run_goes_on(self, bed, number):
        few = FEWEST
        process = bed.tune(*few)
        until(lambda: len(bed.engines()) == 2 and bed.noted()[-1].startswith("asked"), "the second is under load")
        process.send(number)
        code, output = process.finish()
        assert code == 1, output
        assert "stopped; 1 engines are in" in output and "Traceback" not in output
        assert nobody_left(bed)
        assert [run.flags for run in results(bed).runs] == [Flags()]
        assert bed.registry.read_text() == REGISTRY
        code, output = bed.tune(*few).finish()
        assert code == 0, output
        assert [run.flags for run in results(bed).runs] == [Flags(), None, Flags(api_server_count=2)]
        assert len(bed.engines()) == 4

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_stop_while_an_engine_is_being_stopped_waits_for_its_end(self, bed, number):
        bed.env["STOPS_S"] = "1.5"
        process = bed.tune(*FEW)
        bed.wait_for("stopping")
        process.send(number)
        process.send(number)
        code, output = process.finish()
        assert nobody_left(bed), "at the very moment when the sweep has ended"
        assert code == 1 and "Traceback" not in output and "stopped; 0 engines are in" in output
        assert bed.noted()[-1] == "stopped" and len(bed.engines()) == 1

    def test_an_untold_engine_that_does_not_start_ends_it(self, bed):
        bed.env["BROKEN"] = "--dtype"
        code, output = bed.tune().finish()
        assert code == 1
        assert "the engine as `huddle launch` starts it cannot be measured: ValueError: this GPU" in output
        assert len(bed.engines()) == 1 and bed.registry.read_text() == REGISTRY

    def test_a_sweep_that_was_cut_says_so_and_replaces_nothing_better(self, bed):
        code, output = bed.tune(*FEWEST, "--minutes", "0").finish()
        assert code == 0 and "the time is over after 1 engines; the same command goes on from there" in output
        assert "nothing is written for the load chat: no engine with other flags than untold was measured" in output
        assert bed.registry.read_text() == REGISTRY
        # Results of other streams do not count: one engine in any case, and nothing to say of them yet.
        code, output = bed.tune(*FEWEST, "--minutes", "0", "--streams", "4").finish()
        assert code == 0 and len(bed.engines()) == 2, output
        code, output = bed.tune(*FEWEST).finish()
        assert code == 0 and [one.engines for one in self.found(bed)] == [3], output
        whole = bed.registry.read_text()
        code, output = bed.tune("--results", str(bed.root / "other.json"), *FEWEST, "--no-plain").finish()
        assert code == 0, output
        assert "keeps for the load chat what a whole sweep of 3 engines (" in output
        assert "found, and this one has 2; --afresh measures anew and replaces it" in output
        assert "written into" not in output and bed.registry.read_text() == whole

    def test_a_load_that_had_no_turn_is_left_out_with_a_sentence(self, bed):
        bed.registry.write_text(REGISTRY.replace("max-model-len: 2048", "max-model-len: 16384"))
        few = (*FEWEST, "--no-plain")
        code, output = bed.tune(*few, "--load", "chat").finish()
        assert code == 0, output
        code, output = bed.tune(*few, "--minutes", "0").finish()
        assert code == 0 and "Traceback" not in output, output
        assert "the time is over after 2 engines" in output and len(bed.engines()) == 2
        assert "nothing can be said of the load documents yet: the untold engine has not been under it" in output
        assert "best: api-server-count 2" in output
        assert [one.load for one in self.found(bed)] == ["chat"]

    def found(self, bed):
        return registry.load(bed.registry).models["tiny"].tuned

    def test_the_second_of_two_sweeps_is_refused(self, bed):
        first = bed.tune(*FEWEST)
        until(lambda: len(bed.engines()) == 1, "the first has started an engine")
        code, output = bed.tune(*FEWEST, "--afresh").finish()
        own = bed.root / "workspace" / "tune"
        assert code == 2 and len(bed.engines()) == 1
        sentence = f"another `huddle tune` is writing {own / 'tiny-cpu-vllm-0.26.0.json'}; wait for its end, or name"
        assert sentence in output and "Traceback" not in output
        # Another copy has results and logs of its own.
        second = bed.tune(*FEWEST, "--copy", "1")
        for sweep in (first, second):
            code, output = sweep.finish()
            assert code == 0, output
        assert sorted(path.name for path in own.glob("*.json")) == [
            "tiny-cpu-vllm-0.26.0.json",
            "tiny@1-cpu-vllm-0.26.0.json",
        ]
        assert sorted(path.name for path in (own / "logs").iterdir()) == ["tiny", "tiny@1"]

    def test_an_engine_that_answers_too_little_is_left_out(self, bed):
        bed.env["SHORT"] = "--api-server-count"
        few = (*FEWEST, "--no-plain")
        code, output = bed.tune(*few).finish()
        assert code == 0, output
        assert "not taken: api-server-count 2: 10 of 10 answers failed at 10 streams: 15 tokens: " in output
        assert "best: untold: 1.00 times the untold tokens/s\n" in output
        assert registry.load(bed.registry).models["tiny"].tuned[0].flags == Flags()


class TestDryRun:
    def test_says_what_and_how_long_and_starts_nothing(self, bed):
        code, output = bed.tune("--dry-run", "--gpu", "h200", device="cuda").finish()
        assert code == 0, output
        assert "10 engines at most, about " in output and "min at most; 0 are in" in output
        assert "chat: 512 tokens in, 128 out, 10 streams" in output
        assert f"plain: vllm serve {bed.model} --host" in output
        assert "--kv-cache-dtype" not in output and "--enable-prefix-caching" not in output
        assert not bed.notes.exists() and not list((bed.root / "workspace").iterdir())

    def test_what_may_change_answers_or_mislead_is_tried_only_when_asked(self, bed):
        more = [word for name in search.ON_REQUEST for word in ("--try", name)]
        code, output = bed.tune("--dry-run", "--gpu", "h200", *more, device="cuda").finish()
        assert code == 0, output
        assert "then --kv-cache-dtype: fp8" in output and "then --enable-prefix-caching: false" in output

    @pytest.mark.parametrize(("engines", "most"), [("1", 8), ("4", 4), ("8", 2)])
    def test_engines_of_the_node_share_its_cores(self, bed, monkeypatch, engines, most):
        monkeypatch.setattr(os, "cpu_count", lambda: 32)
        monkeypatch.setenv("PATH", f"{bed.root / 'bin'}:{os.environ['PATH']}")
        words = ["tiny", "--device", "cpu", "--registry", str(bed.registry), "--store", str(bed.root / "store")]
        words += ["--workspace", str(bed.root / "workspace"), "--load", "chat", "--dry-run", "--json"]
        done = CliRunner().invoke(cli.app, [*words, "--engines", engines])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["flags"]["api-server-count"][-1] == most

    def test_in_json(self, bed):
        code, output = bed.tune("--dry-run", "--json", "--gpu", "h200", "--load", "chat", device="cuda").finish()
        document = json.loads(output)
        assert code == 0 and document["conditions"]["gpu"] == "h200-sxm"
        assert document["flags"]["max-num-batched-tokens"] == [2048, 4096, 16384], "8192 is this GPU's own"
        assert document["minutes_at_most"] > 5


class TestRefusals:
    def refused(self, bed: Bed, *words: str, device: str = "cpu") -> str:
        code, output = bed.tune(*words, device=device).finish()
        assert code == 2, output
        assert "Traceback" not in output and not bed.notes.exists()
        assert bed.registry.read_text() == REGISTRY
        return output

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["--load", "documents"], "the load documents needs sequences of 8,512 tokens, and 'tiny' has 2,048"),
            (["--load", "poems"], "'poems' is not one of 'chat', 'documents'"),
            (["--streams", "8,x"], "--streams '8,x' must be numbers from 1 to 4096"),
            (["--fix", "tensor"], "--fix 'tensor' must be one of max-num-batched-tokens, kv-cache-dtype"),
            (["--try", "max-num-seqs"], "--try 'max-num-seqs' must be one of kv-cache-dtype, enable-prefix-caching"),
            ([*FEW, "--fix", "kv-cache-dtype"], "--fix kv-cache-dtype and --try kv-cache-dtype cannot be given"),
            (["--vllm", "/nowhere/vllm"], "no program '/nowhere/vllm' on PATH"),
            (["--workspace", "/nowhere"], "the workspace /nowhere does not exist"),
        ],
    )
    def test_one_sentence_and_exit_2(self, bed, words, sentence):
        assert sentence in self.refused(bed, *words)

    def test_an_unknown_model(self, bed):
        bed.registry.write_text(REGISTRY.replace("tiny", "tinny"))
        code, output = bed.tune().finish()
        assert code == 2 and "no model or alias 'tiny'" in output

    def test_no_gpu(self, bed):
        bed.env["PATH"] = str(bed.root / "bin")
        assert "no GPU on this node: nvidia-smi is not installed" in self.refused(bed, device="cuda")

    def test_a_gpu_that_somebody_uses(self, bed):
        (bed.root / "gpus").write_text(GPUS.replace("4, 95826", "90000, 5830"))
        bed.program("nvidia-smi", f'case "$1" in --query-gpu*) cat {bed.root}/gpus;; esac')
        assert "GPU 0 has 5,830 of 95,830 MiB free" in self.refused(bed, device="cuda")

    def test_an_unwritable_registry_is_told_before_the_sweep(self, bed):
        (bed.root / ".models.yaml.tuned").mkdir()  # stops root, too, whom permissions do not
        assert "models.yaml: cannot write what is found (Is a directory); copy the registry" in self.refused(bed)

    def test_results_of_other_conditions(self, bed):
        own = bed.root / "workspace" / "tune"
        Results(conditions={"gpu": "h200-sxm"}).write(own / "tiny-cpu-vllm-0.26.0.json")
        assert "and here it is" in self.refused(bed)

    def test_results_that_cannot_be_kept(self, bed):
        (bed.root / "file").touch()
        said = self.refused(bed, "--results", str(bed.root / "file" / "r.json"))
        assert "cannot keep results there (Not a directory)" in said or "File exists" in said


def test_each_sweep_has_a_port_of_its_own_that_no_node_serves_at(monkeypatch):
    assert not {*ports.PORTS} & {*range(5005, 5005 + COPIES), *range(*RENDEZVOUS_PORTS)}
    few = [reserve_port() for _ in range(4)]
    monkeypatch.setattr(ports, "PORTS", few)
    monkeypatch.setattr(ports, "_held", [])
    with socket.create_server(("127.0.0.1", few[0])):
        assert sorted(ports.reserve() for _ in few[1:]) == sorted(few[1:])
        with pytest.raises(InputError, match=f"no port from {few[0]} to {few[-1]} is free; name one with --port"):
            ports.reserve()


def test_no_two_prompts_of_a_load_are_the_same_but_their_beginning_is():
    target = Target(1, "m", letters=40, shared="all begin so ")
    prompts = [json.loads(target.request(seed).partition(b"\r\n\r\n")[2])["messages"][0]["content"] for seed in (1, 2)]
    assert all(prompt.startswith("all begin so ") for prompt in prompts) and prompts[0][13:] != prompts[1][13:]
    assert target.request(1) == target.request(1)
