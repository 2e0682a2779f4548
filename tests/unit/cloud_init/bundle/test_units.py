"""Every unit file: systemd reads it without complaint, its sandbox holds, its ports are those of the port table."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from cloud_init import bundle, templating
from cloud_init import user_data as render
from cloud_init.bundle.services import Unit
from huddle.probe import ladder
from huddle.wrapper import open_files
from huddle.wrapper.config import TimeoutsConfig, WrapperConfig
from plan.vocabulary import Topology
from tests.unit import stack_values
from tests.unit.cloud_init import rendered
from tests.unit.cloud_init.rendered import KINDS, built, plans

UNITS = "etc/systemd/system"
SCORE_LIMIT = 4.0
SYSTEM_UNITS = Path("/usr/lib/systemd/system")
PROGRAMS = (
    *(
        "usr/sbin/nft",
        "usr/bin/rm",
        "usr/bin/install",
        "usr/bin/env",
        "usr/bin/python3",
        "usr/bin/kill",
        "usr/bin/nvidia-modprobe",
    ),
    *("opt/huddle/current/bin/huddle", "opt/huddle/current/bin/huddle-ray", "opt/huddle/current/bin/huddle-ray-guard"),
    "opt/huddle/current/jupyter/bin/jupyter-lab",
)
"""What units start besides our own files: stand-ins, so that systemd can check that a command exists."""


@cache
def unit_files(kind: str) -> dict[str, str]:
    """All unit files of a node: of day 0 and of the bundle."""
    plan = plans()[kind]
    day_zero = yaml.safe_load(render.user_data(plan, plan.nodes[0], plan.compute.login))["write_files"]
    found = {file["path"]: file["content"] for file in day_zero}
    found |= {
        path.removeprefix("rootfs"): content.decode()
        for path, content in built(kind).files.items()
        if path.startswith("rootfs/")
    }
    return {Path(path).name: text for path, text in found.items() if UNITS in path}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A root file system for each kind of node, as far as systemd-analyze looks."""
    made = {}
    for kind in KINDS:
        root = made[kind] = tmp_path_factory.mktemp(kind)
        shutil.copytree(SYSTEM_UNITS, root / "usr/lib/systemd/system", symlinks=True)
        for name in ("lib", "bin"):
            (root / name).symlink_to(f"usr/{name}")
        ours = ("opt/huddle/bin/huddle-nvme", "opt/huddle/bin/huddle-apply")
        for program in (*PROGRAMS, *ours):
            path = root / program
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/bin/sh\n", encoding="utf-8")
            path.chmod(0o755)
        rendered.write({f"{UNITS}/{name}": text.encode() for name, text in unit_files(kind).items()}, root)
    return made


NEWER = "'FileDescriptorStorePreserve'"
"""A setting since systemd 254; a node that boots in the lab has it (tests/node)."""


@pytest.mark.parametrize("kind", KINDS)
def test_systemd_verifies_every_unit(kind: str, roots: dict[str, Path]) -> None:
    paths = [str(roots[kind] / UNITS / name) for name in unit_files(kind)]
    done = subprocess.run(
        ["systemd-analyze", "verify", f"--root={roots[kind]}", "--man=no", *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if not (NEWER in line and "Unknown key" in line and _older())]
    assert (done.returncode, said) == (0, [])


def _older() -> bool:
    """Whether the systemd of this machine is older than the nodes' (255)."""
    said = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.split()[1]) < 254


@pytest.mark.parametrize("kind", ["distributed"])
def test_the_sandbox_of_every_service_holds(kind: str, roots: dict[str, Path]) -> None:
    services = [name for name in unit_files(kind) if name.endswith(".service")]
    assert {Unit.RAY, Unit.MODELS, Unit.VLLM, Unit.WRAPPER, "huddle-apply.service", "huddle-nvme.service"} <= {
        *services
    }
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--root={roots[kind]}", "--no-pager", *services],
        capture_output=True,
        text=True,
        check=True,
    )
    scores = dict(re.findall(r"exposure level for (\S+): (\d+\.\d)", done.stdout))
    scores = {name.replace("@i.", "@."): score for name, score in scores.items()}  # it looks at some instance
    assert set(scores) == set(services)
    assert {name: score for name, score in scores.items() if float(score) > SCORE_LIMIT} == {}


@pytest.mark.parametrize("unit", Unit)
def test_no_service_can_write_to_the_system_or_gain_rights(unit: Unit) -> None:
    """The score alone would forgive one of these."""
    right = "CAP_NET_ADMIN" if unit is Unit.FIREWALL else ""  # a packet filter is network administration
    for key, value in (("ProtectSystem", "strict"), ("NoNewPrivileges", "yes"), ("CapabilityBoundingSet", right)):
        assert setting(unit, key) == value
    writable = re.findall(r"^ReadWritePaths=(.*)$", unit_files("distributed")[unit], re.MULTILINE)
    assert writable in ([], ["/mnt/nvme/workspace"])


def setting(unit: str, key: str, kind: str = "distributed") -> str:
    """The last value of a key in a unit."""
    values = re.findall(rf"^{key}=(.*)$", unit_files(kind)[unit], re.MULTILINE)
    assert values, f"{unit} has no {key}="
    return values[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_every_service_is_bounded(kind: str) -> None:
    """Without MemoryMax= the host's out-of-memory killer chooses who ends for an engine that takes too much."""
    for name in unit_files(kind):
        if not name.endswith(".service"):
            continue
        assert re.fullmatch(r"[1-9]\d*[%MG]", setting(name, "MemoryMax", kind)), name
        for key in ("TasksMax", "LimitNOFILE"):
            assert setting(name, key, kind).isdigit(), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_shares_of_memory_leave_a_tenth_for_the_rest(kind: str) -> None:
    memory = [setting(name, "MemoryMax", kind) for name in unit_files(kind) if name in (*Unit,)]
    assert sum(int(share.removesuffix("%")) for share in memory if share.endswith("%")) <= 90
    plan = plans()[kind]
    loaded = Unit.RAY if plan.serving.topology is Topology.DISTRIBUTED else Unit.VLLM
    copies = plan.serving.copies(plan.nodes[0].model)
    assert copies * int(setting(loaded, "MemoryMax", kind).removesuffix("%")) >= 70, "that is who holds the model"


def test_engines_share_what_one_would_have() -> None:
    assert (setting(Unit.VLLM, "MemoryMax", "dev"), setting(Unit.VLLM, "MemoryMax", "two-gpus")) == ("75%", "37%")


def test_a_unit_whose_memory_is_full_ends_as_a_whole_and_comes_back() -> None:
    """systemd's default would first drain the rest of an engine for minutes."""
    for unit in (Unit.VLLM, Unit.RAY, Unit.WRAPPER, Unit.PROBE):
        assert (setting(unit, "OOMPolicy"), setting(unit, "Restart")) == ("kill", "always")
    assert setting(Unit.JUPYTER, "OOMPolicy") == "continue", "a notebook's kernel ends alone"


def test_the_wrapper_s_bounds_are_those_of_its_configuration() -> None:
    host = plans()["dev"].nodes[0].name
    config = WrapperConfig.model_validate(yaml.safe_load(built("dev").files[f"nodes/{host}/wrapper.yaml"]))
    assert setting(Unit.WRAPPER, "MemoryMax", "dev") == f"{config.memory_bytes // 1024**2}M"
    assert int(setting(Unit.WRAPPER, "LimitNOFILE", "dev")) >= open_files.wanted(config)


def test_the_engine_comes_back_after_any_end_even_with_exit_code_0() -> None:
    for unit in (Unit.VLLM, Unit.RAY, Unit.WRAPPER, Unit.PROBE):
        assert setting(unit, "Restart") == "always"


@pytest.mark.parametrize("unit", [Unit.VLLM, Unit.MODELS, Unit.RAY, Unit.WRAPPER, Unit.PROBE])
def test_no_service_gives_up_for_good(unit: Unit) -> None:
    """Starts that RestartSec= allows in the interval stay below the limit, however fast the service ends."""
    assert setting(unit, "StartLimitIntervalSec") == "10min"
    assert int(setting(unit, "StartLimitBurst")) > 600 / int(setting(unit, "RestartSec"))


def test_what_failed_at_boot_is_tried_again() -> None:
    assert setting("huddle-apply.service", "Restart") == "on-failure"
    assert setting("huddle-apply.service", "RestartSec") == "2min"


@pytest.mark.parametrize("unit", [Unit.VLLM, Unit.RAY])
def test_the_driver_s_devices_are_there_before_the_device_policy_is_made(unit: Unit) -> None:
    for key in ("Wants", "After"):
        assert "modprobe@nvidia_uvm.service" in setting(unit, key).split()


def test_preparing_the_disks_is_tried_again_and_a_refusal_is_not() -> None:
    unit = "huddle-nvme.service"
    assert setting(unit, "Restart") == "on-failure"
    refused = setting(unit, "RestartPreventExitStatus")
    assert f"readonly refused={refused} " in templating.text("disks/huddle-nvme")
    # Even tries that take their whole time are counted within the interval, so that they end.
    slowest_s = int(setting(unit, "TimeoutStartSec")) + int(setting(unit, "RestartSec"))
    assert setting(unit, "StartLimitIntervalSec") == "1h"
    assert int(setting(unit, "StartLimitBurst")) * slowest_s < 3600
    # The mount failed with the first try: whoever succeeds later brings it.
    assert setting(unit, "Wants") == "mnt-nvme.mount"


def test_a_stop_allows_more_time_than_the_drain() -> None:
    words = built("dev").files["nodes/huddleai-h100-node-1/engine.env"].decode()
    drain = int(re.findall(r"--shutdown-timeout (\d+)", words)[0])
    assert int(setting(Unit.VLLM, "TimeoutStopSec")) > drain
    assert setting(Unit.VLLM, "KillMode") == "mixed"
    timeouts = TimeoutsConfig()
    assert int(setting(Unit.WRAPPER, "TimeoutStopSec")) > timeouts.drain_s + timeouts.drain_notice_s


def test_no_service_takes_shared_memory_from_another() -> None:
    """RemoveIPC= removes what the *user* has in /dev/shm: a stopped wrapper would take the engine's queues with it."""
    for name, text in unit_files("distributed").items():
        assert "RemoveIPC" not in text, name
    assert setting(Unit.WRAPPER, "DynamicUser") == "yes"
    for unit in (Unit.RAY, Unit.VLLM, Unit.MODELS):
        assert setting(unit, "User") == "huddle"


def test_the_probe_finds_its_engines_processes() -> None:
    """systemd would give instances of a template a slice of their own."""
    assert setting(Unit.VLLM, "Slice") == ladder.CGROUPS.name


def test_at_a_shutdown_the_wrapper_drains_before_its_engines_go() -> None:
    """systemd stops in the reverse of the order of starts."""
    assert Unit.WRAPPER in setting(Unit.VLLM, "Before").split()
    assert Unit.VLLM.replace("@", "@%i") in setting(Unit.PROBE, "After").split()


def test_the_probe_is_the_engines_own_user_and_reaches_this_machine_only() -> None:
    assert setting(Unit.PROBE, "User") == setting(Unit.VLLM, "User")
    assert setting(Unit.PROBE, "IPAddressAllow") == "localhost"
    assert setting(Unit.PROBE, "ExecStart").endswith("huddle probe --port 5005 --copy %i")


def test_applying_at_boot_does_not_wait_for_itself() -> None:
    """It waits for cloud-init, whose last unit comes after multi-user.target (on Debian and Ubuntu)."""
    after = setting("huddle-apply.service", "After").split()
    assert {"multi-user.target", "cloud-final.service"} <= set(after)


def test_a_start_takes_no_new_version_of_the_model() -> None:
    assert "/opt/huddle/current/apply --stage --keep\n" in unit_files("dev")[Unit.MODELS]


def test_staging_may_look_at_the_shared_disk() -> None:
    """PrivateDevices= sets a device policy for the whole unit, commands with full rights (`+`) included."""
    text = unit_files("dev")[Unit.MODELS]
    assert re.findall(r"^ExecStartPre=\+.*--open-store$", text, re.MULTILINE)
    assert re.findall(r"^DeviceAllow=(.*)$", text, re.MULTILINE) == ["block-sd r", "block-blkext r"]


def test_what_needs_the_nvme_waits_for_its_mount() -> None:
    for unit in (Unit.RAY, Unit.MODELS, Unit.VLLM):
        assert setting(unit, "RequiresMountsFor") == "/mnt/nvme"


def test_the_wrapper_keeps_the_seeds_names() -> None:
    assert Unit.WRAPPER == "huddleai_api.service"
    assert setting(Unit.WRAPPER, "SyslogIdentifier") == "huddleai-api"
    assert setting(Unit.WRAPPER, "Type") == "notify"


def test_secrets_come_as_credentials_never_as_variables() -> None:
    loaded = {
        unit: set(re.findall(r"^LoadCredential=(\S+)$", unit_files("distributed")[unit], re.MULTILINE)) for unit in Unit
    }
    assert loaded == {
        Unit.RAY: {"ray_token:/etc/huddle/credentials/ray_token"},
        Unit.MODELS: {"model_hub_token:/etc/huddle/credentials/model_hub_token"},
        Unit.VLLM: {"ray_token:/etc/huddle/credentials/ray_token"},
        Unit.WRAPPER: {"huddle-backend-keys:/etc/huddle/credentials/backend_key"},
        Unit.FIREWALL: set(),
        Unit.PROBE: set(),
        Unit.JUPYTER: {"jupyter_token:/etc/huddle/credentials/jupyter_token"},
    }


def test_jupyterlab_is_for_this_machine_only() -> None:
    command = setting(Unit.JUPYTER, "ExecStart")
    assert "--ServerApp.ip=127.0.0.1" in command
    assert "--ServerApp.port=8889" in command
    assert "JUPYTER_TOKEN_FILE=${CREDENTIALS_DIRECTORY}/jupyter_token" in command
    assert "allow_origin" not in command
    assert "--allow-root" not in command
    assert setting(Unit.JUPYTER, "DynamicUser") == "yes"
    assert setting(Unit.JUPYTER, "IPAddressAllow") == "localhost"


@pytest.mark.parametrize("kind", KINDS)
def test_no_unit_holds_the_model_store_with_a_mount_of_its_own(kind: str) -> None:
    """The host's umount must reach every service, or the store can neither be published to nor opened again."""
    store = Path(plans()[kind].paths.models)
    for name, text in unit_files(kind).items():
        for key, value in re.findall(r"^(\w*Paths|TemporaryFileSystem|RootDirectory)=(.*)$", text, re.MULTILINE):
            for word in re.split(r"[\s:]+", value):
                path = Path(word.lstrip("-+"))
                assert path != store, f"{name}: {key}={value}"
                assert path not in store.parents, f"{name}: {key}={value}"
                assert store not in path.parents, f"{name}: {key}={value}"
        # systemd's default lets the host's mounts and unmounts into a unit's namespace.
        assert not re.search(r"^MountFlags=", text, re.MULTILINE), name


@pytest.mark.parametrize("kind", KINDS)
def test_services_talk_only_to_those_that_the_address_plan_knows(kind: str) -> None:
    plan = plans()[kind]
    nodes, gateway = plan.addresses.subnets["nodes"], plan.addresses.subnets["gateway"]
    for unit in (Unit.RAY, Unit.VLLM):
        assert setting(unit, "IPAddressDeny", kind) == "any"
    spans = plan.serving.topology is Topology.DISTRIBUTED
    assert setting(Unit.VLLM, "IPAddressAllow", kind) == (f"localhost {nodes}" if spans else "localhost")
    assert setting(Unit.RAY, "IPAddressAllow", kind) == f"localhost {nodes}"
    assert setting(Unit.WRAPPER, "IPAddressAllow", kind) == f"localhost {nodes} {gateway}"


def listened_ports(kind: str) -> dict[str, set[int]]:
    """Every port that our units listen on, read from what they are given, by unit."""
    files = built(kind).files
    host = plans()[kind].nodes[0].name
    ray = dict(line.split("=", 1) for line in files[f"nodes/{host}/ray.env"].decode().splitlines())
    wrapper = yaml.safe_load(files[f"nodes/{host}/wrapper.yaml"])
    words = files[f"nodes/{host}/engine.env"].decode()
    found = {
        Unit.RAY: {int(value) for key, value in ray.items() if key.startswith("RAY_") and "_PORT" in key},
        Unit.VLLM: {
            int(re.findall(r"--port (\d+)", words)[0]) + copy
            for copy in range(plans()[kind].serving.copies(plans()[kind].nodes[0].model))
        },
        Unit.WRAPPER: {int(wrapper[key].rpartition(":")[2]) for key in ("listen", "metrics_listen")},
    }
    if plans()[kind].jupyter.enabled:
        found[Unit.JUPYTER] = {
            int(port) for port in re.findall(r"ServerApp\.port=(\d+)", setting(Unit.JUPYTER, "ExecStart", kind))
        }
    return {unit.value: ports for unit, ports in found.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_ports_of_the_units_are_those_of_the_port_table(kind: str) -> None:
    plan = plans()[kind]
    table: dict[str, set[int]] = {}
    for flow in plan.flows:
        # Torch and NCCL choose theirs within what the table says; nobody configures them.
        if flow.process in set(Unit) and flow.name not in ("torch-rendezvous", "collectives", "engine-processes"):
            table.setdefault(flow.process, set()).update(port for span in flow.ports for port in span)
    assert (plan.serving.topology is Topology.DISTRIBUTED) == any(flow.name == "collectives" for flow in plan.flows)
    assert listened_ports(kind) == table


def test_other_ports_in_the_stack_file_reach_every_unit() -> None:
    chosen = {"wrapper": 8101, "vllm": 5105, "ray_gcs": 6301, "ray_client": 10_101, "ray_dashboard": 8301}
    text = "\n".join(
        content.decode(errors="replace")
        for path, content in bundle.build(stack_values.plan(serving={"ports": chosen})).files.items()
        if path.startswith(("nodes/", "rootfs/"))
    )
    for port in chosen.values():
        assert re.search(rf"\b{port}\b", text)
    for port in (8000, 5005, 6379, 10_001, 8265):
        assert not re.search(rf"\b{port}\b", text)


def test_every_unit_has_a_template_and_every_template_a_unit() -> None:
    folder = templating.TEMPLATES / "units"
    templates = {path.name.removesuffix(".j2") for path in folder.glob("*.service.j2")}
    assert templates == {unit.value for unit in Unit}
