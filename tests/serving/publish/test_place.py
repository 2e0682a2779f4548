"""Who may write where: as the product's own bundle tells each node."""

from __future__ import annotations

import socket
from functools import cache
from pathlib import Path

import pytest

from cloud_init import bundle
from cloud_init.bundle import Bundle
from huddle.errors import ExitCode, HuddleError
from huddle.publish import place
from huddle.publish.place import Share
from huddle.publish.session import NotTheLoaderError, SharedDisk
from infra import program
from tests.unit import stack_values

HEAD, WORKER = "huddleai-h100-node-1", "huddleai-h100-node-2"


@cache
def built(kind: str) -> Bundle:
    if kind == "dev":
        return bundle.build(program.load_plan("dev"))
    return bundle.build(program.plan_of(stack_values.settings(model_store=stack_values.FILES), "dev"))


@pytest.fixture
def be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Become a node of a stack."""

    def be(host: str, kind: str = "dev") -> None:
        for path, content in built(kind).files.items():
            if path.endswith("node.json"):
                target = tmp_path / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        monkeypatch.setattr(place, "CURRENT", tmp_path)
        monkeypatch.setattr(socket, "gethostname", lambda: host)

    return be


def test_the_head_writes_to_the_disk_that_its_udev_rule_names(be) -> None:
    be(HEAD)
    store = place.for_writing(None, None)
    assert isinstance(store, SharedDisk)
    assert (store.device, store.paths.root) == (Path("/dev/disk/huddle/models"), Path("/mnt/models"))


def test_another_node_is_told_where_to_go(be) -> None:
    be(WORKER)
    with pytest.raises(NotTheLoaderError, match=f"{WORKER} only reads the store; publish on {HEAD}") as caught:
        place.for_writing(None, None)
    assert caught.value.exit_code is ExitCode.BAD_INPUT
    assert place.for_reading(None).root == Path("/mnt/models")


def test_a_share_is_remounted_for_writing(be) -> None:
    be(HEAD, "azure-files")
    assert isinstance(place.for_writing(None, None), Share)


def test_a_share_is_read_only_again_whatever_happens(be, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done: list[str] = []
    monkeypatch.setattr(place.disk, "run", lambda *argv: done.append(argv[2]) or "")
    store = Share(place.StorePaths(tmp_path))
    with pytest.raises(ValueError, match="broken"), store.writable():
        assert done == ["remount,rw"]
        raise ValueError("broken")
    assert done == ["remount,rw", "remount,ro"]


def test_a_second_publication_to_a_share_does_not_take_the_first_ones_mount(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []
    monkeypatch.setattr(place.disk, "run", lambda *argv: done.append(argv[2]) or "")
    store = Share(place.StorePaths(tmp_path))
    with store.writable():
        with pytest.raises(HuddleError, match="another publication is running"), store.writable():
            pass
        assert done == ["remount,rw"], "the first one still writes"
    assert done == ["remount,rw", "remount,ro"]
