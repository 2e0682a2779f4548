"""A throw-away copy of the project in which the real engine works on the simulated Azure.

The copy holds Pulumi.yaml, the stack file, a file backend and the simulator's state. The tree itself is never written.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pulumi import automation
from pulumi.automation import events
from pulumi.runtime import _grpc_settings

from huddle import loopback
from infra import engine, program
from infra.engine.finder import STAND_IN_PLUGINS
from infra.rehearsal import existing
from plan import stack_file
from plan.azure.model import AzurePlan
from plan.secrets import Secret
from plan.targets import required_secrets
from plan.vocabulary import Delivery
from simulator.azure.settings import FAULTS_VARIABLE, STATE_VARIABLE
from simulator.command_provider import hosts

OnEvent = Callable[[events.EngineEvent], Any]
OWN_CONNECTIONS = ("grpc.use_local_subchannel_pool", 1)
PLUGINS = stack_file.ROOT / "simulator" / "azure" / "bin"


@dataclass(frozen=True)
class Sandbox:
    """One stack in one throw-away project. `secrets` are the generated values, so that leaks can be looked for."""

    directory: Path
    stack_name: str
    stack: automation.Stack
    secrets: Mapping[str, str]
    engine: engine.PulumiEngine

    @property
    def stack_file(self) -> Path:
        """The copy of the stack's file, free to be edited."""
        return self.directory / "stacks" / f"Pulumi.{self.stack_name}.yaml"

    @property
    def azure_state(self) -> Path:
        """The file in which the simulated Azure keeps its resources (JSON)."""
        return self.directory / "azure.json"

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change settings in the copy: `change` gets the values without their namespace and edits them in place."""
        document = yaml.safe_load(self.stack_file.read_text(encoding="utf-8"))
        config = document["config"]
        prefix = f"{stack_file.PROJECT}:"
        own = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
        change(own)
        others = {key: value for key, value in config.items() if not key.startswith(prefix)}
        document["config"] = {**others, **{f"{prefix}{key}": value for key, value in own.items()}}
        self.stack_file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")

    def set_faults(self, plan: AzurePlan, faults: str | None = None) -> None:
        """Give the simulated subscription the quota that the plan counts on, and switch faults on or off.

        `faults` is the text of a (checked) fault file of the simulator; a quota in it wins over the plan's.
        """
        document: dict[str, Any] = {}
        if faults is not None:
            document = yaml.safe_load(faults) or {}
        quota = {plan.compute.quota_name: plan.compute.quota_vcpus}
        workspace = self.stack.workspace
        workspace.env_vars = {
            **workspace.env_vars,
            FAULTS_VARIABLE: yaml.safe_dump({"quota": quota, **document}),
        }

    def resources(self) -> list[dict[str, Any]]:
        """The checkpoint's resources as they stand, stack resource included."""
        return (self.stack.export_stack().deployment or {}).get("resources") or []


def open_sandbox(
    stack_name: str,
    directory: Path,
    *,
    root: Path = stack_file.ROOT,
    run: Callable[[], None] = program.main,
    chosen_engine: engine.PulumiEngine | None = None,
) -> Sandbox:
    """Make the copy in an empty `directory` and select the stack there, with generated secrets.

    Raises:
        InputError: the stack file is wrong.
        infra.engine.EngineUnavailableError: there is no Pulumi engine.
    """
    plan = program.load_azure_plan(stack_name, root, rehearsed=True)
    found = chosen_engine or engine.locate()
    directory.mkdir(parents=True, exist_ok=True)
    for folder in ("stacks", "infra"):  # `main: infra` must exist; the program itself runs in this process
        (directory / folder).mkdir()
    shutil.copyfile(stack_file.ROOT / "Pulumi.yaml", directory / "Pulumi.yaml")
    copy = directory / "stacks" / f"Pulumi.{stack_name}.yaml"
    _copy_without_secrets(stack_file.path_of(stack_name, root), copy)
    environment = _environment(found, directory, plan)
    # The Automation API starts `pulumi` by name from this process's own PATH.
    os.environ["PATH"] = environment["PATH"]
    os.environ["PULUMI_ERROR_OUTPUT_STRING"] = "1"
    loopback.apply()  # the program runs here, too, and talks to the engine over gRPC
    connect_afresh()
    stack = automation.create_or_select_stack(
        stack_name=stack_name,
        project_name=stack_file.PROJECT,
        program=run,
        opts=automation.LocalWorkspaceOptions(work_dir=str(directory), env_vars=environment),
    )
    brought = [Secret.SSH_PRIVATE_KEY.key] if plan.access.delivery is Delivery.SSH else []
    keys = (*required_secrets(plan.target), *brought)
    generated = {key: f"{key}-{secrets.token_urlsafe(24)}" for key in keys}
    stack.set_all_config(
        {f"{stack_file.PROJECT}:{key}": automation.ConfigValue(value, secret=True) for key, value in generated.items()}
    )
    sandbox = Sandbox(directory, stack_name, stack, generated, found)
    sandbox.set_faults(plan)
    existing.put(plan, sandbox.azure_state)
    return sandbox


def connect_afresh() -> None:
    """Give each engine that this process talks to connections of its own.

    Engines follow each other here, each at a port of the kernel's choice. gRPC shares what it knows of an address over
    the whole process: a port that comes again is still that of the engine that is gone, and refused at once ("Resource
    monitor has terminated"). Pulumi's SDK has no setting for it.
    """
    options = _grpc_settings._GRPC_CHANNEL_OPTIONS
    if OWN_CONNECTIONS not in options:
        options.append(OWN_CONNECTIONS)


def _environment(found: engine.PulumiEngine, directory: Path, plan: AzurePlan) -> dict[str, str]:
    base = found.offline_environment(directory / "pulumi")
    return {
        **base,
        # The stand-in for commands over SSH comes before a real plugin: only it knows hosts that are not there.
        "PATH": os.pathsep.join([str(PLUGINS), str(STAND_IN_PLUGINS), base["PATH"]]),
        hosts.VARIABLE: "1",
        STATE_VARIABLE: str(directory / "azure.json"),
        "ARM_SUBSCRIPTION_ID": existing.subscription(plan),
    }


def _copy_without_secrets(source: Path, target: Path) -> None:
    """Copy a stack file less its encrypted values and their key: a rehearsal brings its own."""
    document = yaml.safe_load(source.read_text(encoding="utf-8"))
    document = {"config": document["config"]}
    for key in stack_file.secret_keys():
        document["config"].pop(f"{stack_file.PROJECT}:{key}", None)
    target.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
