"""The node lab's own decisions, without a machine: QEMU's words, how listeners are judged, what a picture shows."""

from __future__ import annotations

import contextlib
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from infra import program
from tests.node.listeners import wrong_listeners
from tools.node_lab import timeline
from tools.node_lab.guest import Guest, GuestError, Hardware, Link
from tools.node_lab.image import Image
from tools.node_lab.shell import Shell, ShellError


def hardware(tmp_path: Path, nvme: int = 2) -> Hardware:
    return Hardware(
        name="node-1",
        image=Image(tmp_path),
        root=tmp_path / "root",
        seed=tmp_path / "seed",
        wheels=tmp_path / "wheels",
        link=Link(1, 2222, cable=(3001, 3002)),
        console=tmp_path / "console",
        models=tmp_path / "models",
        nvme=tuple(tmp_path / f"nvme{number}" for number in range(nvme)),
    )


def command(tmp_path: Path, nvme: int = 2) -> list[str]:
    return hardware(tmp_path, nvme).command()


def test_a_guest_is_emulated_and_reaches_nothing(tmp_path: Path) -> None:
    words = command(tmp_path)
    assert "-enable-kvm" not in words
    assert words[words.index("-accel") + 1].startswith("tcg")
    (user,) = [word for word in words if word.startswith("user,")]
    assert "restrict=on" in user
    assert re.findall(r"hostfwd=(\S+)", user) == ["tcp:127.0.0.1:2222-10.0.9.15:22"]
    hosts = {host for word in words for host in re.findall(r"(?:local|remote)\.host=([\d.]+)", word)}
    assert hosts == {"127.0.0.1"}


def test_a_kernel_short_of_processor_time_boots_again(tmp_path: Path) -> None:
    words = command(tmp_path)
    kernel = words[words.index("-append") + 1].split()
    assert {"no_timer_check", "panic=1"} <= set(kernel)
    assert "-no-reboot" not in words


@pytest.mark.parametrize(
    ("console", "process", "why"),
    [
        ("", ["true"], "node-1 is off"),
        ("Kernel panic - not syncing\n" * 2, ["sleep", "60"], ""),
        ("Kernel panic - not syncing\n" * 3, ["sleep", "60"], "the kernel panicked 3 times"),
    ],
)
def test_nobody_waits_for_a_guest_that_will_never_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: str, process: list[str], why: str
) -> None:
    machine = hardware(tmp_path)
    machine.console.write_text(console, encoding="utf-8")
    monkeypatch.setattr(Hardware, "command", lambda _: process)
    guest = Guest(machine)
    with contextlib.suppress(GuestError):
        guest.start()
    shell = Shell(port=1, user="nobody", key=tmp_path / "key", folder=tmp_path)
    try:
        assert guest.fault.startswith(why)
        assert bool(guest.fault) == bool(why)
        if why:
            with pytest.raises(ShellError, match=why):
                shell.wait(lambda: guest.fault)
    finally:
        guest.cut_power()


@pytest.mark.parametrize("count", [0, 1, 8])
def test_local_disks_are_nvme_and_the_model_disk_is_shared_at_its_lun(tmp_path: Path, count: int) -> None:
    words = command(tmp_path, count)
    assert sum(word.startswith("nvme,") for word in words) == count
    (models,) = [word for word in words if word.startswith("scsi-hd,")]
    assert "lun=0" in models
    assert "share-rw=on" in models
    assert any("file.locking=off" in word and "models" in word for word in words)


@pytest.mark.parametrize(
    ("socket", "problem"),
    [
        ("10.0.0.4:8000", None),
        ("127.0.0.1:5005", None),
        ("0.0.0.0:22", None),
        ("[::]:22", None),
        ("[::]:29500", None),  # torch binds it to everything; the packet filter closes it
        ("10.0.0.4:10001", None),  # Ray binds it wider; the packet filter closes it
        ("10.0.0.4:5005", "vllm listens on the wrong address"),
        ("0.0.0.0:8000", "wrapper listens on the wrong address"),
        ("10.0.0.5:6379", "ray-gcs listens on the wrong address"),
        ("127.0.0.1:4444", "not in the port table"),
    ],
)
def test_listeners_are_judged_by_port_and_address(socket: str, problem: str | None) -> None:
    plan = program.load_plan("dev")
    found = wrong_listeners(plan, plan.nodes[0], [socket])
    assert found == ([] if problem is None else [f"{socket}: {problem}"])


STATUS = {
    "uptime_s": 60.0,
    "phases": [
        {"name": "staging", "begin_s": 5.0, "seconds": 20.0, "result": "done"},
        {"name": "libraries", "begin_s": 5.0, "seconds": 35.0, "result": "done"},
    ],
}


def test_the_timeline_counts_from_the_power_switch() -> None:
    found = timeline.phases({"kernel": [0.0, 10.0]}, STATUS)
    assert [(one.name, one.begin_s, one.kind) for one in found] == [
        ("kernel", 0.0, "machine"),
        ("staging", 65.0, "apply"),
        ("libraries", 65.0, "apply"),
    ]


def test_the_timeline_is_a_picture_with_a_bar_for_each_phase() -> None:
    picture = timeline.draw(timeline.phases({"kernel": [0.0, 10.0]}, STATUS), "measured <here>")
    root = ET.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    bars = [one for one in root.iter(f"{space}rect") if one.get("class") in ("machine", "apply")]
    assert len(bars) == 3
    assert all(float(bar.get("x", 0)) + float(bar.get("width", 0)) <= timeline.WIDTH for bar in bars)
    texts = [one.text for one in root.iter(f"{space}text")]
    assert {"kernel", "staging", "libraries", "20.0 s", "measured <here>"} <= set(texts)
