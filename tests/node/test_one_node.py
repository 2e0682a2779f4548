"""The head of a stack, booted from what `cloud_init` renders, in normal operation and under faults."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable

import pytest

from cloud_init.bundle import Bundle
from cloud_init.bundle.services import Unit
from tests.node import probes
from tests.node.listeners import wrong_listeners
from tests.node.probes import (
    QUICK_S,
    VLLM,
    changed,
    eventually,
    exposures,
    fails,
    invocations,
    journal,
    main_pid,
    prompt_hash,
    serves_again,
)
from tools.node_lab import bundles
from tools.node_lab.lab import Lab, Node

SCORE_LIMIT = 4.0
Show = Callable[[str, object], None]
HOLD_APT = "systemd-run --collect --unit lab-lock python3 /usr/local/lib/huddle-lab/hold-apt.py"


@pytest.fixture(autouse=True)
def on(request: pytest.FixtureRequest, node: Node) -> None:
    """After the first test the machine is on; when that has failed, the others do not wait for deadlines."""
    if request.node.name != "test_first_boot":
        assert node.guest.running, "the machine did not boot"


@pytest.mark.groundwork
def test_first_boot(node: Node) -> None:
    """First boot: day 0 ends well, disks are ready."""
    node.boot()
    assert node.shell.run("cloud-init status --wait", timeout_s=400).out.strip().endswith("status: done")
    ready = "systemctl is-active huddle-workspace.service && systemctl is-active mnt-models.mount"
    eventually(lambda: node.shell.run(ready).code == 0, "the disks, which day 0 does not wait for")
    assert node.shell.out("systemctl --failed --no-legend --plain").strip() == ""
    assert "bzip2 installed" in node.shell.out("dpkg-query -W -f '${Package} ${db:Status-Status}' bzip2")
    mounted = node.shell.out("findmnt -rno TARGET,FSTYPE /mnt/nvme; findmnt -rno TARGET,FSTYPE /mnt/models")
    mounts = dict(line.split() for line in mounted.splitlines())
    assert mounts == {"/mnt/nvme": "xfs", "/mnt/models": "ext4"}
    assert node.shell.run("touch /mnt/models/x").code == 1, "the model disk is read-only"
    owners = node.shell.out("stat -c '%U %n' /mnt/nvme/workspace/*").split("\n")[:-1]
    assert owners == [
        f"huddle /mnt/nvme/workspace/{name}" for name in ("inference_cache", "models", "scratch", "vllm_cache")
    ]


@pytest.mark.groundwork
def test_first_bundle_serves(node: Node, first: Bundle) -> None:
    """First bundle: the run command ends when the node answers."""
    done = node.apply(first)
    assert done.code == 0, f"{done.out}\n{done.err}"
    status = node.status()
    assert (status["state"], status["bundle"]) == ("serving", first.digest)
    done_phases = [phase["name"] for phase in status["phases"] if phase["result"] == "done"]
    preparing = ["bundle", "day-0", "clock", "driver", "packages", "credentials", "disks"]
    assert done_phases[: len(preparing)] == preparing
    assert set(done_phases[len(preparing) : -3]) == {"libraries", "store", "staging"}
    assert done_phases[-3:] == ["switch", "services", "readiness"]
    for model in node.plan.serving.models:
        assert node.serves(model.name)


def test_a_large_body_is_read_beside_the_wrapper(node: Node, first: Bundle) -> None:
    """In a process that its unit lets it have. The body is wrong, so that the engine is not asked."""
    said = probes.chat(node, "hl", "", temperature="hot", messages=[{"role": "user", "content": "x" * 300_000}])
    assert json.loads(said)["error"]["param"] == "temperature"
    assert "huddle.wrapper.helper_process" in node.shell.out("ps -e -o args")


def test_the_same_bundle_again_changes_nothing(node: Node, first: Bundle) -> None:
    """The same bundle again: no service is restarted."""
    before = invocations(node)
    done = node.apply(first)
    assert done.code == 0, f"{done.out}\n{done.err}"
    assert node.status()["restarted"] == []
    assert invocations(node) == before


def test_nobody_is_refused_while_the_wrapper_restarts(node: Node, first: Bundle) -> None:
    """systemd keeps its socket: whoever connects meanwhile waits. The gateway would take a closed port for an error.

    The machine of this lab has systemd 252, which keeps it over a restart; over `stop` and `start` needs 254.
    """
    assert node.shell.out(f"systemctl show --property=NFileDescriptorStore --value {Unit.WRAPPER}").strip() == "1"
    answers = probes.answers_during(node, f"systemctl restart {Unit.WRAPPER}")
    assert answers and set(answers) == {"0 200"}, answers
    probes.serves_again(node)


@pytest.mark.lab
def test_a_new_prompt_restarts_nothing(node: Node, lab: Lab, first: Bundle) -> None:
    """Bundle N+1 with another prompt: reloaded, not restarted; and back."""
    prompted = bundles.plan(lab.public_key, serving={"models": {"hl": {"system_prompt": "Rhyme."}, "llama-3.2-3b": {}}})
    before, old_hash = invocations(node), prompt_hash(node, "hl")
    done = node.apply(lab.bundle(prompted, deadlines_s=QUICK_S))
    assert done.code == 0, f"{done.out}\n{done.err}"
    status = node.status()
    assert (status["restarted"], status["reloaded"]) == ([], [Unit.WRAPPER])
    assert invocations(node) == before
    assert prompt_hash(node, "hl") != old_hash
    assert node.apply(first).code == 0
    assert prompt_hash(node, "hl") == old_hash


@pytest.mark.lab
def test_a_bundle_that_never_gets_ready(node: Node, lab: Lab, first: Bundle, serving: None) -> None:
    """Bundle N+1 never ready: N serves again, the reason is named."""
    wanted = first.digest
    done = node.apply(lab.bundle(engine="never-ready", deadlines_s={**QUICK_S, "readiness": 40}))
    assert done.code == 1
    status = node.status()
    assert (status["state"], status["bundle"]) == ("rolled-back", wanted)
    assert re.search(r"not ready after 40 s: the wrapper answers 50[234] for .*serves again$", status["reason"])


@pytest.mark.lab
def test_a_bundle_whose_engine_dies(node: Node, lab: Lab, first: Bundle, serving: None) -> None:
    """Bundle N+1 whose engine ends with exit code 0: N serves again, without waiting for the deadline."""
    wanted = first.digest
    done = node.apply(lab.bundle(engine="dies", deadlines_s={**QUICK_S, "readiness": 900}))
    assert done.code == 1
    status = node.status()
    assert (status["state"], status["bundle"]) == ("rolled-back", wanted)
    assert "huddle-vllm@0.service has ended by itself 3 times" in status["reason"]
    assert "lab engine: dying" in done.err, "the log's end is the error"
    assert set(status["restarted"]) <= set(probes.SERVICES)


@pytest.mark.lab
def test_a_truncated_bundle(node: Node, lab: Lab, serving: None) -> None:
    """A truncated archive is refused, nothing changes."""
    bundle = lab.bundle(engine="slow-start=1")
    cut = dataclasses.replace(bundle, archive=bundle.archive[: len(bundle.archive) // 2])
    done = node.apply(cut)
    assert done.code == 1
    assert "truncated or altered; nothing was changed" in done.err


@pytest.mark.lab
def test_kill_9(node: Node, serving: None) -> None:
    """kill -9 of each process: its unit brings it back, the node serves again."""
    for name, unit in (("gcs_server", Unit.RAY), ("raylet", Unit.RAY), ("vllm", VLLM)):
        before = invocations(node)[unit]
        killed = f"pkill --signal KILL --exact {name}"
        eventually(lambda killed=killed: node.shell.run(killed).code == 0, f"{name} is there to be killed")
        eventually(lambda unit=unit, before=before: invocations(node)[unit] != before, f"{unit} is started again")
        serves_again(node)
    for unit in (VLLM, Unit.WRAPPER):
        before = main_pid(node, unit)
        node.shell.out(f"kill -KILL {before}")
        eventually(lambda unit=unit, before=before: main_pid(node, unit) not in (0, before), f"{unit} is started again")
        serves_again(node)


@pytest.mark.lab
def test_a_full_memory(node: Node, serving: None) -> None:
    """MemoryMax of the wrapper strikes: it ends and comes back, the engine goes on."""
    engine, before = main_pid(node, VLLM), main_pid(node, Unit.WRAPPER)
    # Until its next start, which sets the unit's own bound again.
    node.shell.out(f"echo 4M >/sys/fs/cgroup/system.slice/{Unit.WRAPPER}/memory.max")
    eventually(lambda: main_pid(node, Unit.WRAPPER) not in (0, before), "the wrapper is started again")
    serves_again(node)
    assert "oom-kill" in journal(node, Unit.WRAPPER)
    assert main_pid(node, VLLM) == engine


@pytest.mark.lab
def test_a_stopped_wrapper(node: Node, serving: None) -> None:
    """SIGSTOP of the wrapper: systemd's watchdog ends it, the node serves again."""
    before = main_pid(node, Unit.WRAPPER)
    node.shell.out(f"kill -STOP {before}")
    eventually(lambda: main_pid(node, Unit.WRAPPER) not in (0, before), "the watchdog ends the wrapper")
    serves_again(node)
    assert "watchdog" in journal(node, Unit.WRAPPER).lower()


@pytest.mark.lab
def test_a_frozen_engine(node: Node, serving: None) -> None:
    """SIGSTOP of the engine: the probe ends it, the node serves again."""
    before = main_pid(node, VLLM)
    node.shell.out("pkill --signal STOP --exact vllm")
    eventually(lambda: main_pid(node, VLLM) not in (0, before), "the probe ends the frozen engine")
    serves_again(node)


@pytest.mark.lab
def test_a_missing_gpu(node: Node, first: Bundle, serving: None) -> None:
    """A missing GPU: refused by its count, what serves goes on."""
    with changed(node, "/etc/lab/gpus", "0"):
        fails(node.apply(first), node, "driver", r"^this machine has 0 GPUs, its size has 1; deallocate and start it")


@pytest.mark.lab
def test_a_driver_mismatch(node: Node, first: Bundle, serving: None) -> None:
    """Driver and library of two versions: refused with the driver's words."""
    with changed(node, "/etc/lab/gpus", "Failed to initialize NVML: Driver/library version mismatch"):
        fails(node.apply(first), node, "driver", r"the GPU driver does not answer .*Driver/library version mismatch")


@pytest.mark.lab
def test_no_key_vault(node: Node, lab: Lab, first: Bundle, serving: None) -> None:
    """Key vault and identity away: the secrets of the last time are used; without them it is refused."""
    node.shell.out("systemctl stop lab-azure.service")
    try:
        assert node.apply(first).code == 0
        assert any("the secrets of the last time are used" in warning for warning in node.status()["warnings"])
        with changed(node, "/etc/huddle/credentials/backend_key", None):
            fails(node.apply(first), node, "credentials", r"identity endpoint cannot be reached .*tried for 10 s")
    finally:
        node.shell.out("systemctl start lab-azure.service")


@pytest.mark.lab
def test_a_wrong_clock(node: Node, first: Bundle, serving: None) -> None:
    """A clock that is years behind: a warning, and the certificate is named as the reason."""
    now = "date +%s"
    before, started = int(node.shell.out(now)), time.monotonic()
    node.shell.out("date --set 2010-01-01")
    try:
        with changed(node, "/etc/huddle/credentials/ray_token", None):
            status = fails(node.apply(first), node, "credentials", r"certificate is not yet valid")
    finally:
        node.shell.out(f"date --set @{before + int(time.monotonic() - started)}")
        node.shell.out("systemctl restart lab-azure.service")
    assert any("the clock is not synchronised" in warning for warning in status["warnings"])


@pytest.mark.lab
def test_apt_is_busy(node: Node, lab: Lab, first: Bundle, serving: None) -> None:
    """apt's lock is held: waited for; held for ever: refused with apt's words."""
    missing = {"packages": ["lab-late"]}
    held = lab.bundle(facts=missing, deadlines_s={**QUICK_S, "packages": 12})
    try:
        node.shell.out(f"{HOLD_APT} 600")
        done = node.apply(held)
        fails(done, node, "packages", r"`apt-get .*` (failed with exit code 100: .*lock|did not end within 12 s)")
        node.shell.out("systemctl stop lab-lock.service")
        node.shell.out(f"{HOLD_APT} 15")
        done = node.apply(lab.bundle(facts=missing, deadlines_s={**QUICK_S, "packages": 200}))
        assert done.code == 0, f"{done.out}\n{done.err}"
    finally:
        node.shell.run("systemctl stop lab-lock.service")
    assert node.shell.run("dpkg --status lab-late").code == 0
    assert node.apply(first).code == 0


@pytest.mark.lab
def test_jupyterlab(node: Node, lab: Lab, first: Bundle, serving: None) -> None:
    """JupyterLab on: its libraries are installed (refused without a network), loopback and token only; off: gone."""
    plan = bundles.plan(lab.public_key, jupyter={"enabled": True})
    bundle = lab.bundle(plan, deadlines_s=QUICK_S)
    with changed(node, "/etc/huddle/install.env", "PIP_RETRIES=1\n"):  # no wheels at hand: the internet is away
        fails(node.apply(bundle), node, "libraries", r"-m pip. failed with exit code 1: .*No matching distribution")
    done = node.apply(bundle)
    assert done.code == 0, f"{done.out}\n{done.err}"
    assert node.status()["restarted"] == [Unit.JUPYTER]
    ask = f"curl -sS -m 20 -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{plan.jupyter.port}/api/status"
    token = '"Authorization: token $(cat /etc/huddle/credentials/jupyter_token)"'
    eventually(lambda: node.shell.run(f"{ask} -H {token}").out == "200", "JupyterLab answers")
    assert node.shell.out(ask, user="nobody") == "403"
    sockets = node.shell.out("ss --tcp --listening --numeric --no-header").splitlines()
    listening = [line.split()[3] for line in sockets]
    assert f"127.0.0.1:{plan.jupyter.port}" in listening
    assert wrong_listeners(plan, node.of, listening) == []
    assert exposures(node, [Unit.JUPYTER])[Unit.JUPYTER] <= SCORE_LIMIT
    assert node.apply(first).code == 0
    assert node.shell.run(f"systemctl cat {Unit.JUPYTER}").code != 0
    assert node.shell.run(ask).out == "000"


@pytest.mark.lab
def test_a_full_root_disk(node: Node, lab: Lab, serving: None) -> None:
    """The root disk is full: refused, what serves goes on."""
    bundle = lab.bundle(engine="slow-start=2", deadlines_s=QUICK_S)
    node.shell.run("dd if=/dev/zero of=/var/full bs=1M; dd if=/dev/zero of=/var/full2 bs=1k; sync")
    try:
        done = node.apply(bundle)
        assert done.code != 0
        assert "No space left on device" in done.err
        assert node.serves("hl")
    finally:
        node.shell.out("rm -f /var/full /var/full2")


@pytest.mark.lab
def test_a_bundle_for_others(node: Node, lab: Lab, serving: None) -> None:
    """A bundle that is not for this host is refused by name."""
    done = node.apply(lab.bundle(bundles.plan(lab.public_key, name_prefix="others")))
    fails(done, node, "bundle", rf"is not for {node.of.name}; it is for others-")


def test_security_scores(node: Node, show: Show) -> None:
    """systemd-analyze security: at most 4.0 for each of our services, as the machine sees them."""
    files = node.shell.out("cd /etc/systemd/system && ls huddle*.service").split()
    names = [name.replace("@.", "@0.") for name in files]
    scores = exposures(node, names)
    assert set(scores) == set(names) >= {Unit.RAY, VLLM, Unit.WRAPPER, "huddle-apply.service"}
    show("systemd-analyze security: exposure of our units (0 is best, 10 worst)", scores)
    assert {unit: score for unit, score in scores.items() if score > SCORE_LIMIT} == {}


def test_every_listener_is_in_the_port_table(node: Node, show: Show) -> None:
    """Every listening socket is in the port table, on the address that the table allows."""
    lines = node.shell.out("ss --tcp --udp --listening --numeric --processes --no-header").splitlines()
    found = {(line.split()[4], line.partition("users:")[2]) for line in lines}
    assert wrong_listeners(node.plan, node.of, [address for address, _ in found]) == [], found
    assert len(found) > 10, "the scan sees the services"
    show("listening sockets of the head", dict(sorted(found)))


def test_another_user(node: Node) -> None:
    """Another Unix user reads no secret and no process, and gets no answer without a key."""
    reachable = node.shell.out("ls /opt/huddle/current /var/lib/huddle", user="nobody")
    assert "status.json" in reachable
    for path in ("/etc/huddle/credentials/backend_key", "/var/lib/huddle/state.json"):
        assert node.shell.run(f"cat {path}", user="nobody").code != 0, path
    for path in ("/etc/huddle/credentials", "/var/lib/huddle/incoming"):
        assert node.shell.run(f"ls {path}", user="nobody").code != 0, path
    url = f"http://{node.of.address}:{node.plan.serving.wrapper_port}/v1/models"
    assert node.shell.out(f"curl -s -o /dev/null -w '%{{http_code}}' {url}", user="nobody") == "401"


def test_secrets_are_nowhere_else(node: Node) -> None:
    """Secrets are in no log, process, bundle or status file."""
    wanted = "lab-canar[y]"  # so that this command does not find itself
    places = "/opt/huddle/bundles /var/lib/huddle /etc/systemd /var/lib/cloud /var/log /mnt/nvme /run/cloud-init"
    found = node.shell.run(
        f"grep --recursive --files-with-matches '{wanted}' {places} 2>/dev/null; "
        f"journalctl --no-pager --output cat | grep '{wanted}'; ps -eo args | grep '{wanted}'; "
        f"cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep '{wanted}'; true"
    )
    assert (found.code, found.out) == (0, "")
    control = node.shell.out(f"grep --recursive --files-with-matches '{wanted}' /etc/huddle/credentials")
    assert len(control.splitlines()) == 2, "the search finds what is there"


def test_status_for_people_and_scripts(node: Node, first: Bundle, show: Show) -> None:
    """`huddle status --json` of the booted guest names bundle, phases and verdict; exit code 0 when it serves."""
    assert node.apply(first).code == 0
    ask, user = "huddle status --json", node.plan.compute.admin_username
    # The probe calls an engine healthy only after a token that it has seen itself, which may be after the apply's end.
    eventually(lambda: node.shell.run(ask, user=user).code == 0, "the probe has seen a token")
    status = json.loads(node.shell.out(ask, user=user))
    assert status["serves"]
    assert first.digest in json.dumps(status)
    assert "readiness" in json.dumps(status)
    show("huddle status --json", json.dumps(status))


@pytest.mark.lab
def test_reboot(node: Node, serving: None) -> None:
    """Reboot: the node serves again by itself."""
    node.reboot()
    serves_again(node)
    eventually(lambda: node.status()["state"] == "serving", "the boot's own apply reports")


@pytest.mark.lab
def test_power_cut_while_applying(node: Node, lab: Lab, first: Bundle, serving: None) -> None:
    """Power cut in the middle of an apply: after the boot the node serves what its link names."""
    node.shell.out("rm --recursive --force /mnt/nvme/workspace/scratch/x; sync")
    node.shell.run("nohup bash -c 'sleep 2; echo b >/proc/sysrq-trigger' >/dev/null 2>&1 &")
    node.apply(lab.bundle(engine="slow-start=3", deadlines_s=QUICK_S), timeout_s=60)
    node.shell.disconnect()
    node.wait()
    serves_again(node)
    assert node.apply(first).code == 0


@pytest.mark.lab
def test_deallocation(node: Node, lab: Lab, serving: None) -> None:
    """Eight blank NVMe disks after deallocation become one and are refilled; the node serves by itself."""
    node.power_off()
    node.replug([lab.disk(f"local{number}-after") for number in range(8)])
    node.boot()
    serves_again(node)
    said = journal(node, "huddle-nvme.service")
    assert "creating a RAID 0 of 8 disks" in said
    assert re.search(r"formatting /dev/md\S+ as XFS", said)
    assert "8 local disk(s) ready" in said
    assert node.shell.out("ls /mnt/nvme/workspace/models").strip() != ""


@pytest.mark.lab
def test_no_local_disk(node: Node, lab: Lab, first: Bundle) -> None:
    """No local NVMe disk: the machine lets its operator in, applying names the reason."""
    node.power_off()
    node.replug([])
    node.boot()
    eventually(lambda: node.status()["state"] == "failed", "the boot's own apply gives up")
    assert "this machine has no local NVMe disk" in journal(node, "huddle-nvme.service")
