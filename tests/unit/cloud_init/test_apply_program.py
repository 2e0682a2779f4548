"""The bundle's program on a pretended node: idempotent, atomic, restarts what changed, goes back when it must."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cloud_init.huddle_apply import ledger, libraries
from cloud_init.huddle_apply import main as program
from cloud_init.templating import text
from tests.unit.cloud_init import node as nodes
from tests.unit.cloud_init.node import Delivered, FakeNode, deliver

RAY, MODELS, VLLM, WRAPPER, PROBE = (
    "huddle-ray.service",
    "huddle-models.service",
    "huddle-vllm.service",
    "huddleai_api.service",
    "huddle-probe.service",
)
FIREWALL = "huddle-firewall.service"
ALL = f"{FIREWALL} {RAY} {MODELS} {VLLM} {WRAPPER} {PROBE}"
MOUNTS = "mnt-nvme.mount huddle-workspace.service mnt-models.mount"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNode]:
    with nodes.running(tmp_path) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


def apply(node: FakeNode, bundle: Delivered, *options: str) -> int:
    node.unpack(bundle)
    return program.main([bundle.digest, *options])


def prompt_changed(port: int) -> Delivered:
    """The next bundle: only a system prompt is another."""
    answers = [{"model": "llama-3.2-3b", "names": ["llama-3.2-3b"], "prompt_sha256": "5" * 64}]
    services = services_of(port)
    for service in services:
        if service["unit"] == WRAPPER:
            service["reload"] = "another"
    return deliver(port, services=services, expects={"answers": answers})


def engine_changed(port: int, **facts: Any) -> Delivered:
    """The next bundle: the engine is made from something else."""
    services = services_of(port)
    for service in services:
        if service["unit"] == VLLM:
            service["restart"] = "another"
    return deliver(port, services=services, **facts)


def services_of(port: int) -> list[dict[str, Any]]:
    return json.loads(deliver(port).files[f"nodes/{socket.gethostname()}/node.json"])["services"]


def test_first_bundle_serves(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = deliver(node.port)
    assert apply(node, bundle) == 0
    assert node.serving() == bundle.digest
    assert node.calls("start", "--quiet", "daemon-reload", "stop") == [
        "systemctl daemon-reload",
        f"systemctl --quiet enable {MOUNTS} {ALL}",
        f"systemctl start --no-block {MOUNTS} {ALL}",
    ]
    status = node.status()
    assert status["state"] == "serving"
    assert status["bundle"] == status["wanted"] == bundle.digest
    assert (status["gpus"], status["ray_nodes"], status["warnings"]) == (1, 2, [])
    assert status["restarted"] == ALL.split()
    phases = [phase["name"] for phase in status["phases"]]
    assert set(phases) == {
        "bundle",
        "day-0",
        "clock",
        "driver",
        "packages",
        "credentials",
        "libraries",
        "store",
        "staging",
        "switch",
        "services",
        "readiness",
    }
    assert {phase["result"] for phase in status["phases"]} == {"done"}
    assert {question["model"] for question in node.requests} == {"llama-3.2-3b", "hl"}
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1]) == status
    staged = node.layout.workspace / "models/Llama-3.2-3B-Instruct/model.safetensors"
    assert staged.read_bytes() == bytes(range(256)) * 64
    assert (node.root / "etc/systemd/system" / WRAPPER).is_file()
    assert (node.root / "opt/huddle/bin/huddle-nvme").stat().st_mode & 0o777 == 0o755
    assert (node.layout.current / "site/huddle/cli.py").is_file()


def test_second_run_changes_nothing(node: FakeNode) -> None:
    bundle = deliver(node.port)
    apply(node, bundle)
    node.calls()
    unit = node.root / "etc/systemd/system" / VLLM
    before = unit.stat().st_mtime_ns
    assert apply(node, bundle) == 0
    assert node.calls("stop", "reload", "daemon-reload", "restart") == []
    assert node.status()["restarted"] == []
    assert unit.stat().st_mtime_ns == before


def test_a_prompt_is_reloaded_and_nothing_restarts(node: FakeNode) -> None:
    apply(node, deliver(node.port))
    node.calls()
    after = prompt_changed(node.port)
    assert apply(node, after) == 0
    assert node.calls("stop", "reload") == [f"systemctl reload {WRAPPER}"]
    status = node.status()
    assert (status["restarted"], status["reloaded"], status["bundle"]) == ([], [WRAPPER], after.digest)


def test_a_new_engine_drains_the_wrapper_first(node: FakeNode) -> None:
    apply(node, deliver(node.port))
    node.calls()
    assert apply(node, engine_changed(node.port)) == 0
    assert node.calls("stop", "start") == [
        f"systemctl stop {WRAPPER}",
        f"systemctl stop {VLLM}",
        f"systemctl start --no-block {MOUNTS} {VLLM} {WRAPPER}",
    ]


def test_a_new_secret_restarts_those_who_load_it(node: FakeNode) -> None:
    bundle = deliver(node.port)
    apply(node, bundle)
    (node.layout.credentials / "ray_token").write_text("another", encoding="utf-8")
    assert apply(node, bundle) == 0
    assert node.status()["restarted"] == [RAY]


def test_a_service_that_is_down_is_started(node: FakeNode) -> None:
    bundle = deliver(node.port)
    apply(node, bundle)
    node.set(f"units/{VLLM}", "failed")
    assert apply(node, bundle) == 0
    assert node.status()["restarted"] == [VLLM]


def test_a_service_that_left_the_bundle_is_stopped_and_its_files_go(node: FakeNode) -> None:
    unit = "rootfs/etc/systemd/system/huddle-jupyter.service"
    jupyter = {
        "unit": "huddle-jupyter.service",
        "restart": "x",
        "reload": "",
        "credentials": ["jupyter_token"],
        "follows": [],
    }
    first = deliver(
        node.port,
        replace={unit: b"[Service]\nExecStart=/bin/true\n"},
        services=[*services_of(node.port), jupyter],
        generated_credentials=["jupyter_token"],
    )
    assert apply(node, first) == 0
    token = node.layout.credentials / "jupyter_token"
    assert len(token.read_text(encoding="utf-8").strip()) == 64
    assert token.stat().st_mode & 0o777 == 0o600
    node.calls()
    assert apply(node, deliver(node.port)) == 0
    assert "systemctl stop huddle-jupyter.service" in node.calls("stop")
    assert not (node.root / unit.removeprefix("rootfs/")).exists()


def test_what_somebody_changed_by_hand_is_put_right_but_not_deleted(node: FakeNode) -> None:
    extra = "rootfs/etc/sysctl.d/60-huddle.conf"
    apply(node, deliver(node.port, replace={extra: b"net.ipv4.ip_local_port_range = 1 2\n"}))
    assert "sysctl --quiet --system" in node.calls("--quiet")
    path = node.root / extra.removeprefix("rootfs/")
    path.write_text("mine\n", encoding="utf-8")
    unit = node.root / "etc/systemd/system" / VLLM
    unit.write_text("mine\n", encoding="utf-8")
    assert apply(node, deliver(node.port)) == 0
    assert path.read_text(encoding="utf-8") == "mine\n"
    assert unit.read_text(encoding="utf-8") != "mine\n"


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

    def test_it_can_be_tried_again(self, node: FakeNode) -> None:
        before, after = deliver(node.port), engine_changed(node.port)
        apply(node, before)
        node.dumb.add(after.digest)
        apply(node, after)
        node.dumb.clear()
        assert apply(node, after) == 0
        assert node.serving() == after.digest


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
        (node.layout.credentials / "ray_token").unlink()
        self.fails(node, "credentials", "the secret ray_token is missing")

    def test_the_model_is_nowhere(self, node: FakeNode) -> None:
        for path in (node.layout.model_store / "Llama-3.2-3B-Instruct").iterdir():
            path.unlink()
        self.fails(node, "staging", "llama-3.2-3b is not in the model store, and the hub's client is not installed yet")

    def test_another_python(self, node: FakeNode) -> None:
        after = deliver(node.port, replace={"requirements/engine.lock": b"vllm==9\n"}, python="2.7")
        node.unpack(after)
        for marker in node.layout.venvs.glob("*/.complete"):
            marker.unlink()
        assert program.main([after.digest]) == 1
        assert "the libraries are locked for Python 2.7" in node.status()["reason"]
        assert node.status()["failed_phase"] == "libraries"

    def test_a_damaged_file(self, node: FakeNode) -> None:
        after = engine_changed(node.port)
        node.unpack(after)
        (node.layout.bundles / after.digest / "bin/huddle").write_text("altered", encoding="utf-8")
        assert program.main([after.digest]) == 1
        assert f"bin/huddle of bundle {after.digest[:12]} is damaged" in node.status()["reason"]

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
        ({"prompt": "5" * 64}, "hl has system prompt 555555555555, expected "),
        ({"prompt": None}, "hl has system prompt None, expected "),
    ],
)
def test_an_answer_must_be_real_and_of_the_right_model_and_prompt(node: FakeNode, answer: Any, problem: str) -> None:
    node.set("answer", json.dumps(answer))
    assert apply(node, deliver(node.port)) == 1
    assert problem in node.status()["reason"]


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


def test_degraded_cloud_init_is_a_warning(node: FakeNode) -> None:
    said = {"status": "done", "extended_status": "degraded done", "recoverable_errors": {"WARNING": ["an old key"]}}
    node.set("cloud-init", json.dumps(said))
    assert apply(node, deliver(node.port)) == 0
    assert node.status()["warnings"] == ["cloud-init is degraded: an old key; see `cloud-init status --long`"]


def test_missing_packages_are_installed_and_apt_waits_for_its_lock(node: FakeNode) -> None:
    node.set("packages", "bzip2\nmdadm\n")
    assert apply(node, deliver(node.port)) == 0
    assert node.calls("-oDPkg::Lock::Timeout=60") == [
        "apt-get -oDPkg::Lock::Timeout=60 -qq update",
        "apt-get -oDPkg::Lock::Timeout=60 -qq install --yes --no-install-recommends nftables python3-venv xfsprogs",
    ]


def test_boot_brings_the_current_bundle_up_again(node: FakeNode) -> None:
    assert program.main(["--boot"]) == 0
    bundle = deliver(node.port)
    apply(node, bundle)
    for unit in ALL.split():
        node.set(f"units/{unit}", "inactive")
    assert program.main(["--boot"]) == 0
    assert node.status()["restarted"] == ALL.split()
    assert node.serving() == bundle.digest


def test_old_bundles_and_environments_go_but_the_one_before_stays(node: FakeNode) -> None:
    locks = [b"a==1\n", b"b==1\n", b"c==1\n"]
    bundles = [deliver(node.port, replace={"requirements/engine.lock": lock}) for lock in locks]
    for bundle in bundles:
        assert apply(node, bundle) == 0
    assert {path.name for path in node.layout.bundles.iterdir()} == {bundles[1].digest, bundles[2].digest}
    assert len(list(node.layout.venvs.iterdir())) == 2
    assert (node.layout.current / "venv/.complete").exists()


def test_no_secret_is_said_or_kept_in_the_open(node: FakeNode, capfd: pytest.CaptureFixture[str]) -> None:
    bundle = deliver(node.port)
    apply(node, bundle)
    node.dumb.add(bundle.digest)
    apply(node, bundle)
    said = "".join(capfd.readouterr())
    files = (node.layout.status, node.layout.state, node.fake / "calls")
    for text_ in (said, *(path.read_text(encoding="utf-8") for path in files)):
        assert "canary" not in text_
    assert node.layout.state.stat().st_mode & 0o777 == 0o600
    assert node.layout.credentials.stat().st_mode & 0o777 == 0o700


class TestDayZeroProgram:
    """huddle-apply of day 0: verify, unpack, hand over."""

    def run(self, node: FakeNode, *words: str) -> subprocess.CompletedProcess[str]:
        path = node.fake / "huddle-apply"
        path.write_text(text("apply/huddle-apply"), encoding="utf-8")
        return subprocess.run(["bash", str(path), *words], capture_output=True, text=True, check=False)

    def test_it_unpacks_and_hands_over(self, node: FakeNode) -> None:
        bundle = nodes.packed(deliver(node.port))
        node.take(bundle)
        node.have_libraries(bundle)
        done = self.run(node, bundle.digest)
        assert done.returncode == 0, done.stderr
        assert node.serving() == bundle.digest
        assert list((node.root / "var/lib/huddle/incoming").iterdir()) == []
        assert {path.name for path in node.layout.bundles.iterdir()} == {bundle.digest}
        assert self.run(node, bundle.digest).returncode == 0
        assert self.run(node, "--boot").returncode == 0

    def test_what_it_unpacks_can_be_read_by_the_services_whatever_the_callers_mask(self, node: FakeNode) -> None:
        bundle = nodes.packed(deliver(node.port))
        node.take(bundle)
        node.have_libraries(bundle)
        before = os.umask(0o077)
        try:
            assert self.run(node, bundle.digest).returncode == 0
        finally:
            os.umask(before)
        for path in [node.layout.bundles / bundle.digest, *(node.layout.bundles / bundle.digest).rglob("*")]:
            assert path.is_symlink() or path.stat().st_mode & 0o044 == 0o044, path

    def test_an_altered_archive_is_refused(self, node: FakeNode) -> None:
        bundle = nodes.packed(deliver(node.port))
        node.take(bundle, bundle.packed[:-1] + b"x")
        done = self.run(node, bundle.digest)
        assert done.returncode == 1
        assert f"expected {bundle.digest}: truncated or altered; nothing was changed" in done.stderr
        assert node.serving() is None
        assert not node.layout.bundles.exists()

    def test_a_truncated_archive_is_refused(self, node: FakeNode) -> None:
        bundle = nodes.packed(deliver(node.port))
        node.take(bundle, bundle.packed[: len(bundle.packed) // 2])
        assert self.run(node, bundle.digest).returncode == 1
        assert node.serving() is None

    def test_an_archive_that_cannot_be_unpacked_leaves_nothing_behind(self, node: FakeNode) -> None:
        bad = Delivered({}, sha256(b"not an archive").hexdigest(), b"not an archive")
        node.take(bad)
        assert self.run(node, bad.digest).returncode != 0
        assert list(node.layout.bundles.iterdir()) == []

    @pytest.mark.parametrize("words", [(), ("latest",), ("A" * 64,), ("0" * 63,)])
    def test_wrong_use_is_said_with_exit_code_2(self, node: FakeNode, words: tuple[str, ...]) -> None:
        done = self.run(node, *words)
        assert done.returncode == 2
        assert "usage: huddle-apply DIGEST" in done.stderr

    def test_a_bundle_that_was_not_delivered(self, node: FakeNode) -> None:
        done = self.run(node, "0" * 64)
        assert done.returncode == 2
        assert "deliver the bundle first" in done.stderr

    def test_boot_before_the_first_bundle_is_no_failure(self, node: FakeNode) -> None:
        assert self.run(node, "--boot").returncode == 0
