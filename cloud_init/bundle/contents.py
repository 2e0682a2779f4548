"""What a bundle holds, by path.

apply/                      the program that applies it (`python3 apply DIGEST`)
bin/                        commands of the node
rootfs/                     files that go to the same path below /
wheels/  requirements/      our package; hash-locked libraries
registry/                   the served models' registry entries and chat templates
prompts/                    system prompts of models and products
nodes/<host name>/          what is a node's own: node.json, model.json, wrapper.yaml, environment files
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cloud_init import disks
from cloud_init.bundle import bounds, environment, firewall, node_facts, prompts, registry_subset, serving_code, wheel
from cloud_init.bundle.services import NodeService, Unit, fingerprint, services
from cloud_init.bundle.wrapper_config import RELOADABLE, wrapper_config
from cloud_init.templating import render, text
from plan.model import FleetPlan, NodePlan
from plan.ports import COLLECTIVE_PORTS
from plan.vocabulary import Segment, Topology

ENGINE_STOP_S = environment.ENGINE_DRAIN_S + 60
"""Above the engine's own shutdown timeout, within which it finishes its running requests."""
WRAPPER_STOP_S = 660
"""Above the wrapper's drain_s (600) and its notice."""
_PROGRAM = Path(__file__).parent.parent / "huddle_apply"
_COMMANDS = ("huddle", "huddle-hold", "huddle-ray", "huddle-ray-guard", "huddle-ray-nodes")


def collect(plan: FleetPlan) -> dict[str, bytes]:
    """Every file of a stack's bundle."""
    files = dict(_common(plan))
    for node in plan.nodes:
        files |= _node(plan, node, files)
    return files


def executables(files: Mapping[str, bytes]) -> frozenset[str]:
    """The paths that are programs."""
    folders = ("bin/", "rootfs/opt/huddle/bin/", "rootfs/usr/local/bin/")
    return frozenset(path for path in files if path.startswith(folders))


def _common(plan: FleetPlan) -> Iterator[tuple[str, bytes]]:
    yield "apply/__main__.py", text("apply/__main__.py.j2").encode()
    for source in sorted(_PROGRAM.rglob("*.py")):
        yield f"apply/huddle_apply/{source.relative_to(_PROGRAM).as_posix()}", source.read_bytes()
    for command in _COMMANDS:
        yield f"bin/{command}", text(f"bin/{command}").encode()
    for path, content in _rootfs(plan):
        yield f"rootfs{path}", content.encode()
    built = wheel.build()
    yield f"wheels/{built.name}", built.content
    yield from _requirements(plan)
    yield from registry_subset.files(plan)
    for prompt in prompts.all_prompts(plan):
        yield prompt.path, prompt.content


def _rootfs(plan: FleetPlan) -> Iterator[tuple[str, str]]:
    yield "/usr/local/bin/huddle", text("bin/huddle-on-path")
    yield "/etc/hosts", render("etc/hosts.j2", nodes=plan.nodes)
    for file in (*disks.files(plan), firewall.file(plan)):
        yield file.path, file.text
    if plan.serving.topology is Topology.DISTRIBUTED:
        yield "/etc/sysctl.d/60-huddle.conf", render("etc/sysctl.conf.j2", ports=COLLECTIVE_PORTS)
    for unit in Unit:
        if unit is not Unit.JUPYTER or plan.jupyter.enabled:
            yield f"{disks.UNITS}/{unit}", unit_text(plan, unit)


def unit_text(plan: FleetPlan, unit: Unit) -> str:
    """The systemd unit file of one service, rendered for this plan."""
    return render(
        f"units/{unit}.j2",
        plan=plan,
        bounds=bounds.of(plan, unit),
        model_mount=disks.model_mount(plan),
        callers=_callers(plan, unit),
        nodes_subnet=plan.callers[Segment.NODES],
        gateway_subnet=plan.callers[Segment.GATEWAY],
        engine_stop_s=ENGINE_STOP_S,
        wrapper_stop_s=WRAPPER_STOP_S,
        staging_deadline_s=node_facts.DEADLINES_S["store"] + node_facts.DEADLINES_S["staging"],
    )


def _callers(plan: FleetPlan, unit: Unit) -> list[str]:
    """The networks from which the port table lets this unit be called."""
    segments = {segment for flow in plan.flows if flow.process == unit for segment in flow.callers}
    return sorted(str(plan.callers[segment]) for segment in segments - {Segment.LOOPBACK})


def _requirements(plan: FleetPlan) -> Iterator[tuple[str, bytes]]:
    """On a node the engine's lock has one name, whatever the engine computes on."""
    locks = {"installer": "installer", "engine": "engine-cpu" if plan.head.hardware.on_cpu else "engine"}
    if plan.jupyter.enabled:
        locks["jupyter"] = "jupyter"
    for name, lock in locks.items():
        yield f"requirements/{name}.lock", (serving_code.SERVING / f"{lock}.lock").read_bytes()


def _node(plan: FleetPlan, node: NodePlan, common: Mapping[str, bytes]) -> dict[str, bytes]:
    own = f"nodes/{node.name}"
    config = wrapper_config(plan, node)
    files = {
        f"{own}/ray.env": environment.file(environment.ray(plan, node)),
        f"{own}/engine.env": environment.file(environment.engine(plan, node)),
        f"{own}/model.json": _json(node_facts.model(plan, node)),
        f"{own}/wrapper.yaml": yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode(),
        # Read by nobody on the node: what of the configuration needs a restart.
        f"{own}/wrapper.fixed.json": _json({key: value for key, value in config.items() if key not in RELOADABLE}),
    }
    known = {**common, **files, **_sources()}
    rows = [_row(service, known) for service in services(plan, node, _code())]
    return {**files, f"{own}/node.json": _json(node_facts.node(plan, node, rows))}


def _row(service: NodeService, files: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "unit": service.unit,
        "restart": fingerprint(files, service.restart_on),
        "reload": fingerprint(files, service.reload_on),
        "credentials": list(service.credentials),
        "follows": list(service.follows),
        "reads_model": service.reads_model,
    }


@cache
def _code() -> dict[Unit, tuple[str, ...]]:
    programs = {
        Unit.VLLM: "huddle.launch.cli",
        Unit.WRAPPER: "huddle.wrapper.cli",
        Unit.PROBE: "huddle.probe.cli",
    }
    return {unit: tuple(f"source/{path}" for path in serving_code.closure(name)) for unit, name in programs.items()}


@cache
def _sources() -> dict[str, bytes]:
    """The files that lie in the wheel, under names for fingerprints only."""
    paths = {path for of_program in _code().values() for path in of_program}
    return {path: (serving_code.SERVING / "src" / path.removeprefix("source/")).read_bytes() for path in paths}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
