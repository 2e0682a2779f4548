"""A new version of the served model: taken with a way back, by an apply and not by a restart."""

from __future__ import annotations

import errno
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cloud_init.huddle_apply import main as program
from cloud_init.huddle_apply.failure import ApplyError
from cloud_init.huddle_apply.installed import credentials, libraries
from cloud_init.huddle_apply.machine import commands, systemd
from cloud_init.huddle_apply.models import staging, store
from cloud_init.huddle_apply.models.copies import Copies
from cloud_init.huddle_apply.services import readiness
from tests.unit.cloud_init.node import (
    MODEL,
    MODELS,
    MOUNTS,
    VLLM,
    WRAPPER,
    Delivered,
    FakeNode,
    apply,
    deliver,
    engine_changed,
)


@pytest.fixture
def bundle(node: FakeNode) -> Delivered:
    """It serves, and a new version of its model lies in the store."""
    bundle = deliver(node.port)
    assert apply(node, bundle) == 0
    node.calls()
    (node.store / "config.json").write_text('{"new": 1}', encoding="utf-8")
    return bundle


@pytest.fixture
def old(node: FakeNode, bundle: Delivered) -> str:
    """The copy that serves."""
    assert node.copies.served is not None
    return node.copies.served


@pytest.fixture
def new(node: FakeNode, old: str) -> str:
    """The copy that the next apply makes, which never answers."""
    before = set(node.copies.known())
    node.unpack(engine_changed(node.port))
    assert program.main([engine_changed(node.port).digest, "--stage"]) == 0
    (name,) = set(node.copies.known()) - before
    node.dumb.add(name)
    return name


def config(node: FakeNode) -> str:
    return (node.copies.public / "config.json").read_text(encoding="utf-8")


def test_an_apply_takes_it_and_restarts_who_reads_it(node: FakeNode, bundle: Delivered, old: str) -> None:
    assert apply(node, bundle) == 0
    assert config(node) == '{"new": 1}'
    assert node.calls("stop", "start") == [
        f"systemctl stop {WRAPPER}",
        f"systemctl stop {VLLM}",
        f"systemctl stop {MODELS}",
        f"systemctl start --no-block {MOUNTS} {MODELS} {VLLM} {WRAPPER}",
    ]
    assert node.status()["weights"] == {"model": "llama-3.2-3b", "version": node.copies.served}
    assert (node.copies.previous, node.copies.served == old) == (old, False)
    assert apply(node, bundle) == 0
    assert node.calls("stop") == [], "it is taken once"


def test_a_boot_does_not_take_it(node: FakeNode, old: str) -> None:
    assert program.main(["--boot"]) == 0
    assert (node.copies.served, config(node)) == (old, "{}")
    assert node.copies.known() == [old], "nor is it copied: that takes minutes"
    assert node.calls("stop") == []
    assert node.status()["weights"]["version"] == old


def test_one_that_never_answers_gives_way_to_the_one_before(
    node: FakeNode, bundle: Delivered, old: str, new: str
) -> None:
    assert apply(node, bundle) == 1
    status = node.status()
    assert (status["state"], status["bundle"]) == ("rolled-back", bundle.digest)
    assert status["reason"].startswith("not ready after 1 s")
    assert status["reason"].endswith(f"; copy {old} of the model serves again")
    assert (node.copies.served, config(node), status["weights"]["version"]) == (old, "{}", old)
    assert node.calls("start")[-1] == f"systemctl start --no-block {MOUNTS} {MODELS} {VLLM} {WRAPPER}"
    node.dumb.clear()
    assert apply(node, bundle) == 0, "it can be tried again"
    assert node.copies.served == new


def test_with_a_bundle_that_never_answers_both_go_back(node: FakeNode, bundle: Delivered, old: str) -> None:
    after = engine_changed(node.port)
    node.dumb.add(after.digest)
    assert apply(node, after) == 1
    assert (node.serving(), node.copies.served) == (bundle.digest, old)
    assert node.status()["reason"].endswith(f"; bundle {bundle.digest[:12]} serves again")
    assert node.status()["weights"]["version"] == old


def test_neither_answers(node: FakeNode, bundle: Delivered, old: str, new: str) -> None:
    node.dumb.add(old)
    assert apply(node, bundle) == 1
    assert node.status()["state"] == "failed"
    assert node.status()["reason"].endswith(f"; copy {old} of the model does not serve either")


def test_after_a_cut_before_its_first_answer_the_boot_goes_back(
    node: FakeNode, bundle: Delivered, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(readiness, "wait", end)
        with pytest.raises(SystemExit):
            apply(node, bundle)
    assert node.copies.served == new
    assert program.main(["--boot"]) == 0
    assert node.copies.served == old
    assert node.status()["state"] == "rolled-back"


def test_what_cannot_be_copied_leaves_what_serves(node: FakeNode, bundle: Delivered, old: str) -> None:
    (node.store / "config.json").unlink()
    (node.store / "config.json").mkdir()  # no model any more
    (node.copies.public / ".staged.json").unlink()
    assert apply(node, bundle) == 1
    status = node.status()
    assert (status["failed_phase"], node.copies.served) == ("staging", old)
    assert status["weights"]["version"] == old


def test_a_copy_that_had_to_make_room_is_not_said_to_serve(
    node: FakeNode, bundle: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The served one was removed for it, and it did not become whole."""
    shutil.rmtree(node.copies.version(str(node.copies.served)))
    node.set("gpus", "")
    assert apply(node, bundle) == 1
    assert "serves as before" not in node.status()["reason"]
    lacks = f"; bundle {bundle.digest[:12]} has no copy of its model any more: its engine cannot start again"
    assert node.status()["reason"].endswith(lacks)


def test_a_model_across_nodes_stays_until_the_registry_names_another(
    node: FakeNode, bundle: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes are applied to at different times, and hold parts of one model."""
    path = next(path for path in bundle.files if path.endswith("/model.json"))
    facts = json.loads(bundle.files[path]) | {"across_nodes": True}
    assert apply(node, deliver(node.port, replace={path: json.dumps(facts).encode()})) == 0
    assert config(node) == "{}"
    digest = "sha256:" + "7" * 64
    (node.store / "huddle-manifest.json").write_text(json.dumps({"digest": digest, "files": {}}), encoding="utf-8")
    named = {path: json.dumps({**facts, "digest": digest}).encode()}

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "venv")

    with monkeypatch.context() as patched:
        patched.setattr(libraries, "install", fail)
        assert apply(node, deliver(node.port, replace=named)) == 1
    assert config(node) == "{}", "nothing changes before the switch"
    assert apply(node, deliver(node.port, replace=named)) == 0
    assert config(node) == '{"new": 1}'


def test_a_model_across_nodes_that_does_not_fit_any_more_is_not_switched_early(
    node: FakeNode, bundle: Delivered, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the hub, of another revision than the registry names by now."""
    record = {"repository": "elsewhere/model", "revision": "abc"}
    (node.copies.public / ".staged.json").write_text(json.dumps(record), encoding="utf-8")
    path = next(path for path in bundle.files if path.endswith("/model.json"))
    facts = json.loads(bundle.files[path]) | {"across_nodes": True}

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "venv")

    monkeypatch.setattr(libraries, "install", fail)
    assert apply(node, deliver(node.port, replace={path: json.dumps(facts).encode()})) == 1
    assert (node.copies.served, node.copies.staged == old) == (old, False)


def test_a_switch_that_fails_halfway_is_undone_for_the_same_bundle_too(
    node: FakeNode, bundle: Delivered, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its services have been stopped by then."""

    def fail(_: object) -> None:
        (node.fake / "units" / VLLM).write_text("inactive")
        raise ApplyError("stopping the engine took too long")

    monkeypatch.setattr(systemd, "stop", fail)
    assert apply(node, bundle) == 1
    status = node.status()
    assert (status["state"], status["failed_phase"], node.copies.served) == ("rolled-back", "switch", old)
    assert status["reason"] == f"stopping the engine took too long; bundle {bundle.digest[:12]} serves again"
    assert VLLM in node.calls("start")[-1]


@pytest.mark.parametrize("switched", [False, True])
def test_a_local_disk_that_breaks_is_a_verdict_and_no_traceback(
    node: FakeNode, bundle: Delivered, new: str, monkeypatch: pytest.MonkeyPatch, switched: bool
) -> None:
    real = Copies._target

    def broken(copies: Copies, link: Path) -> str | None:
        if failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(link))
        return real(copies, link)

    def fail(*_: object) -> None:
        failing.append(True)
        raise ApplyError("not ready")

    failing: list[bool] = []
    monkeypatch.setattr(Copies, "_target", broken)
    monkeypatch.setattr(readiness, "wait" if switched else "check_gpus", fail)
    assert apply(node, bundle) == 1
    status = node.status()
    assert status["state"] == "failed"
    assert status["reason"].startswith("not ready")


def test_a_store_that_cannot_be_opened_stops_only_a_node_without_a_copy(
    node: FakeNode, bundle: Delivered, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not take the hub's files for those that were published."""

    def marked(*_: object) -> None:
        raise ApplyError("the model store has been marked as being written")

    monkeypatch.setattr(store, "reopen", marked)
    assert apply(node, bundle) == 0
    assert node.status()["warnings"] == ["the model store has been marked as being written"]
    shutil.rmtree(node.copies.models)
    assert program.main(["--open-store"]) == 1, "the unit tries again"
    assert apply(node, bundle) == 1
    assert node.status()["failed_phase"] == "store"


def test_staging_by_hand_is_the_services_users(tmp_path: Path) -> None:
    """What root made in their directories the unit could not go on with."""
    script = (
        "import os; from cloud_init.huddle_apply.machine import commands; commands.SERVICE_USER = 'nobody'; "
        "commands.become_service_user(); print(os.getuid(), os.geteuid(), os.getgroups())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    nobody = pwd.getpwnam("nobody").pw_uid
    expected = f"{nobody} {nobody} []" if os.geteuid() == 0 else f"{os.getuid()} {os.geteuid()} {os.getgroups()}"
    assert done.stdout.strip() == expected


def test_staging_gives_root_up_when_it_has_read_the_token(
    node: FakeNode, bundle: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(credentials, "hub_token", lambda _: order.append("token") or "")
    monkeypatch.setattr(commands, "become_service_user", lambda: order.append("user"))
    monkeypatch.setattr(staging, "stage", lambda *_, **__: order.append("stage"))
    assert program.main([bundle.digest, "--stage"]) == 0
    assert order == ["token", "user", "stage"]


def test_a_model_that_was_put_there_by_hand_is_served(node: FakeNode, bundle: Delivered) -> None:
    node.copies.public.unlink()
    node.copies.public.mkdir()
    (node.copies.public / "config.json").write_text("mine", encoding="utf-8")
    assert apply(node, bundle) == 0
    assert config(node) == "mine"
    assert node.status()["restarted"] == [MODELS, VLLM, WRAPPER]
    assert node.status()["weights"]["version"] == "by hand"
    after = engine_changed(node.port)
    node.dumb.add(after.digest)
    assert apply(node, after) == 1
    assert (config(node), node.serving()) == ("mine", bundle.digest)


def test_a_dead_store_does_not_stop_a_node_that_has_its_copy(
    node: FakeNode, bundle: Delivered, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share whose server is away: mounted, and every look at it fails."""
    real = Path.stat

    def dead(path: Path, **options: Any) -> os.stat_result:
        if path.is_relative_to(node.paths.model_store):
            raise OSError(errno.EHOSTDOWN, os.strerror(errno.EHOSTDOWN), str(path))
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", dead)
    assert program.main(["--boot"]) == 0
    assert node.copies.served == old


def test_a_full_disk_after_the_answer_takes_nothing_away(
    node: FakeNode, bundle: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Copies) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "good")

    monkeypatch.setattr(Copies, "note_good", full)
    assert apply(node, bundle) == 0
    status = node.status()
    assert status["state"] == "serving"
    assert status["warnings"] == ["good cannot be written (No space left on device); a later failure goes back further"]


def test_a_start_needs_nothing_from_the_store_where_a_copy_is_served(
    node: FakeNode, bundle: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even its mount: a publication may be running on it."""
    opened: list[object] = []
    monkeypatch.setattr(store, "reopen", lambda *_: opened.append(1))
    assert program.main(["--open-store"]) == 0
    assert not opened
    shutil.rmtree(node.copies.models)
    assert program.main(["--open-store"]) == 0
    assert opened


def test_a_bundle_with_another_model_leaves_the_copies_of_the_one_before(node: FakeNode, bundle: Delivered) -> None:
    other = node.paths.model_store / "Other"
    other.mkdir()
    (other / "config.json").write_text("other", encoding="utf-8")
    files = next(path for path in bundle.files if path.endswith("/model.json"))
    model = bundle.files[files].replace(MODEL.encode(), b"Other")
    after = deliver(node.port, replace={files: model})
    node.dumb.add(after.digest)
    assert apply(node, after) == 1
    assert config(node) == "{}"
    node.dumb.clear()
    assert apply(node, after) == 0
    assert (Copies.of(node.paths, "Other").public / "config.json").read_text(encoding="utf-8") == "other"
    assert config(node) == "{}", "it stays, for a bundle that names it again"


def test_links_in_the_services_directories_are_made_as_their_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root would follow a link that a service has put in the way."""
    monkeypatch.setattr(commands, "SERVICE_USER", "nobody")
    root, nobody = os.geteuid() == 0, pwd.getpwnam("nobody").pw_uid
    before = (os.geteuid(), os.getegid(), os.getgroups())
    with tempfile.TemporaryDirectory() as folder:  # pytest's own lies in one that only root may enter
        link = Path(folder) / "link"
        Path(folder).chmod(0o777)
        with commands.as_service_user():
            link.symlink_to("x")
        assert link.lstat().st_uid == (nobody if root else before[0])
    assert (os.geteuid(), os.getegid(), os.getgroups()) == before
