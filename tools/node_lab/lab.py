"""The lab's machines: guests of one stack, their way in, and what a deployment does to them."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cloud_init import user_data as render
from cloud_init.bundle import Bundle, shipped_registry
from cloud_init.delivery import run_command
from plan.azure.model import AzurePlan
from plan.model import NodePlan
from plan.vocabulary import Segment
from tools.deadlines import scaled
from tools.node_lab import bundles, image, media, wheels
from tools.node_lab.guest import Guest, Hardware, Link
from tools.node_lab.shell import CONNECT_S, Done, Shell
from tools.ports import reserve_port

VAULT_URI = "https://169.254.169.253/"
CLIENT_ID = "00000000-1111-2222-3333-444444444444"
APPLY_S = 420.0


@dataclass
class Node:
    """A node of the plan and the guest that plays it."""

    plan: AzurePlan
    of: NodePlan
    guest: Guest
    shell: Shell
    brought: dict[str, str] = field(default_factory=dict)
    """The digest of each piece that was brought last: Azure runs a command again only when its script is another."""

    def apply(self, bundle: Bundle, timeout_s: float = APPLY_S) -> Done:
        """Deliver and apply a bundle as run commands do: what of its parts is new here comes first."""
        for piece in bundle.pieces:
            if self.brought.get(piece.name) != piece.digest:
                done = self.shell.run_script(run_command.piece_script(piece), timeout_s)
                if done.code != 0:
                    return done
                self.brought[piece.name] = piece.digest
        secrets = run_command.SecretSource(VAULT_URI, CLIENT_ID)
        done = self.shell.run_script(run_command.prepare_script(self.plan, self.of, bundle, secrets), timeout_s)
        if done.code != 0:
            return done
        return self.shell.run_script(run_command.apply_script(self.plan, self.of, bundle, secrets), timeout_s)

    def status(self) -> dict[str, Any]:
        """The node's status file, as any user reads it."""
        said = self.shell.out("cat /var/lib/huddle/status.json", user="nobody")
        return dict(json.loads(said))

    def serving(self) -> str:
        """The digest of the bundle that serves."""
        return self.shell.out("readlink /opt/huddle/current").strip().rpartition("/")[2]

    def ask(self, model: str, *, timeout_s: float = 30) -> Done:
        """A completion through the wrapper, asked with the backend key from the node itself."""
        question = json.dumps(
            {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}
        )
        url = f"http://{self.of.address}:{self.plan.serving.wrapper_port}/v1/chat/completions"
        key = '"X-Backend-Key: $(head -n 1 /etc/huddle/credentials/backend_key)"'
        command = f"curl -sS -m 20 -w '\\n%{{http_code}}' -H {key} -H 'Content-Type: application/json' -d @- {url}"
        return self.shell.run(command, stdin=question, timeout_s=timeout_s)

    def serves(self, model: str) -> bool:
        """Whether a completion comes back."""
        return self.ask(model).out.endswith("\n200")

    def wait(self) -> None:
        """Wait for the way in, as long as there can be one."""
        self.shell.wait(lambda: self.guest.fault)

    def boot(self) -> None:
        """Switch on and wait for the way in."""
        self.guest.start()
        self.wait()

    def power_off(self) -> None:
        """Shut down as an operator would, and wait for the end."""
        self.shell.run("systemctl poweroff", timeout_s=30)
        self.shell.disconnect()
        self.guest.wait_off(120)

    def reboot(self) -> None:
        """Restart in order, and wait until the next boot accepts a login.

        Raises:
            TimeoutError: it does not in time.
        """
        before = self.shell.out("cat /proc/sys/kernel/random/boot_id")
        self.shell.run("systemctl reboot", timeout_s=30)
        self.shell.disconnect()
        end = time.monotonic() + scaled(CONNECT_S)
        while time.monotonic() < end:
            self.wait()
            done = self.shell.run("cat /proc/sys/kernel/random/boot_id")
            if done.code == 0 and done.out != before:
                return
            self.shell.disconnect()
            time.sleep(1)
        raise TimeoutError(f"{self.of.name} did not come back")

    def replug(self, nvme: Sequence[Path]) -> None:
        """Change the local disks of a guest that is off."""
        self.guest = Guest(replace(self.guest.hardware, nvme=tuple(nvme)))


class Lab:
    """A temporary folder with the run's key, disks and guests."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="node-lab-"))
        self.wheels = wheels.ensure()
        self.image = image.ensure(self.wheels)
        key = self.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(key)], check=True)
        self.public_key = key.with_suffix(".pub").read_text(encoding="utf-8").strip()
        self.plan = bundles.plan(self.public_key)
        self._cable = [reserve_port(socket.SOCK_DGRAM) for _ in range(2)]
        self._ssh = [reserve_port() for _ in self.plan.nodes]
        self._wheels = media.wheels(self.folder / "wheels.iso", self.wheels.folder)
        directory = shipped_registry.load().models[self.plan.nodes[0].model].store_directory
        self.models = media.model_disk(self.folder / "models.raw", directory)
        self.guests: list[Guest] = []

    def bundle(self, of: AzurePlan | None = None, **changes: Any) -> Bundle:
        """The stack's bundle, changed (see bundles.build)."""
        return bundles.build(of or self.plan, self.wheels, **changes)

    def node(self, number: int, nvme: Sequence[Path], *, together: bool = False) -> Node:
        """A new machine for a node. `together`: with a cable to the other one."""
        of = self.plan.nodes[number - 1]
        folder = self.folder / of.name
        folder.mkdir()
        cable = (self._cable[number - 1], self._cable[2 - number]) if together else None
        link = Link(number, self._ssh[number - 1], cable)
        network = link.network_config(str(of.address), self.plan.addresses.subnets[Segment.NODES].prefixlen)
        hardware = Hardware(
            name=of.name,
            image=self.image,
            root=media.overlay(folder / "root.qcow2", self.image.root),
            seed=media.seed(
                folder / "seed.iso",
                render.user_data(self.plan, of, self.plan.compute.login),
                network,
                of.name,
            ),
            wheels=self._wheels,
            link=link,
            console=folder / "console.log",
            models=self.models,
            nvme=tuple(nvme),
        )
        guest = Guest(hardware)
        self.guests.append(guest)
        shell = Shell(self._ssh[number - 1], self.plan.compute.admin_username, self.folder / "key", self.folder)
        return Node(self.plan, of, guest, shell)

    def rebuild(self, node: Node) -> None:
        """Give a machine that is off a fresh OS disk: a new machine behind the same address."""
        hardware = node.guest.hardware
        node.brought.clear()
        hardware.root.unlink()
        media.overlay(hardware.root, self.image.root)

    def disk(self, name: str) -> Path:
        """A blank NVMe disk."""
        return media.blank(self.folder / name)

    def foreign_disk(self, name: str) -> Path:
        """An NVMe disk with somebody's file system on it."""
        return media.foreign(self.folder / name)

    def close(self, *, keep: bool = False) -> None:
        """Switch everything off and clean up; `keep`: the folder stays, for its logs."""
        for guest in self.guests:
            guest.cut_power()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
