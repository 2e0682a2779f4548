"""huddle-nvme on pretended disks: sparse files under real mkfs.xfs, blkid and wipefs.

lsblk, mdadm and udevadm are fakes. A disk is a file; its model and its partitions are what the fake lsblk says. The
fake mdadm makes an array out of disks by noting it, and the fake blkid tells members from the note.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cloud_init.templating import text

DIRECT, DIRECT_V2 = "Microsoft NVMe Direct Disk", "Microsoft NVMe Direct Disk v2"
REMOTE = "MSFT NVMe Accelerator v1.0"
REFUSED = 77
DISK_BYTES = 400 * 1024**2  # XFS wants 300 MiB; the files are sparse

FAKES = {
    "lsblk": r"""
case "$*" in
    *NAME,TYPE,MODEL) cat "$FAKE/disks" ;;
    *NAME,TYPE\ *)
        echo "${@: -1} disk"
        cat "$FAKE/children/$(basename "${@: -1}")" 2>/dev/null || true
        ;;
    *)
        basename "${@: -1}"
        cut -d' ' -f1 "$FAKE/children/$(basename "${@: -1}")" 2>/dev/null || true
        ;;
esac
""",
    "mdadm": r"""
echo "mdadm $*" >>"$FAKE/calls"
disks=$(printf '%s\n' "$@" | grep "^$FAKE/nvme" || true)
case "$1" in
    --stop) rm --recursive "$FAKE"/sys/class/block/*/holders/"$(basename "${@: -1}")" ;;
    --assemble)
        if ls "$FAKE"/sys/class/block/*/holders/md* >"$FAKE/busy" 2>&1; then exit 1; fi
        ;;
    --create)
        truncate --size=800M "$FAKE/md127"
        echo "$disks" >"$FAKE/members"
        ;;
esac
for disk in $disks; do echo "$FAKE/md127 raid0" >"$FAKE/children/$(basename "$disk")"; done
""",
    "blkid": r"""
if grep --quiet --line-regexp --fixed-strings -e "${@: -1}" "$FAKE/members" 2>/dev/null; then
    case "$*" in *"--match-tag TYPE"*) echo linux_raid_member ;; *) echo "huddle:huddle-nvme" ;; esac
    exit 0
fi
exec "$REAL_BLKID" "$@"
""",
    "udevadm": r"""
if [[ $1 == trigger ]]; then
    echo "$* $("$REAL_BLKID" --probe --output value --match-tag LABEL "${@: -1}" 2>/dev/null)" >>"$FAKE/shown"
    exit
fi
[[ ! -e $FAKE/udev-is-busy ]]
if [[ -e $FAKE/late ]]; then
    cat "$FAKE/late" >>"$FAKE/disks"
    rm "$FAKE/late"
fi
""",
}


class Machine:
    """A machine with disks of given models."""

    def __init__(self, folder: Path, *models: str) -> None:
        self.folder = folder
        (folder / "children").mkdir()
        (folder / "bin").mkdir()
        self.disks = [folder / f"nvme{index}n1" for index, _ in enumerate(models)]
        for disk in self.disks:
            with disk.open("wb") as file:
                file.truncate(DISK_BYTES)
        lines = [f'NAME="{disk}" TYPE="disk" MODEL="{model}"' for disk, model in zip(self.disks, models, strict=True)]
        lines.append(f'NAME="{folder}/sr0" TYPE="rom" MODEL="{DIRECT}"')
        (folder / "disks").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for name, body in FAKES.items():
            self._program(name, body)
        self._program("mkfs.xfs", f'echo "mkfs.xfs $*" >>"$FAKE/calls"\nexec {_real("mkfs.xfs")} "$@"\n')
        self.script = folder / "huddle-nvme"
        self.script.write_text(text("disks/huddle-nvme"), encoding="utf-8")

    def _program(self, name: str, body: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/bash\nset -euo pipefail\n{body}", encoding="utf-8")
        path.chmod(0o755)

    def boot(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the unit's program, as at every boot."""
        return subprocess.run(
            ["bash", str(self.script)],
            env={
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}:/usr/sbin:/sbin",
                "FAKE": str(self.folder),
                "REAL_BLKID": _real("blkid"),
                "HUDDLE_ROOT": str(self.folder),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        """What was done to the disks."""
        path = self.folder / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def written(self) -> list[tuple[int, int]]:
        """When and how much was written to each disk: what a test compares to say that nothing was."""
        return [(disk.stat().st_mtime_ns, disk.stat().st_blocks) for disk in self.disks]


def _real(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert found, f"{name} is not installed"
    return found


def label(path: Path) -> tuple[str, str]:
    """Type and label of what is on a disk."""
    values = [
        subprocess.run(
            [_real("blkid"), "-p", "-s", tag, "-o", "value", str(path)], capture_output=True, text=True, check=False
        )
        for tag in ("TYPE", "LABEL")
    ]
    return values[0].stdout.strip(), values[1].stdout.strip()


def test_no_local_disk_is_no_failure(tmp_path: Path) -> None:
    machine = Machine(tmp_path, REMOTE)
    done = machine.boot()
    assert done.returncode == 0
    assert "no local NVMe disk" in done.stdout
    assert machine.calls == []


@pytest.mark.parametrize("model", [DIRECT, DIRECT_V2, f"{DIRECT}   "])
def test_one_disk_becomes_xfs(tmp_path: Path, model: str) -> None:
    machine = Machine(tmp_path, REMOTE, model)
    before = machine.written()
    done = machine.boot()
    assert done.returncode == 0, done.stderr
    assert label(machine.disks[1]) == ("xfs", "huddle-nvme")
    assert machine.written()[0] == before[0]
    assert "1 local disk(s) ready" in done.stdout


@pytest.mark.parametrize("count", [1, 2])
def test_udev_is_asked_to_look_again_when_the_label_is_there(tmp_path: Path, count: int) -> None:
    """Seen in the lab: it was still looking at the new file system, missed its label, and the mount waited."""
    machine = Machine(tmp_path, *[DIRECT] * count)
    for boots in (1, 2):
        assert machine.boot().returncode == 0
        shown = (tmp_path / "shown").read_text(encoding="utf-8").splitlines()
        assert len(shown) == boots
        assert shown[-1].startswith("trigger --action=change /")
        assert shown[-1].endswith(" huddle-nvme")


def test_a_second_boot_changes_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DIRECT)
    machine.boot()
    before, calls = machine.written(), machine.calls
    done = machine.boot()
    assert done.returncode == 0
    assert machine.written() == before
    assert machine.calls == calls


def test_a_disk_that_is_blank_again_is_prepared_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DIRECT)
    machine.boot()
    with machine.disks[0].open("wb") as file:
        file.truncate(DISK_BYTES)
    assert machine.boot().returncode == 0
    assert label(machine.disks[0]) == ("xfs", "huddle-nvme")


@pytest.mark.parametrize("count", [1, 2])
def test_a_power_cut_before_a_file_system_is_complete_formats_again(tmp_path: Path, count: int) -> None:
    """A half-made XFS with the final label would be mounted, in vain, at every boot."""
    machine = Machine(tmp_path, *([DIRECT] * count))
    whole = (tmp_path / "bin/mkfs.xfs").read_text(encoding="utf-8")
    cut = whole.replace("exec ", "", 1) + "kill -KILL $PPID\n"
    (tmp_path / "bin/mkfs.xfs").write_text(cut, encoding="utf-8")
    assert machine.boot().returncode < 0
    device = machine.disks[0] if count == 1 else tmp_path / "md127"
    assert label(device) == ("xfs", "huddle-new")
    (tmp_path / "bin/mkfs.xfs").write_text(whole, encoding="utf-8")
    done = machine.boot()
    assert done.returncode == 0, done.stderr
    assert "was left half formatted; beginning again" in done.stdout
    assert [call.split()[0] for call in machine.calls if call.startswith("mkfs")] == ["mkfs.xfs"] * 2
    assert label(device) == ("xfs", "huddle-nvme")


def test_a_half_formatted_disk_becomes_a_member_when_others_have_come(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DIRECT, DIRECT)
    subprocess.run([_real("mkfs.xfs"), "-q", "-L", "huddle-new", str(machine.disks[0])], check=True)
    done = machine.boot()
    assert done.returncode == 0, done.stderr
    assert label(machine.disks[0]) == ("", "")
    assert "2 local disk(s) ready" in done.stdout


def test_a_label_that_did_not_take_is_a_failure(tmp_path: Path) -> None:
    """xfs_admin ends well even when xfs_db could not write."""
    machine = Machine(tmp_path, DIRECT)
    machine._program("xfs_admin", "true\n")
    done = machine.boot()
    assert done.returncode == 1
    assert "did not take its label" in done.stderr


@pytest.mark.parametrize("count", [2, 8])
def test_several_disks_become_one_array(tmp_path: Path, count: int) -> None:
    machine = Machine(tmp_path, *([DIRECT] * count))
    done = machine.boot()
    assert done.returncode == 0, done.stderr
    create, mkfs = machine.calls
    assert create.startswith("mdadm --create /dev/md/huddle-nvme ")
    assert f"--level=0 --raid-devices={count} " in create
    assert create.endswith(" ".join(map(str, machine.disks)))
    assert mkfs.endswith(str(tmp_path / "md127"))
    assert label(tmp_path / "md127") == ("xfs", "huddle-nvme")
    assert f"{count} local disk(s) ready" in done.stdout


def test_an_array_is_found_again_whatever_the_kernel_calls_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DIRECT, DIRECT)
    machine.boot()
    calls = machine.calls
    assert machine.boot().returncode == 0
    assert machine.calls == calls


def test_an_array_that_nobody_assembled_is_assembled(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DIRECT, DIRECT)
    machine.boot()
    for child in (tmp_path / "children").iterdir():
        child.unlink()
    assert machine.boot().returncode == 0
    assert machine.calls[2:] == [
        f"mdadm --assemble /dev/md/huddle-nvme --run --quiet {machine.disks[0]} {machine.disks[1]}"
    ]


@pytest.mark.parametrize("state", ["inactive", "clean"])
def test_an_array_that_udev_has_assembled_in_part_is_assembled_anew(tmp_path: Path, state: str) -> None:
    """Its members are busy. One that runs is somebody's: not stopped."""
    machine = Machine(tmp_path, DIRECT, DIRECT)
    machine.boot()
    for disk in machine.disks:
        (tmp_path / "children" / disk.name).unlink()
        held = tmp_path / "sys/class/block" / disk.name / "holders/md127/md"
        held.mkdir(parents=True)
        (held / "array_state").write_text(f"{state}\n", encoding="utf-8")
    done = machine.boot()
    names = [" ".join(call.split()[:2]) for call in machine.calls[2:]]
    if state == "inactive":
        assert done.returncode == 0, done.stderr
        assert names == ["mdadm --stop", "mdadm --assemble"]
        assert machine.calls[2].endswith(" /dev/md127")
    else:
        assert done.returncode == 1
        assert names == ["mdadm --assemble"]


def test_disks_that_appear_late_are_waited_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DIRECT, DIRECT)
    first, second, *others = (tmp_path / "disks").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "disks").write_text("".join([first, *others]), encoding="utf-8")
    (tmp_path / "late").write_text(second, encoding="utf-8")
    done = machine.boot()
    assert done.returncode == 0, done.stderr
    assert "2 local disk(s) ready" in done.stdout


def test_nothing_is_written_while_devices_are_still_found(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DIRECT)
    (tmp_path / "udev-is-busy").touch()
    done = machine.boot()
    assert done.returncode == 1  # which is tried again
    assert "udev is still busy" in done.stderr
    assert machine.calls == []
    (tmp_path / "udev-is-busy").unlink()
    assert machine.boot().returncode == 0


def test_an_array_without_a_file_system_gets_one(tmp_path: Path) -> None:
    """The machine went down between mdadm and mkfs."""
    machine = Machine(tmp_path, DIRECT, DIRECT)
    machine.boot()
    with (tmp_path / "md127").open("wb") as file:
        file.truncate(2 * DISK_BYTES)
    assert machine.boot().returncode == 0
    assert [call.split()[0] for call in machine.calls] == ["mdadm", "mkfs.xfs", "mkfs.xfs"]


def test_half_an_array_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DIRECT, DIRECT)
    machine.boot()
    (tmp_path / "members").write_text(f"{machine.disks[0]}\n", encoding="utf-8")
    calls = machine.calls
    done = machine.boot()
    assert done.returncode == REFUSED
    assert "only 1 of 2 local disks belong to our array; nothing was written" in done.stderr
    assert machine.calls == calls


SIGNATURES = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "swap": ["mkswap", "-q"],
    "somebody's xfs": ["mkfs.xfs", "-q", "-L", "precious"],
    "a partition table": ["sfdisk", "--quiet", "--no-tell-kernel"],
}


@pytest.mark.parametrize("kind", SIGNATURES)
@pytest.mark.parametrize("count", [1, 2])
def test_a_disk_with_somebodys_data_is_refused_untouched(tmp_path: Path, kind: str, count: int) -> None:
    machine = Machine(tmp_path, *([DIRECT] * count))
    command = [_real(SIGNATURES[kind][0]), *SIGNATURES[kind][1:], str(machine.disks[-1])]
    subprocess.run(command, input="label: gpt\n,,\n", text=True, check=True, capture_output=True)
    before = machine.written()
    done = machine.boot()
    assert done.returncode == REFUSED
    assert f"{machine.disks[-1]} carries a signature" in done.stderr
    assert "nothing was written" in done.stderr
    assert machine.written() == before
    assert machine.calls == []


def test_a_disk_in_use_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DIRECT)
    (tmp_path / "children" / machine.disks[0].name).write_text("dm-0 crypt\n", encoding="utf-8")
    done = machine.boot()
    assert done.returncode == REFUSED
    assert "has partitions or is in use" in done.stderr
    assert machine.calls == []


@pytest.mark.parametrize("link", ["scsi1/lun0", "data/by-lun/0"])
def test_the_disk_at_a_lun_is_never_taken_whatever_it_calls_itself(tmp_path: Path, link: str) -> None:
    machine = Machine(tmp_path, DIRECT, DIRECT)
    path = tmp_path / "dev/disk/azure" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(machine.disks[1])
    before = machine.written()
    assert machine.boot().returncode == 0
    assert machine.written()[1] == before[1]
    assert label(machine.disks[0]) == ("xfs", "huddle-nvme")


def test_another_model_can_be_named_for_other_machines(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "QEMU NVMe Ctrl")
    assert machine.boot().returncode == 0
    assert machine.calls == []
    assert machine.boot(HUDDLE_NVME_MODELS="QEMU NVMe Ctrl").returncode == 0
    assert label(machine.disks[0]) == ("xfs", "huddle-nvme")
