"""Delivery over SSH under the real engine: to a host of its own with a real sshd, through its whole life, in order."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import pytest

from cloud_init.bundle import Bundle, Piece, archive
from cloud_init.delivery import ssh as over_ssh
from cloud_init.templating import text
from infra import program
from infra.rehearsal.record import Change
from tests.namespaces.host import Host, on_loopback
from tests.ssh_stack import SshStack
from tools.ports import reserve_port

pytestmark = [pytest.mark.lab, pytest.mark.groundwork]  # one life, in order
NODE = program.load_plan("dev").nodes[0]
CANARY = "canary-backend-key-5e1f"
SERVES = """
import json, pathlib, sys
folder = pathlib.Path("/etc/huddle/credentials")
held = {path.name: path.read_text() for path in sorted(folder.iterdir())}
done = "prepared" if "--prepare" in sys.argv else "applied"
with open(f"/var/lib/huddle/{done}", "a") as log:
    log.write(json.dumps({"digest": sys.argv[1], "held": held}) + "\\n")
print("huddle-apply: readiness done")
print(json.dumps({"state": "serving", "bundle": sys.argv[1]}))
"""
FAILS = (
    "import sys; print('the engine ran out of memory'); sys.exit('huddle-apply: readiness: not ready after 900 s')\n"
)


PART = Piece("package", sha256(b"a part").hexdigest(), b"a part")


def bundle_of(main: str) -> Bundle:
    """A bundle whose program is the test's; it is carried, checked and unpacked as any other."""
    packed = archive.pack({"apply/__main__.py": main.encode()})
    digest = sha256(packed).hexdigest()
    return Bundle(digest, f"huddle-{digest[:12]}", packed, MappingProxyType({}), (PART,))


@dataclass
class Machine:
    """The host, its sshd and its keys."""

    host: Host
    folder: Path
    port: int
    sshd: subprocess.Popen[bytes] | None = None

    def keygen(self, name: str) -> str:
        """A fresh key pair; returns the private half."""
        for leftover in self.folder.glob(f"{name}*"):
            leftover.unlink()
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
        subprocess.run(keygen, check=True)
        return (self.folder / name).read_text(encoding="utf-8")

    def accept(self, *names: str) -> None:
        keys = "".join((self.folder / f"{name}.pub").read_text(encoding="utf-8") for name in names)
        (self.folder / "authorized_keys").write_text(keys, encoding="utf-8")

    def start(self) -> None:
        argv = self.host.argv(["/usr/sbin/sshd", "-D", "-e", "-f", "/opt/sshd/config"])
        with (self.host.root / "sshd.log").open("ab") as log:
            self.sshd = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log)

    def stop(self) -> None:
        assert self.sshd is not None
        self.host.run("pkill", "-f", "/opt/sshd/config")
        self.sshd.wait()

    def applied(self) -> list[dict]:
        path = self.host.root / "var/lib/huddle/applied"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    root = tmp_path_factory.mktemp("ssh") / NODE.name
    with on_loopback(root, NODE.name) as host:
        folder = root / "opt/sshd"
        folder.mkdir()
        (root / "opt/huddle/bin").mkdir(parents=True)
        apply = root / "opt/huddle/bin/huddle-apply"
        apply.write_text(text("apply/huddle-apply"), encoding="utf-8")
        apply.chmod(0o755)
        cloud_init = root / "opt/sshd/bin/cloud-init"
        cloud_init.parent.mkdir()
        cloud_init.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
        cloud_init.chmod(0o755)
        (root / "run/sshd").mkdir()
        made = Machine(host, folder, reserve_port())
        (folder / "config").write_text(
            (Path(__file__).parent / "inside/sshd_config")
            .read_text(encoding="utf-8")
            .replace("@PORT@", str(made.port)),
            encoding="utf-8",
        )
        made.keygen("host")
        yield made


@pytest.fixture(scope="module")
def stack(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> SshStack:
    key = machine.keygen("user")
    machine.accept("user")
    return SshStack(
        NODE,
        tmp_path_factory.mktemp("project"),
        machine.port,
        "root",
        key,
        bundle_of(SERVES),
        secrets={"backend_key": CANARY},
    )


def test_the_gate_waits_for_a_host_that_is_still_booting_and_then_all_is_delivered(
    stack: SshStack, machine: Machine
) -> None:
    threading.Timer(3, machine.start).start()
    stack.up()
    assert machine.applied() == [
        {"digest": stack.bundle.digest, "held": {"backend_key": CANARY}},
    ]
    assert stack.status() == f"serving ({stack.bundle.digest[:12]})"
    held = machine.host.root / "etc/huddle/credentials/backend_key"
    assert held.stat().st_mode & 0o777 == 0o600
    copies = machine.host.root / over_ssh.COPIES.removeprefix("/")
    assert copies.is_dir()
    assert not list(copies.glob("huddle-*"))
    kept = machine.host.root / "opt/huddle/parts" / PART.relative
    assert (kept.read_bytes(), kept.stat().st_mode & 0o777) == (PART.content, 0o644)


def test_no_secret_is_shown_or_kept_in_plain_text(stack: SshStack) -> None:
    assert CANARY not in stack.said
    state = stack.state()
    assert "node-1-secrets" in state
    for secret in (CANARY, over_ssh.stdin_of({"backend_key": CANARY}).split()[1], "OPENSSH PRIVATE KEY"):
        assert secret not in state


def test_again_changes_nothing(stack: SshStack, machine: Machine) -> None:
    before = len(machine.applied())
    stack.stack.preview(expect_no_changes=True)
    assert stack.done(stack.up()) == {}
    assert len(machine.applied()) == before


def test_another_bundle_is_brought_and_applied_and_gate_and_parts_stay(stack: SshStack, machine: Machine) -> None:
    stack.bundle = bundle_of(SERVES + "# the next one\n")
    assert set(stack.done(stack.up())) == {"bundle", "prepare", "apply"}
    assert machine.applied()[-1]["digest"] == stack.bundle.digest


def test_another_ssh_key_replaces_nothing(stack: SshStack, machine: Machine) -> None:
    stack.key = machine.keygen("second")
    machine.accept("second")
    done = stack.done(stack.up())
    assert set(done.values()) == {Change.UPDATE}
    assert machine.applied()[-1]["digest"] == stack.bundle.digest


def test_another_secret_reaches_the_node_and_its_services(stack: SshStack, machine: Machine) -> None:
    before = len(machine.applied())
    stack.secrets = {"backend_key": "canary-second-5e1f"}
    stack.up()
    (held,) = (one["held"]["backend_key"] for one in machine.applied()[before:])
    assert held == f"canary-second-5e1f\n{CANARY}", "the gateway may still show the one before"


def test_a_node_that_does_not_serve_fails_the_deployment_with_its_log(stack: SshStack) -> None:
    serving, stack.bundle = stack.bundle, bundle_of(FAILS)
    said = stack.fails()
    assert "the engine ran out of memory" in said
    assert "huddle-apply: readiness: not ready after 900 s" in said
    assert stack.secrets["backend_key"] not in said
    stack.bundle = serving
    stack.up()


def test_a_rebuilt_host_behind_the_same_address_gets_no_secret(stack: SshStack, machine: Machine) -> None:
    machine.stop()
    machine.keygen("host")
    machine.host.run("rm", "--recursive", "/etc/huddle")
    machine.start()
    stack.secrets = {"backend_key": "canary-third-5e1f"}
    said = stack.fails()
    assert "key" in said
    assert "hostKey" in said or "host key" in said or "mismatch" in said
    assert machine.host.run("test", "-e", "/etc/huddle").returncode == 1


def test_a_rebuilt_host_that_is_known_to_be_another_gets_everything_again(stack: SshStack, machine: Machine) -> None:
    stack.identity = "vm-2"
    done = stack.done(stack.up())
    assert (done["gate"], done["package"]) == (Change.REPLACE, Change.REPLACE)
    assert machine.applied()[-1] == {"digest": stack.bundle.digest, "held": {"backend_key": "canary-third-5e1f"}}


def test_a_host_that_is_gone_does_not_stop_a_destroy(stack: SshStack, machine: Machine) -> None:
    machine.stop()
    stack.stack.destroy()
    assert not (stack.stack.export_stack().deployment or {}).get("resources")
