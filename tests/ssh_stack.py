"""A program that delivers a bundle to one node over SSH, under the real engine, as the product's own program does.

Runs on the real pulumi-command plugin where it is at hand, on the stand-in elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pytest
from pulumi import automation

from cloud_init.bundle import Bundle
from cloud_init.delivery import ssh as over_ssh
from components.remote_node import RemoteNode, RemoteNodeArgs
from infra import engine
from infra.rehearsal.record import Change, Record
from infra.targets.azure.delivery import archive_file, piece_files
from plan.model import NodePlan


@dataclass
class SshStack:
    """The program's inputs, and the engine that runs it. The host is behind a port of this machine's loopback.

    `folder` must be there; `identity` names the machine behind the address; `secrets` by the names of their files.
    """

    node: NodePlan
    folder: Path
    port: int
    user: str
    key: str
    bundle: Bundle
    secrets: Mapping[str, str]
    identity: str = "vm-1"

    def __post_init__(self) -> None:
        environment = engine.locate().offline_environment(self.folder / "state")
        os.environ["PATH"] = environment["PATH"]
        self.stack = automation.create_or_select_stack(
            stack_name="dev",
            project_name="delivery",
            program=self.program,
            opts=automation.LocalWorkspaceOptions(work_dir=str(self.folder), env_vars=environment),
        )

    def program(self) -> None:
        """What the engine runs."""
        node = RemoteNode(
            "node-1",
            RemoteNodeArgs(
                host="127.0.0.1",
                port=self.port,
                user=self.user,
                private_key=pulumi.Output.secret(self.key),
                identity=self.identity,
                scripts=over_ssh.scripts(self.node, self.bundle),
                archive=archive_file(self.bundle, self.folder / "bundles"),
                pieces=piece_files(self.bundle, self.folder / "bundles"),
                bundle_digest=self.bundle.digest,
                secrets={
                    "model_hub_token": None,
                    **{name: pulumi.Output.secret(value) for name, value in self.secrets.items()},
                },
            ),
        )
        pulumi.export("status", node.status)

    def up(self) -> Record:
        """Deploy; what was said is kept in `said`."""
        record = Record()
        self.said = self.stack.up(on_event=record.add).stdout
        return record

    def fails(self) -> str:
        """Deploy in vain; what was said of it."""
        record = Record()
        with pytest.raises(automation.CommandError) as caught:
            self.stack.up(on_event=record.add)
        return "\n".join([*record.diagnostics, str(caught.value)])

    def done(self, record: Record) -> dict[str, Change]:
        """What was touched, by the end of its name."""
        return {name.removeprefix("node-1-"): change for name, change in record.touched().items()}

    def status(self) -> str:
        """The stack's output."""
        return str(self.stack.outputs()["status"].value)

    def state(self) -> str:
        """The stack's state as it lies on the disk. The engine's own export would show secrets."""
        files = [path for path in (self.folder / "state").rglob("*.json*") if "stacks" in path.parts]
        return "".join(path.read_text(encoding="utf-8") for path in files)
