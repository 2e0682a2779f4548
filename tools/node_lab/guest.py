"""One emulated machine: its hardware as QEMU's words, and its life (start, power cut, power off)."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.deadlines import scaled
from tools.node_lab.image import Image

_WAY_IN = "10.0.9.15"
STOP_S = 60.0
_END_WITH_PARENT = ("setpriv", "--pdeathsig=KILL", "--")
"""No machine outlives the run that switched it on, however that ends. (Python's own hook for this runs between fork and
exec, where gRPC of the Pulumi engine's API ends the child.)"""
_CPU = "Nehalem"
"""The oldest that the wheels run on (x86-64-v2): what newer ones add costs time when it is emulated."""
_KERNEL = "root=/dev/vda rw console=ttyS0 quiet net.ifnames=0 mitigations=off no_timer_check panic=1"
"""`no_timer_check`: on a host without a core to spare the kernel counts too few ticks and takes the emulated timer for
broken. `panic=1`: a kernel that panics restarts after a second."""
_MOST_PANICS = 3
_PROGRAM = "qemu-system-x86_64"


class GuestError(Exception):
    """A guest that does not do what the lab needs, with the place of its console's log."""


@dataclass(frozen=True)
class Link:
    """A guest's two network cards.

    eth0 is the node's, with a cable to the other guest or to nobody (`cable`: loopback UDP ports, ours and theirs).
    eth1 is the lab's way in: QEMU's user network forwards our loopback port to the guest's ssh and nothing else, in
    either direction (`restrict`). It has a wire of its own since it answers for every address that it sees.
    """

    number: int  # of the node
    ssh: int
    cable: tuple[int, int] | None = None

    @property
    def macs(self) -> tuple[str, str]:
        """The MAC addresses of eth0 and eth1."""
        return f"52:54:00:00:00:{self.number:02x}", f"52:54:00:00:01:{self.number:02x}"

    def network_config(self, address: str, prefix: int) -> Mapping[str, Any]:
        """What Azure's DHCP would lease to the node's card, and the lab's own address, for cloud-init."""
        addresses = (f"{address}/{prefix}", f"{_WAY_IN}/24")
        cards = {
            f"eth{index}": {"match": {"macaddress": mac}, "set-name": f"eth{index}", "addresses": [own]}
            for index, (mac, own) in enumerate(zip(self.macs, addresses, strict=True))
        }
        return {"version": 2, "ethernets": cards}

    def words(self) -> Iterator[str]:
        """The arguments for QEMU that make this link."""
        yield from ("-netdev", "hubport,id=eth0,hubid=0", "-device", f"virtio-net-pci,netdev=eth0,mac={self.macs[0]}")
        if self.cable:
            own, other = self.cable
            ends = f"local.type=inet,local.host=127.0.0.1,local.port={own}"
            ends += f",remote.type=inet,remote.host=127.0.0.1,remote.port={other}"
            yield from ("-netdev", f"dgram,id=cable,{ends}", "-netdev", "hubport,id=cable-port,hubid=0,netdev=cable")
        forward = f"hostfwd=tcp:127.0.0.1:{self.ssh}-{_WAY_IN}:22"
        yield from ("-netdev", f"user,id=eth1,net=10.0.9.0/24,ipv6=off,restrict=on,{forward}")
        yield from ("-device", f"virtio-net-pci,netdev=eth1,mac={self.macs[1]}")


@dataclass(frozen=True)
class Hardware:
    """What a guest is made of. Images are paths; `nvme` in the order of the slots."""

    name: str
    image: Image
    root: Path  # a qcow2 overlay
    seed: Path
    wheels: Path
    link: Link
    console: Path
    models: Path | None = None  # at LUN 0, shared with other guests
    nvme: tuple[Path, ...] = ()
    memory_mib: int = 1536

    def command(self) -> list[str]:
        """QEMU's command line. Emulated (TCG): nested virtualisation is not to be relied on."""
        return [_PROGRAM, *self._machine(), *self._disks(), *self.link.words()]

    def _machine(self) -> Iterator[str]:
        yield from ("-name", self.name, "-machine", "q35", "-accel", "tcg,thread=multi,tb-size=256", "-cpu", _CPU)
        yield from ("-m", str(self.memory_mib), "-smp", "2", "-display", "none", "-monitor", "none")
        yield from ("-serial", f"file:{self.console}", "-rtc", "base=utc", "-device", "virtio-rng-pci")
        yield from ("-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd))
        yield from ("-append", _KERNEL)

    def _disks(self) -> Iterator[str]:
        for index, (path, kind, extra) in enumerate(
            (
                (self.root, "qcow2", ",cache=unsafe"),
                (self.seed, "raw", ",readonly=on"),
                (self.wheels, "raw", ",readonly=on"),
            )
        ):
            yield from ("-drive", f"if=none,id=vd{index},file={path},format={kind}{extra}")
            yield from ("-device", f"virtio-blk-pci,drive=vd{index}")
        if self.models is not None:
            yield from ("-device", "virtio-scsi-pci,id=scsi")
            yield from ("-drive", f"if=none,id=models,file={self.models},format=raw,file.locking=off")
            yield from ("-device", "scsi-hd,bus=scsi.0,lun=0,drive=models,share-rw=on,serial=lun0")
        for index, path in enumerate(self.nvme):
            yield from ("-drive", f"if=none,id=nvme{index},file={path},format=raw,cache=unsafe,discard=unmap")
            yield from ("-device", f"nvme,serial=local{index},drive=nvme{index}")


class Guest:
    """A machine that can be switched on and off. Its disks survive it."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it is switched on."""
        return self._process is not None and self._process.poll() is None

    @property
    def fault(self) -> str:
        """Why nobody will get in any more, or nothing."""
        console = self.hardware.console
        if not self.running:
            return f"{self.hardware.name} is off; its console: {console}"
        panics = console.read_bytes().count(b"Kernel panic") if console.exists() else 0
        return f"the kernel panicked {panics} times: {console}" if panics >= _MOST_PANICS else ""

    def start(self) -> None:
        """Switch it on.

        Raises:
            GuestError: QEMU is missing or refuses its words.
        """
        if shutil.which(_PROGRAM) is None:
            raise GuestError(f"{_PROGRAM} is not installed; run `tools/setup/apt.sh test`")
        errors = self.hardware.console.with_suffix(".qemu")
        with errors.open("wb") as log:
            self._process = subprocess.Popen(
                [*_END_WITH_PARENT, *self.hardware.command()], stdin=subprocess.DEVNULL, stderr=log
            )
        time.sleep(0.2)
        if not self.running:
            raise GuestError(f"{self.hardware.name} did not start: {errors.read_text(errors='replace').strip()}")

    def wait_off(self, timeout_s: float = STOP_S) -> None:
        """Wait until it has switched itself off.

        Raises:
            GuestError: it has not.
        """
        if self._process is None:
            return
        try:
            self._process.wait(scaled(timeout_s))
        except subprocess.TimeoutExpired:
            raise GuestError(f"{self.hardware.name} is still on after {timeout_s:.0f} s") from None

    def cut_power(self) -> None:
        """Switch it off as a power cut does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
