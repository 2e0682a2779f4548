"""The bundle's program when something fails: the old bundle serves on, or serves again; the reason is one sentence."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from cloud_init.huddle_apply import ledger
from cloud_init.huddle_apply import main as program
from cloud_init.huddle_apply.installed import libraries
from cloud_init.huddle_apply.services import readiness
from tests.unit.cloud_init import node as nodes
from tests.unit.cloud_init.node import (
    MOUNTS,
    VLLM,
    WRAPPER,
    Delivered,
    FakeNode,
    apply,
    deliver,
    engine_changed,
)


class TestGoingBack:
    """A bundle that never becomes ready gives way to the one before."""

    def test_the_old_bundle_serves_again(self, node: FakeNode, capfd: pytest.CaptureFixture[str]) -> None:
        before = deliver(node.port)
        apply(node, before)
        node.calls()
        after = engine_changed(node.port)
        node.dumb.add(after.digest)
        assert apply(node, after) == 1
        status = node.status()
        assert node.serving() == status["bundle"] == before.digest
        assert status["wanted"] == after.digest
        assert status["state"] == "rolled-back"
        assert status["failed_phase"] == "readiness"
        assert status["reason"].startswith("not ready after 1 s: the wrapper answers 503 for ")
        assert status["reason"].endswith(f"; bundle {before.digest[:12]} serves again")
        assert node.calls("start") == [
            f"systemctl start --no-block {MOUNTS} {VLLM} {WRAPPER}",
            f"systemctl start --no-block {MOUNTS} {VLLM} {WRAPPER}",
        ]
        captured = capfd.readouterr()
        assert "the log of huddleai_api.service" in captured.err
        assert captured.err.rstrip().splitlines()[-1].startswith("huddle-apply: readiness: not ready after 1 s")

    def test_a_failed_unit_ends_the_wait(self, node: FakeNode, capfd: pytest.CaptureFixture[str]) -> None:
        apply(node, deliver(node.port))
        node.set(f"broken/{VLLM}", "")
        assert apply(node, engine_changed(node.port)) == 1
        assert node.status()["reason"].startswith(f"{VLLM} has failed; bundle ")
        assert f"the log of {VLLM}" in capfd.readouterr().err

    def test_neither_serves(self, node: FakeNode) -> None:
        before, after = deliver(node.port), engine_changed(node.port)
        apply(node, before)
        node.dumb |= {before.digest, after.digest}
        assert apply(node, after) == 1
        status = node.status()
        assert status["state"] == "failed"
        assert status["reason"].endswith(f"; bundle {before.digest[:12]} does not serve either")

    def test_the_first_bundle_has_nothing_to_go_back_to(self, node: FakeNode) -> None:
        bundle = deliver(node.port)
        node.dumb.add(bundle.digest)
        assert apply(node, bundle) == 1
        status = node.status()
        assert (status["state"], status["bundle"], node.serving()) == ("failed", bundle.digest, bundle.digest)

    def test_two_that_never_served_do_not_go_back_to_each_other(self, node: FakeNode) -> None:
        first, second = deliver(node.port), engine_changed(node.port)
        node.dumb |= {first.digest, second.digest}
        apply(node, first)
        node.calls()
        assert apply(node, second) == 1
        assert len(node.calls("start")) == 2
        assert node.status()["reason"].endswith(f"; bundle {first.digest[:12]} does not serve either")

    def test_it_can_be_tried_again(self, node: FakeNode) -> None:
        before, after = deliver(node.port), engine_changed(node.port)
        apply(node, before)
        node.dumb.add(after.digest)
        apply(node, after)
        node.dumb.clear()
        assert apply(node, after) == 0
        assert node.serving() == after.digest


class TestCutOff:
    """A power cut, or Azure's own deadline, between the switch and the first answer."""

    @pytest.fixture
    def cut(self, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> tuple[Delivered, Delivered]:
        """The bundle that served, and the one that never answers and is `current` now."""
        before, after = deliver(node.port), engine_changed(node.port)
        apply(node, before)
        node.dumb.add(after.digest)

        def end(*_: object) -> None:
            raise SystemExit

        with monkeypatch.context() as patched:
            patched.setattr(readiness, "wait", end)
            with pytest.raises(SystemExit):
                apply(node, after)
        assert node.serving() == after.digest
        return before, after

    def test_the_next_boot_goes_back_to_what_served(self, node: FakeNode, cut: tuple[Delivered, Delivered]) -> None:
        before, _ = cut
        assert program.main(["--boot"]) == 0
        status = node.status()
        assert (status["state"], status["bundle"]) == ("rolled-back", before.digest)
        assert status["reason"].endswith(f"; bundle {before.digest[:12]} serves again")
        assert node.serving() == before.digest

    def test_applying_it_again_goes_back_as_well(self, node: FakeNode, cut: tuple[Delivered, Delivered]) -> None:
        before, after = cut
        assert apply(node, after) == 1
        assert node.serving() == before.digest

    def test_what_never_served_is_not_said_to_serve(self, node: FakeNode, cut: tuple[Delivered, Delivered]) -> None:
        _, after = cut
        node.set("gpus", "")
        for bundle in (after, deliver(node.port, replace={"another": b""})):
            assert apply(node, bundle) == 1
            assert "serves as before" not in node.status()["reason"]
            assert node.status()["bundle"] == after.digest


class TestBeforeTheSwitch:
    """What goes wrong while preparing leaves the old bundle alone."""

    def fails(self, node: FakeNode, phase: str | None, reason: str, after: Delivered | None = None) -> None:
        before = node.serving()
        node.calls()
        after = after or engine_changed(node.port)
        assert apply(node, after) == 1
        status = node.status()
        assert (status["state"], status["failed_phase"]) == ("failed", phase)
        assert reason in status["reason"]
        assert status["bundle"] == before == node.serving()
        assert node.calls("stop", "start", "reload") == []
        if before:
            assert status["reason"].endswith(f"; bundle {before[:12]} serves as before")

    def test_a_gpu_is_missing(self, node: FakeNode) -> None:
        apply(node, deliver(node.port))
        node.set("gpus", "")
        self.fails(node, "driver", "this machine has 0 GPUs, its size has 1")

    def test_driver_and_library_do_not_match(self, node: FakeNode) -> None:
        (node.fake / "bin/nvidia-smi").write_text("#!/bin/bash\necho 'Driver/library version mismatch'\nexit 18\n")
        self.fails(
            node, "driver", "the GPU driver does not answer (`nvidia-smi -L` failed with exit code 18: Driver/library"
        )

    def test_cloud_init_failed(self, node: FakeNode) -> None:
        node.set("cloud-init", json.dumps({"status": "error", "errors": ["no disk"]}))
        self.fails(node, "day-0", "cloud-init failed on this machine: no disk")

    def test_cloud_init_does_not_end(self, node: FakeNode) -> None:
        node.set("cloud-init", json.dumps({"status": "running"}))
        self.fails(node, "day-0", "cloud-init is still running after 1 s")

    def test_the_disk_is_full(self, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
        apply(node, deliver(node.port))

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/opt/huddle/venvs/x")

        monkeypatch.setattr(libraries, "install", full)
        self.fails(node, "libraries", "No space left on device: /opt/huddle/venvs/x")

    def test_the_status_file_cannot_be_written(
        self, node: FakeNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        apply(node, deliver(node.port))

        def full(path: Path, *_: object) -> bool:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        monkeypatch.setattr(ledger.files, "write_json", full)
        capsys.readouterr()
        assert apply(node, engine_changed(node.port)) == 1
        said = capsys.readouterr()
        assert "huddle-apply: switch: No space left on device" in said.err
        assert json.loads(said.out.splitlines()[-1])["state"] == "rolled-back"

    def test_a_secret_is_missing(self, node: FakeNode) -> None:
        (node.paths.credentials / "ray_token").unlink()
        self.fails(node, "credentials", "the secret ray_token is missing")

    def test_the_model_is_nowhere(self, node: FakeNode) -> None:
        for path in (node.paths.model_store / "Llama-3.2-3B-Instruct").iterdir():
            path.unlink()
        self.fails(node, "staging", "llama-3.2-3b is not in the model store, and the hub's client is not installed yet")

    def test_another_python(self, node: FakeNode) -> None:
        after = deliver(node.port, replace={"requirements/engine.lock": b"vllm==9\n"}, python="2.7")
        node.unpack(after)
        for marker in node.paths.venvs.glob("*/.complete"):
            marker.unlink()
        assert program.main([after.digest]) == 1
        assert "the libraries are locked for Python 2.7" in node.status()["reason"]
        assert node.status()["failed_phase"] == "libraries"

    def test_a_damaged_file(self, node: FakeNode) -> None:
        after = engine_changed(node.port)
        node.unpack(after)
        (node.paths.bundles / after.digest / "bin/huddle").write_text("altered", encoding="utf-8")
        assert program.main([after.digest]) == 1
        assert f"bin/huddle of bundle {after.digest[:12]} is damaged" in node.status()["reason"]

    def test_a_damaged_bundle_can_be_delivered_again(self, node: FakeNode) -> None:
        """What is damaged goes; day 0's program unpacks only what is not there."""
        serves, after = deliver(node.port), engine_changed(node.port)
        apply(node, serves)
        node.unpack(after)
        (node.paths.bundles / after.digest / "bin/huddle").write_text("altered", encoding="utf-8")
        assert program.main([after.digest]) == 1
        assert {path.name for path in node.paths.bundles.iterdir()} == {serves.digest}
        assert apply(node, after) == 0

    def test_the_local_disks_do_not_come(self, node: FakeNode) -> None:
        apply(node, deliver(node.port))
        shutil.rmtree(node.paths.workspace)
        node.set("log/huddle-nvme.service", "huddle-nvme: /dev/nvme0n1 carries a signature (ext4) that is not ours\n")
        before = node.serving()
        node.calls()
        assert apply(node, engine_changed(node.port)) == 1
        status = node.status()
        assert (status["failed_phase"], status["bundle"]) == ("disks", before)
        assert re.search("workspace is not there after 1 s: /dev/nvme0n1 carries a signature", status["reason"])
        assert node.calls("start") == [f"systemctl start --no-block huddle-nvme.service {MOUNTS}"]

    def test_a_bundle_for_other_nodes(self, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        bundle = deliver(node.port)
        monkeypatch.setattr(socket, "gethostname", lambda: "here")
        node.unpack(bundle)
        assert program.main([bundle.digest]) == 1
        assert "is not for here; it is for elsewhere" in node.status()["reason"]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"model": "another"}, "asked hl, answered by another"),
        ({"choices": []}, "the answer of hl holds no token"),
        ({"usage": {"completion_tokens": 0}}, "the answer of hl holds no token"),
        ({"prompt": "5" * 64}, "hl does not have the system prompt of this bundle"),
        ({"prompt": None}, "hl does not have the system prompt of this bundle"),
    ],
)
def test_an_answer_must_be_real_and_of_the_right_model_and_prompt(node: FakeNode, answer: Any, problem: str) -> None:
    node.set("answer", json.dumps(answer))
    assert apply(node, deliver(node.port)) == 1
    assert problem in node.status()["reason"]


@pytest.mark.parametrize(
    ("route", "empty"), [("completions", "choices"), ("responses", "output"), ("embeddings", "data")]
)
def test_a_model_without_chat_is_asked_on_a_route_that_it_has(node: FakeNode, route: str, empty: str) -> None:
    answers = [{"model": "hl", "route": route, "names": ["hl"], "prompt_sha256": "5" * 64}]
    assert apply(node, deliver(node.port, expects={"answers": answers})) == 0
    node.set("answer", json.dumps({empty: []}))
    assert apply(node, engine_changed(node.port, expects={"answers": answers})) == 1
    assert "the answer of hl holds no token" in node.status()["reason"]


def test_an_alias_may_be_answered_under_its_engines_first_name(node: FakeNode) -> None:
    """As vLLM does (seen with 0.32.0): whichever of its names is asked, the answer says the first."""
    node.set("answer", json.dumps({"model": "llama-3.2-3b"}))
    assert apply(node, deliver(node.port)) == 0


def test_an_engine_that_keeps_dying_is_not_waited_for(node: FakeNode) -> None:
    node.set("dying", "")
    bundle = deliver(node.port, deadlines_s={**nodes.DEADLINES_S, "readiness": 5})
    node.dumb.add(bundle.digest)
    assert apply(node, bundle) == 1
    assert "has ended by itself 3 times since its start" in node.status()["reason"]


def test_a_replica_serves_without_the_other_nodes_of_ray(node: FakeNode) -> None:
    node.set("ray-nodes", json.dumps(["10.0.0.4"]))
    assert apply(node, deliver(node.port)) == 0
    assert node.status()["warnings"] == ["1 of 2 nodes have not joined Ray"]


@pytest.mark.parametrize(
    ("joined", "problem"),
    [("10.0.0.4", "1 of 2 nodes have not joined Ray"), ("10.0.0.5", "Ray does not know this node as 10.0.0.4")],
)
def test_a_model_across_nodes_needs_them_all(node: FakeNode, joined: str, problem: str) -> None:
    node.set("ray-nodes", json.dumps([joined]))
    ray = {"address": "10.0.0.4:6379", "nodes": 2, "required": True}
    assert apply(node, deliver(node.port, expects={"ray": ray})) == 1
    assert node.status()["reason"] == problem
