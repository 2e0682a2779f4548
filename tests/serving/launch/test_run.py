"""The launcher at work: checks before the start, order at the end, nothing left behind."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle import engine, registry
from huddle.launch import backoff, gpu_state, supervise
from huddle.network import NetworkError, interface_of
from huddle.registry import files
from tests.serving.launch.world import World, alive, safetensors
from tools.deadlines import until

# What nvidia-smi answers: two H100 NVL, the first one held by a process of ours and by one out of sight.
GPUS = """\
0, GPU-aaaa1111, NVIDIA H100 NVL, 95830, 90000, 5830
1, GPU-bbbb2222, NVIDIA H100 NVL, 95830, 4, 95826
"""
APPS = f"GPU-aaaa1111, {os.getpid()}, 86000\nGPU-aaaa1111, 4194305, [N/A]\n"


def ready(world: World) -> None:
    world.wait_for(f"ready serve {world.model}")


def nobody_left(world: World) -> bool:
    pids = world.engine_pids()
    return len(pids) >= 3 and not any(alive(pid) for pid in pids)


class TestStop:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_streams_end_first_then_the_whole_tree(self, world, number):
        process = world.launch()
        ready(world)
        process.send(number)
        code, output = process.finish()
        assert code == 0, output
        assert world.noted()[-2:] == ["draining", "drained"]
        assert nobody_left(world)

    def test_with_several_front_ends_the_launcher_waits_for_the_last_request(self, world):
        """vLLM breaks the streams there (docs/benchmarks/h100.md), so it must not be told before."""
        process = world.launch("--api-server-count", "4", engine="fronts")
        ready(world)
        process.send(signal.SIGTERM)
        code, output = process.finish()
        assert code == 0, output
        told = world.noted()
        # Running, then waiting, then none; said twice.
        asked = ["asked 2.0 0.0", "asked 0.0 1.0", "asked 0.0 0.0", "asked 0.0 0.0"]
        assert told[-6:] == [*asked, "draining", "drained"]
        assert nobody_left(world)

    def test_a_second_signal_does_not_wait_for_the_last_request(self, world):
        process = world.launch("--api-server-count", "4", engine="busy")
        ready(world)
        process.send(signal.SIGTERM)
        world.wait_for("asked 2.0 0.0")
        process.send(signal.SIGTERM)
        code, output = process.finish()
        assert code in {0, supervise.FORCED}, output  # it may be gone before it is looked at
        assert "asked again" in output
        assert "draining" in world.noted()
        assert nobody_left(world)

    def test_a_second_signal_ends_the_waiting(self, world):
        process = world.supervised("stubborn", drain_s=600, kill_grace_s=0.2)
        ready(world)
        process.send(signal.SIGTERM)
        world.wait_for("draining")
        process.send(signal.SIGTERM)
        code, output = process.finish()
        assert code == supervise.FORCED
        assert "asked again" in output
        assert nobody_left(world)

    def test_what_ignores_sigterm_is_killed_after_the_drain(self, world):
        process = world.supervised("stubborn", drain_s=0, grace_s=0.2, kill_grace_s=0.2)
        ready(world)
        process.send(signal.SIGTERM)
        code, output = process.finish()
        assert code == supervise.FORCED
        assert "asked True" in output
        assert nobody_left(world)

    def test_a_stop_during_the_pause_starts_nothing(self, world):
        record = world.root / "workspace" / "scratch" / "launch-tiny.json"
        backoff.Record(record).died(1)
        process = world.launch()
        until(lambda: "waiting" in process.output, "pause")
        process.send(signal.SIGTERM)
        assert process.finish()[0] == 0
        assert world.noted() == []


class TestEndOfTheEngine:
    @pytest.mark.parametrize(("manners", "code"), [("crash", 3), ("killed", 128 + 9), ("orphans", 1)])
    def test_its_exit_code_and_no_process_left(self, world, manners, code):
        process = world.supervised(manners, drain_s=1, kill_grace_s=0.3)
        got, output = process.finish()
        assert got == code, output
        assert "asked False" in output
        assert nobody_left(world)

    def test_a_young_death_is_remembered_and_a_stop_in_order_forgets_it(self, world):
        code, output = world.launch(engine="crash").finish()
        assert code == 3
        assert "the engine ended by itself; exit code 3" in output
        record = backoff.Record(world.root / "workspace" / "scratch" / "launch-tiny.json")
        assert len(record.read()) == 1
        world.notes.unlink()
        process = world.launch()
        ready(world)  # after the pause of 5 s
        process.send(signal.SIGTERM)
        code, output = process.finish()
        assert code == 0
        assert "the last runs died young: waiting 5 s" in output
        assert record.read() == []


class TestLeftovers:
    def abandoned(self, world: World) -> list[int]:
        process = world.launch(engine="titled")
        ready(world)
        process.send(signal.SIGKILL)
        process.finish()
        return world.engine_pids()

    def test_are_named_and_refused(self, world):
        pids = self.abandoned(world)
        code, output = world.launch().finish()
        assert code == 2
        assert "left without their launcher" in output
        assert all(str(pid) in output for pid in pids)
        assert all(alive(pid) for pid in pids)

    def test_are_ended_when_asked(self, world):
        pids = self.abandoned(world)
        process = world.launch("--clear-leftovers")
        until(lambda: not any(alive(pid) for pid in pids), "leftovers ended")
        until(lambda: sum(note.startswith("ready") for note in world.noted()) == 2, "second engine ready")
        process.send(signal.SIGTERM)
        assert process.finish()[0] == 0

    def test_what_another_slot_left_is_not_ours_to_end(self, world, tmp_path):
        neighbour = World(tmp_path / "neighbour")
        try:
            pids = self.abandoned(neighbour)
            process = world.launch("--clear-leftovers")
            ready(world)
            process.send(signal.SIGTERM)
            assert process.finish()[0] == 0
            assert all(alive(pid) for pid in pids)
        finally:
            neighbour.clean_up()

    def test_an_engine_whose_launcher_lives_is_not_left_over(self, world):
        first = world.launch()
        ready(world)
        pids = world.engine_pids()
        second = world.launch("--clear-leftovers")
        until(lambda: sum(note.startswith("ready") for note in world.noted()) == 2, "second engine ready")
        assert all(alive(pid) for pid in pids)
        for process in (first, second):
            process.send(signal.SIGTERM)
            assert process.finish()[0] == 0


class TestBeforeTheStart:
    def test_the_holder_of_the_port_is_named(self, world):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            output = world.refused("--port", str(port))
        assert (
            f"port {port} on 127.0.0.1 cannot be used (Address already in use); held by pid {os.getpid()} (" in output
        )

    def test_no_gpu(self, world):
        world.env["PATH"] = str(world.root / "bin")
        output = world.refused(device="cuda")
        assert "no GPU on this node: nvidia-smi is not installed; use --device cpu" in output

    def test_a_driver_that_fails(self, world):
        world.program("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
        output = world.refused(device="cuda")
        assert "nvidia-smi failed with 18: Failed to initialize NVML: Driver/library version mismatch" in output

    def smi(self, world: World) -> None:
        (world.root / "gpus").write_text(GPUS)
        (world.root / "apps").write_text(APPS)
        world.program(
            "nvidia-smi", f'case "$1" in --query-gpu*) cat {world.root}/gpus;; *) cat {world.root}/apps;; esac'
        )

    def test_not_enough_free_memory(self, world):
        self.smi(world)
        output = world.refused(device="cuda")
        assert (
            "GPU 0 has 5,830 of 95,830 MiB free and gpu-memory-utilization 0.9 takes 85,801: 79,971 MiB are" in output
        )
        assert f"held by pid {os.getpid()} (" in output
        assert "pid 4194305 (not visible from here)" in output

    def test_the_start_is_announced_by_the_state_of_the_cache(self, world):
        self.smi(world)
        world.env["CUDA_VISIBLE_DEVICES"] = "1"
        for state in ("still empty", "found"):
            process = world.launch(device="cuda")
            ready(world)
            process.send(signal.SIGTERM)
            code, output = process.finish()
            assert code == 0
            assert f"compile cache {state}: {world.root}/workspace/vllm_cache/tiny/vllm-" in output
            assert "expect the first answer after about" in output
            assert f"vllm serve {world.model} --served-model-name tiny" in output
            world.notes.unlink()
            next((world.root / "workspace" / "vllm_cache" / "tiny").iterdir()).joinpath("vllm").mkdir(exist_ok=True)

    def test_the_free_gpu_is_used_when_it_is_the_visible_one(self, world):
        self.smi(world)
        world.env["CUDA_VISIBLE_DEVICES"] = "GPU-bbbb"
        process = world.launch(device="cuda")
        ready(world)
        process.send(signal.SIGTERM)
        assert process.finish()[0] == 0

    def test_fewer_gpus_than_asked(self, world):
        self.smi(world)
        assert "TP 2 × PP 2 needs 4 GPUs on this node; there are 2" in world.refused(
            "--tp", "2", "--pp", "2", device="cuda"
        )

    def test_an_unknown_gpu_is_named(self, world):
        self.smi(world)
        (world.root / "gpus").write_text("0, GPU-a, NVIDIA Z9, 1000, 0, 1000\n")
        assert "'NVIDIA Z9' is not in the GPU table; name the nearest with --gpu" in world.refused(device="cuda")

    def test_a_missing_model_program_or_workspace(self, world, tmp_path):
        assert "no program 'vlm' on PATH" in world.refused("--vllm", "vlm")
        assert "does not exist; create it or give --workspace" in world.refused(
            "--workspace", str(tmp_path / "nowhere")
        )

    def test_files_nowhere(self, world):
        for file in world.model.iterdir():
            file.unlink()
        world.model.rmdir()
        output = world.refused()
        assert f"the files of 'tiny' are in no model store; looked for {world.model}; publish the model" in output

    def test_an_address_of_another_node(self, world):
        assert "no interface of this node owns 192.0.2.7; it has 127.0.0.1 on lo" in world.refused(
            "--node-ip", "192.0.2.7"
        )


class TestModelFiles:
    def broken(self, world: World, name: str, content: str | bytes | None, *options: str) -> str:
        path = world.model / name
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return world.refused(*options)

    @pytest.mark.parametrize(
        ("name", "content", "sentence"),
        [
            ("config.json", None, "config.json: is missing"),
            ("config.json", "{", "config.json: is not readable JSON"),
            ("tokenizer.json", None, "no tokenizer; one of tokenizer.json"),
            ("model.safetensors", None, "no *.safetensors weights"),
            ("model.safetensors", safetensors()[:-1], "it was cut short, publish it again"),
            ("model.safetensors", b"\xff" * 64, "is not a safetensors file"),
            ("model.safetensors.index.json", '{"weight_map": {}}', "has no 'weight_map'"),
            ("model.safetensors.index.json", '{"weight_map": {"w": "../w"}}', "weights lie beside the index"),
            (
                "model.safetensors.index.json",
                '{"weight_map": {"w": "gone.safetensors"}}',
                "gone.safetensors: is missing",
            ),
            ("model.safetensors.index.json", "nonsense", "is not readable JSON"),
        ],
    )
    def test_is_refused_with_the_files_name(self, world, name, content, sentence):
        assert sentence in self.broken(world, name, content)

    def test_a_dry_run_refuses_them_too(self, world):
        assert "config.json: is missing" in self.broken(world, "config.json", None, "--dry-run")

    def test_an_empty_system_prompt(self, world):
        text = (world.root / "models.yaml").read_text()
        (world.root / "models.yaml").write_text(text + "    system-prompt: system_prompt.txt\n")
        sentence = "the system prompt of 'tiny' is empty; write one or drop 'system-prompt'"
        assert sentence in self.broken(world, "system_prompt.txt", "  \n")

    def test_a_missing_chat_template(self, world):
        text = (world.root / "models.yaml").read_text()
        (world.root / "models.yaml").write_text(text + "    chat-template: chat_template.jinja\n")
        assert "the chat template of 'tiny' is missing; looked for" in world.refused()

    def test_the_chat_template_beside_the_registry_wins_over_the_models_own(self, world):
        text = (world.root / "models.yaml").read_text()
        (world.root / "models.yaml").write_text(text + "    chat-template: chat_template.jinja\n")
        own, carried = (folder / "chat_template.jinja" for folder in (world.model, world.root / "models" / "tiny"))
        for template in (own, carried):
            template.parent.mkdir(parents=True, exist_ok=True)
            template.write_text("{{ messages }}")
            code, output = world.launch("--dry-run").finish()
            assert code == 0 and f"--chat-template {template}" in output

    def test_the_first_store_with_the_model_wins(self, tmp_path):
        model = registry.load().models["qwen3-8b"]
        assert files.locate(model, [tmp_path]) is None
        for name in ("slow", "fast"):
            (tmp_path / name / "Qwen3-8B").mkdir(parents=True)
        found = files.locate(model, [tmp_path / "none", tmp_path / "fast", tmp_path / "slow"])
        assert found == tmp_path / "fast" / "Qwen3-8B"


class TestParts:
    def test_nvidia_smis_answer(self):
        first, second = gpu_state.parse(GPUS, APPS)
        assert (first.total_mib, first.free_mib, [h.used_mib for h in first.holders]) == (95830, 5830, [86000, 0])
        assert second.holders == ()
        assert gpu_state.memory_problems([second], 0.9) == []
        assert gpu_state.parse("0, GPU-a, NVIDIA H100 NVL, [N/A], [N/A], [N/A]\n\n", "")[0].free_mib == 0

    def test_a_holder_is_named_without_the_blanks_that_vllm_pads_its_title_with(self):
        line = ["bash", "-c", 'exec -a "VLLM::EngineCore      " sleep 60']
        with subprocess.Popen(line) as process:
            command = Path(f"/proc/{process.pid}/cmdline")  # empty for a moment while one program becomes another
            until(lambda: command.read_bytes().startswith(b"VLLM"), "the process has its title")
            assert f"pid {process.pid} (VLLM::EngineCore 60, user " in str(gpu_state.Holder(process.pid, 1_000))
            process.kill()

    @given(st.lists(st.floats(0, 10_000), max_size=40))
    def test_pauses_grow_and_end(self, lifetimes):
        pause = backoff.wait_s(lifetimes)
        assert 0 <= pause <= backoff.LONGEST_WAIT_S
        assert backoff.wait_s([*lifetimes, backoff.YOUNG_S]) == 0
        assert backoff.wait_s([*lifetimes, 1.0]) >= max(backoff.FIRST_WAIT_S, pause)

    def test_pauses_double(self):
        assert [backoff.wait_s([1.0] * deaths) for deaths in range(8)] == [0, 5, 10, 20, 40, 80, 160, 300]

    def test_a_broken_record_counts_as_none(self, tmp_path):
        path = tmp_path / "record.json"
        for content in ("{", "3", '["x"]', "[null]"):
            path.write_text(content)
            assert backoff.Record(path).read() == []

    def test_the_interface_that_owns_an_address(self):
        assert interface_of("127.0.0.1") == "lo"
        own = [a.address for a in psutil.net_if_addrs()["lo"] if a.family == socket.AF_INET]
        assert "127.0.0.1" in own
        with pytest.raises(NetworkError):
            interface_of("192.0.2.7")

    def test_the_version_behind_a_program(self, tmp_path):
        info = tmp_path / "lib" / "python3.12" / "site-packages" / "vllm-0.26.0+cu130.dist-info"
        info.mkdir(parents=True)
        program = tmp_path / "bin" / "vllm"
        program.parent.mkdir()
        program.write_text(f"#!{tmp_path}/bin/python\n")
        assert engine.installed_version(program) == "0.26.0"
        program.write_text("#!/usr/bin/env python\n")
        assert engine.installed_version(program) is None
        assert engine.installed_version(tmp_path / "absent") is None

    def test_a_dry_run_in_json_is_one_document(self, world):
        code, output = world.launch("--dry-run", "--json").finish()
        assert code == 0
        assert json.loads(output)["argv"][:3] == ["vllm", "serve", str(world.model)]
        assert not world.notes.exists()
