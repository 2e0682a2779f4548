"""The bundle's program on a pretended node: idempotent, atomic, restarts what changed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cloud_init.huddle_apply import main as program
from tests.unit.cloud_init.node import (
    ALL,
    MOUNTS,
    PROBE,
    RAY,
    TEMPLATE,
    VLLM,
    WRAPPER,
    Delivered,
    FakeNode,
    apply,
    deliver,
    engine_changed,
    services_of,
)


def prompt_changed(port: int) -> Delivered:
    """The next bundle: only a system prompt is another."""
    answers = [{"model": "llama-3.2-3b", "names": ["llama-3.2-3b"], "prompt_sha256": "5" * 64}]
    services = services_of(port)
    for service in services:
        if service["unit"] == WRAPPER:
            service["reload"] = "another"
    return deliver(port, services=services, expects={"answers": answers})


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
        "disks",
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
    staged = node.paths.workspace / "models/Llama-3.2-3B-Instruct/model.safetensors"
    assert staged.read_bytes() == bytes(range(256)) * 64
    assert (node.root / "etc/systemd/system" / WRAPPER).is_file()
    assert (node.root / "opt/huddle/bin/huddle-nvme").stat().st_mode & 0o777 == 0o755
    assert (node.paths.current / "site/huddle/cli.py").is_file()


def test_a_new_node_prepares_and_then_applies(node: FakeNode) -> None:
    bundle = deliver(node.port)
    assert apply(node, bundle, "--prepare") == 0
    status = node.status()
    assert (status["state"], status["bundle"], status["wanted"]) == ("prepared", None, bundle.digest)
    assert node.calls("start", "stop", "reload") == [] and node.serving() is None and node.requests == []
    assert {"libraries", "staging"} <= {phase["name"] for phase in status["phases"]}
    assert apply(node, bundle) == 0
    assert node.status()["state"] == "serving"


def test_what_serves_is_not_touched_while_another_bundle_is_prepared(node: FakeNode) -> None:
    before = deliver(node.port)
    apply(node, before)
    node.calls()
    after = engine_changed(node.port)
    assert apply(node, after, "--prepare") == 0
    assert node.calls("stop", "start", "reload", "daemon-reload", "enable") == []
    status = node.status()
    assert (status["state"], status["bundle"], node.serving()) == ("prepared", before.digest, before.digest)
    assert apply(node, after) == 0
    assert node.serving() == after.digest


def test_what_cannot_be_prepared_says_what_serves(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    before = deliver(node.port)
    apply(node, before)
    (node.paths.credentials / "ray_token").unlink()
    assert apply(node, engine_changed(node.port), "--prepare") == 1
    status = node.status()
    assert (status["state"], status["failed_phase"], node.serving()) == ("failed", "credentials", before.digest)
    assert f"bundle {before.digest[:12]} serves as before" in capsys.readouterr().err


def test_a_node_that_was_away_waits_until_it_is_asked_again(node: FakeNode) -> None:
    """The next node leaves when this one's command has ended."""

    def rejoined() -> list[float]:
        return [phase["seconds"] for phase in node.status()["phases"] if phase["name"] == "rejoin"]

    apply(node, deliver(node.port, rejoin_s=0.3))
    assert rejoined() == [], "nobody waits for a first start"
    assert apply(node, engine_changed(node.port, rejoin_s=0.3)) == 0
    assert rejoined()[0] >= 0.3
    assert apply(node, engine_changed(node.port, rejoin_s=0.3)) == 0
    assert rejoined() == [], "it was not away"


def test_second_run_changes_nothing(node: FakeNode) -> None:
    bundle = deliver(node.port)
    apply(node, bundle)
    node.calls()
    unit = node.root / "etc/systemd/system" / TEMPLATE
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


def test_a_prompt_for_a_wrapper_that_keeps_ending_restarts_it(node: FakeNode) -> None:
    """systemd refuses to reload what it is just starting again."""
    apply(node, deliver(node.port))
    node.set(f"units/{WRAPPER}", "activating")
    node.calls()
    assert apply(node, prompt_changed(node.port)) == 0
    assert node.calls("stop", "reload") == [f"systemctl stop {WRAPPER}"]
    assert node.status()["restarted"] == [WRAPPER]


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
    (node.paths.credentials / "ray_token").write_text("another", encoding="utf-8")
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
        "reads_model": False,
    }
    first = deliver(
        node.port,
        replace={unit: b"[Service]\nExecStart=/bin/true\n"},
        services=[*services_of(node.port), jupyter],
        generated_credentials=["jupyter_token"],
    )
    assert apply(node, first) == 0
    token = node.paths.credentials / "jupyter_token"
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
    unit = node.root / "etc/systemd/system" / TEMPLATE
    unit.write_text("mine\n", encoding="utf-8")
    assert apply(node, deliver(node.port)) == 0
    assert path.read_text(encoding="utf-8") == "mine\n"
    assert unit.read_text(encoding="utf-8") != "mine\n"


STAGE = {"start": 1.0, "finished": 2.0, "errors": [], "recoverable_errors": {}}


def recorded(node: FakeNode, errors: list[str], **stages: Any) -> None:
    """What cloud-init keeps of this boot; asked, it would say that it failed."""
    node.paths.cloud_init.mkdir(parents=True)
    for name, content in {"result": {"errors": errors}, "status": {"stage": None, "init": STAGE, **stages}}.items():
        (node.paths.cloud_init / f"{name}.json").write_text(json.dumps({"v1": content}), encoding="utf-8")
    node.set("cloud-init", json.dumps({"status": "error", "errors": ["asked"]}))


def test_cloud_inits_own_records_of_a_good_boot_are_believed(node: FakeNode) -> None:
    recorded(node, [])
    assert apply(node, deliver(node.port)) == 0


@pytest.mark.parametrize(
    ("errors", "stages"),
    [
        (["no disk"], {}),
        ([], {"init": {**STAGE, "errors": ["no disk"]}}),
        ([], {"modules-final": {**STAGE, "recoverable_errors": {"WARNING": ["an old key"]}}}),
    ],
)
def test_of_a_boot_with_troubles_cloud_init_is_asked(node: FakeNode, errors: list[str], stages: Any) -> None:
    recorded(node, errors, **stages)
    assert apply(node, deliver(node.port)) == 1
    assert node.status()["reason"].startswith("cloud-init failed on this machine: asked")


def test_a_boot_that_has_not_ended_is_no_good_boot(node: FakeNode) -> None:
    recorded(node, [])
    (node.paths.cloud_init / "result.json").unlink()
    assert apply(node, deliver(node.port)) == 1


def test_only_what_is_not_enabled_is_enabled(node: FakeNode) -> None:
    bundle = deliver(node.port)
    apply(node, bundle)
    node.set("enabled", f"{MOUNTS} {ALL}".replace(" ", "\n"))
    node.calls()
    assert apply(node, bundle) == 0
    assert node.calls("--quiet") == []
    node.set("enabled", f"{MOUNTS} {ALL}".replace(f" {VLLM}", "").replace(" ", "\n"))
    assert apply(node, bundle) == 0
    assert node.calls("--quiet") == [f"systemctl --quiet enable {VLLM}"]


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


def test_a_boot_that_waited_brings_up_what_is_current_then(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an older day 0 starts the program without the lock."""
    first, second = deliver(node.port), engine_changed(node.port)
    for bundle in (second, first):
        assert apply(node, bundle) == 0
    node.unpack(second)

    @contextmanager
    def waited(*_: object, **__: object) -> Iterator[None]:
        node.paths.current.unlink()
        node.paths.current.symlink_to(node.paths.bundles / second.digest)
        yield

    monkeypatch.setattr(program, "alone", waited)
    assert program.main(["--boot"]) == 0
    assert node.serving() == node.status()["bundle"] == second.digest


def test_old_bundles_and_environments_go_but_the_one_before_stays(node: FakeNode) -> None:
    locks = [b"a==1\n", b"b==1\n", b"c==1\n"]
    bundles = [deliver(node.port, replace={"requirements/engine.lock": lock}) for lock in locks]
    for bundle in bundles:
        assert apply(node, bundle) == 0
    assert {path.name for path in node.paths.bundles.iterdir()} == {bundles[1].digest, bundles[2].digest}
    assert len(list(node.paths.venvs.glob("engine-*"))) == 2
    assert len(list(node.paths.venvs.glob("package-*"))) == 1, "all three bring the same wheel"
    assert (node.paths.current / "venv/.complete").exists()


def test_the_archives_delivered_last_stay(node: FakeNode) -> None:
    node.paths.incoming.mkdir(parents=True, exist_ok=True)
    for number in range(5):
        archive = node.paths.incoming / f"huddle-{number}.tar.bz2"
        archive.touch()
        os.utime(archive, (number, number))
    assert apply(node, deliver(node.port)) == 0
    assert {path.name for path in node.paths.incoming.iterdir()} == {f"huddle-{n}.tar.bz2" for n in (2, 3, 4)}


def test_no_secret_is_said_or_kept_in_the_open(node: FakeNode, capfd: pytest.CaptureFixture[str]) -> None:
    bundle = deliver(node.port)
    apply(node, bundle)
    node.dumb.add(bundle.digest)
    apply(node, bundle)
    said = "".join(capfd.readouterr())
    files = (node.paths.status, node.paths.state, node.fake / "calls")
    for text_ in (said, *(path.read_text(encoding="utf-8") for path in files)):
        assert "canary" not in text_
    assert node.paths.state.stat().st_mode & 0o777 == 0o600
    assert node.paths.credentials.stat().st_mode & 0o777 == 0o700


def test_the_engine_of_an_earlier_name_gives_way(node: FakeNode) -> None:
    """Bundles of before had one unit, which was no template."""
    rows = services_of(node.port)
    for row in rows:
        row["unit"] = row["unit"].replace("@0", "")
        row["follows"] = [unit.replace("@0", "") for unit in row["follows"]]
    assert apply(node, deliver(node.port, services=rows)) == 0
    node.calls()
    assert apply(node, deliver(node.port)) == 0
    old = [f"systemctl stop {unit.replace('@0', '')}" for unit in (PROBE, WRAPPER, VLLM)]
    assert node.calls("stop") == old, "the wrapper drains before its engine goes"
    assert node.status()["restarted"] == [VLLM, WRAPPER, PROBE]
