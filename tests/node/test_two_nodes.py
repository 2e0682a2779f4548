"""Two nodes of a stack on one network: a worker with two disks that boots first, then its head; losses and returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from ipaddress import IPv4Address

import pytest

from cloud_init.bundle import Bundle
from cloud_init.bundle.services import Unit
from huddle.launch.request import RENDEZVOUS_PORTS
from infra.rehearsal.record import Change
from plan.vocabulary import Segment
from tests.node.probes import eventually, journal, serves_again
from tests.ssh_stack import SshStack
from tools.deadlines import scaled
from tools.node_lab.image import OVERLAY
from tools.node_lab.lab import Lab, Node

pytestmark = pytest.mark.lab
QUICK_S = {"credentials": 20, "clock": 4, "readiness": int(scaled(200))}
FOREIGN = 1024**2
"""Bytes at the start of a disk that must stay as they are."""


@pytest.fixture(scope="module")
def worker(lab: Lab) -> Node:
    """The second node, with two local disks of which one carries somebody's file system."""
    return lab.node(2, [lab.disk("blank"), lab.foreign_disk("foreign")], together=True)


@pytest.fixture(scope="module")
def head(lab: Lab) -> Node:
    """The first node."""
    return lab.node(1, [lab.disk("local")], together=True)


@pytest.fixture(scope="module")
def bundle(lab: Lab) -> Bundle:
    """The stack's bundle, one for both."""
    return lab.bundle(deadlines_s=QUICK_S)


@pytest.fixture(scope="module")
def deployed(lab: Lab, head: Node, bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> SshStack:
    """A stack that delivers to the head over SSH, with the secrets that the worker finds in its vault."""
    vault = json.loads((OVERLAY / "etc/lab/secrets.json").read_text(encoding="utf-8"))
    return SshStack(
        node=head.of,
        folder=tmp_path_factory.mktemp("project"),
        port=head.shell.port,
        user=head.shell.user,
        key=head.shell.key.read_text(encoding="utf-8"),
        bundle=bundle,
        secrets={name.replace("-", "_"): value for name, value in vault.items()},
    )


@pytest.fixture(autouse=True)
def on(request: pytest.FixtureRequest, worker: Node) -> None:
    """When the first boot has failed, the others do not wait for deadlines."""
    if request.node.name != "test_a_disk_with_a_signature":
        assert worker.guest.running, "the worker did not boot"


def ray_nodes(node: Node) -> list[str]:
    """What the head counts."""
    head = f"{node.plan.head.address}:{node.plan.serving.ray_gcs_port}"
    done = node.shell.run(f"/opt/huddle/current/bin/huddle-ray-nodes {head}")
    return list(json.loads(done.out)) if done.code == 0 else []


def both(node: Node) -> list[str]:
    """The addresses of all nodes."""
    return [str(one.address) for one in node.plan.nodes]


def open_ports(scanner: Node, address: IPv4Address, ports: list[int]) -> list[int]:
    """Which ports answer a TCP connection from another machine, asked as a user without rights."""
    program = (
        "import socket, sys\n"
        "for port in map(int, sys.argv[2:]):\n"
        "    with socket.socket() as s:\n"
        "        s.settimeout(5)\n"
        "        print(port if s.connect_ex((sys.argv[1], port)) == 0 else '', end=' ')\n"
    )
    words = " ".join(map(str, ports))
    return [
        int(port) for port in scanner.shell.out(f"python3 - {address} {words}", user="nobody", stdin=program).split()
    ]


@pytest.mark.groundwork
def test_a_disk_with_a_signature(worker: Node, lab: Lab) -> None:
    """A local disk with somebody's data: refused in one sentence, nothing written, the machine lets us in."""
    disk = lab.folder / "foreign"
    before = disk.open("rb").read(FOREIGN)
    worker.boot()
    assert worker.shell.run("cloud-init status --wait", timeout_s=400).code == 0
    said = journal(worker, "huddle-nvme.service")
    assert "carries a signature (ext4) that is not ours; nothing was written" in said
    assert worker.shell.out("systemctl is-failed huddle-nvme.service").strip() == "failed"
    assert worker.shell.run("findmnt /mnt/nvme").code != 0
    worker.shell.out("sync")
    assert disk.open("rb").read(FOREIGN) == before


@pytest.mark.groundwork
def test_two_disks(worker: Node) -> None:
    """Two local disks: one RAID 0, after the operator has done what the sentence said."""
    worker.shell.out("wipefs --all --quiet /dev/nvme1n1 && systemctl restart huddle-nvme.service")
    worker.shell.out("systemctl start mnt-nvme.mount huddle-workspace.service")
    assert "raid0" in worker.shell.out("lsblk --noheadings --output TYPE /dev/nvme0n1")
    size = int(worker.shell.out("findmnt --noheadings --bytes --output SIZE /mnt/nvme"))
    assert size > 11 * 1024**3


@pytest.mark.groundwork
def test_the_worker_serves_without_its_head(worker: Node, bundle: Bundle) -> None:
    """The worker boots before its head: it serves, waits for the head, and says so."""
    done = worker.apply(bundle)
    assert done.code == 0, f"{done.out}\n{done.err}"
    assert worker.status()["warnings"] == [f"Ray does not know this node as {worker.of.address}"]
    assert f"waiting for the head {worker.plan.head.address}" in journal(worker, Unit.RAY)


@pytest.mark.groundwork
def test_the_head_comes(head: Node, worker: Node, bundle: Bundle, deployed: SshStack) -> None:
    """The head boots while `pulumi up` waits at its gate and delivers over SSH: the worker joins, both serve."""
    head.guest.start()
    deployed.up()
    head.wait()
    assert deployed.status() == f"serving ({bundle.digest[:12]})"
    assert head.status()["bundle"] == bundle.digest
    assert head.shell.out("stat -c '%U %a' /etc/huddle/credentials/*") == "root 600\n" * 3
    for secret in deployed.secrets.values():
        assert secret not in deployed.said + deployed.state()
    eventually(lambda: ray_nodes(head) == both(head), "the worker joins")
    for node in (head, worker):
        assert node.serves("hl")


def test_deployed_again(deployed: SshStack, head: Node) -> None:
    """`pulumi up` again: nothing is run on the node."""
    before = head.shell.out("stat -c %Y /var/lib/huddle/status.json")
    assert deployed.done(deployed.up()) == {}
    assert head.shell.out("stat -c %Y /var/lib/huddle/status.json") == before


def test_names(head: Node, worker: Node) -> None:
    """Host names mean private addresses, on both nodes, and never loopback."""
    for node in (head, worker):
        for other in node.plan.nodes:
            assert node.shell.out(f"getent ahostsv4 {other.name}").split()[0] == str(other.address)


def test_from_the_other_node(head: Node, worker: Node, show: Callable[[str, object], None]) -> None:
    """A scan from the other node reaches what the port table lets nodes call, and nothing else."""
    flows = [flow for flow in head.plan.flows if flow.listener is Segment.NODES]
    listening = {
        int(line.split()[3].rpartition(":")[2])
        for line in head.shell.out("ss --tcp --listening --numeric --no-header").splitlines()
    }
    allowed = {
        port
        for flow in flows
        if Segment.NODES in flow.callers or flow.name == "ssh"
        for first, last in flow.ports
        for port in range(first, last + 1)
    }
    reached = set(open_ports(worker, head.of.address, sorted(listening)))
    show("ports of the head that the other node reaches (as nobody)", " ".join(map(str, sorted(reached))))
    show("ports of the head that it does not reach", " ".join(map(str, sorted(listening - reached))))
    assert reached <= allowed, f"reached although not allowed: {sorted(reached - allowed)}"
    assert head.plan.serving.ray_gcs_port in reached, "the scan works"
    assert RENDEZVOUS_PORTS[0] in listening, "what torch opens on every address is among them"


def test_publish_while_both_serve(head: Node, worker: Node, bundle: Bundle) -> None:
    """A model is published on the head while both serve: a restart does not take it, the worker's next apply does."""
    directory = head.shell.out("ls /mnt/nvme/workspace/models").split()[0]
    files = "/mnt/nvme/workspace/scratch/files"
    head.shell.out(
        f"cp --archive --dereference /mnt/models/{directory} {files}; echo '{{}}' >{files}/generation_config.json"
    )
    done = head.shell.run(f"huddle models publish {head.of.model} --from {files}", timeout_s=400)
    assert done.code == 0, f"{done.out}\n{done.err}"
    for node in (head, worker):
        assert node.serves("hl")
    staged = f"/mnt/nvme/workspace/models/{directory}"
    versions = f"/mnt/nvme/workspace/models/.versions/{directory}"
    before = worker.shell.out(f"cat {staged}/generation_config.json")
    served = worker.status()["weights"]["version"]
    worker.shell.out("systemctl restart huddle-models.service", timeout_s=300)
    assert worker.shell.out(f"cat {staged}/generation_config.json") == before != "{}\n"
    applied = worker.apply(bundle)
    assert applied.code == 0, f"{applied.out}\n{applied.err}"
    assert worker.shell.out(f"cat {staged}/generation_config.json") == "{}\n"
    assert worker.shell.out(f"cat {versions}/previous/generation_config.json") == before
    assert worker.shell.out(f"basename $(readlink {versions}/previous)").strip() == served
    assert worker.status()["weights"]["version"] in head.shell.out("huddle models published")
    shared = worker.shell.out(f"stat -Lc '%h %U' {staged}/model.safetensors").split()
    assert shared == ["2", "huddle"], "what is alike takes no room of its own"
    assert worker.shell.out(f"stat -c %U {staged} {versions}/previous") == "huddle\nhuddle\n"
    # The staged copy brings the version's manifest along.
    sums = "find . -type f -not -name '.*' -not -name huddle-manifest.json -exec sha256sum {} + | sort"
    assert worker.shell.out(f"cd {staged} && {sums}") == head.shell.out(f"cd {files} && {sums}")
    serves_again(worker)


def test_a_second_ray(worker: Node) -> None:
    """A second Ray on a machine is refused by name, and ours starts when it is gone."""
    worker.shell.out(f"systemctl stop {Unit.RAY}")
    worker.shell.out("cp /bin/sleep /usr/local/bin/gcs_server && systemd-run --unit lab-ray --collect gcs_server 600")
    try:
        worker.shell.out(f"systemctl start --no-block {Unit.RAY}")
        refusal = "another Ray runs on this machine; stop it first"
        eventually(lambda: refusal in journal(worker, Unit.RAY), "the guard refuses")
        assert worker.shell.run("pgrep --exact raylet").code == 1
    finally:
        worker.shell.out("systemctl stop lab-ray.service")
    eventually(lambda: ray_nodes(worker) == both(worker), "our own Ray joins again")


def test_head_loss_and_return(head: Node, worker: Node) -> None:
    """The head loses power and comes back: the worker serves on meanwhile, and joins again by itself."""
    head.shell.disconnect()
    head.guest.cut_power()
    eventually(lambda: worker.shell.run("pgrep --exact raylet").code == 1, "the worker notices")
    assert worker.serves("hl")
    head.boot()
    serves_again(head)
    eventually(lambda: ray_nodes(head) == both(head), "both are there again")


def test_the_worker_reboots(worker: Node) -> None:
    """The worker reboots: its array is assembled, nothing is formatted, it serves."""
    worker.reboot()
    serves_again(worker)
    said = journal(worker, "huddle-nvme.service")
    assert "2 local disk(s) ready" in said
    assert "creating" not in said
    assert "formatting" not in said


def test_a_rebuilt_head(lab: Lab, head: Node, worker: Node, bundle: Bundle, deployed: SshStack) -> None:
    """Another machine behind the head's address: `pulumi up` notices, brings everything again, the worker rejoins."""
    head.shell.disconnect()
    head.guest.cut_power()
    lab.rebuild(head)
    head.guest.start()
    deployed.identity = "vm-2"
    assert deployed.done(deployed.up())["gate"] is Change.REPLACE
    head.wait()
    assert head.status()["bundle"] == bundle.digest
    eventually(lambda: ray_nodes(head) == both(head), "the worker joins again")


def test_the_head_is_gone(head: Node, deployed: SshStack) -> None:
    """A machine that is gone does not stop `pulumi destroy`."""
    head.shell.disconnect()
    head.guest.cut_power()
    deployed.stack.destroy()
    assert not (deployed.stack.export_stack().deployment or {}).get("resources")
