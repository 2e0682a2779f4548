"""How the bundle reaches the nodes of an Azure stack: with each VM by Azure's run command, or over SSH beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi

from cloud_init.bundle import Bundle
from cloud_init.delivery import run_command
from cloud_init.delivery import ssh as over_ssh
from components.gpu_node import GpuNode, Scripts
from components.remote_node import RemoteNode, RemoteNodeArgs
from components.secrets import Secrets
from infra.engine.cache import cache_root
from plan.azure.model import AzurePlan
from plan.model import NodePlan
from plan.ports import SSH_PORT
from plan.secrets import NODE_SECRETS, Secret
from plan.vocabulary import Delivery


@dataclass(frozen=True)
class Delivered:
    """A node with how its bundle was taken, as the stack's outputs show it.

    `applied`: what makes it serve. `served_before`: whether it may be serving while that is done.
    """

    address: pulumi.Output[str]
    vm_id: pulumi.Output[str]
    status: pulumi.Output[str]
    applied: pulumi.Resource | None
    served_before: bool


def node_secrets(config: pulumi.Config) -> dict[Secret, pulumi.Output[str] | None]:
    """The secrets that nodes get, from the stack's config; None for an optional one that it lacks."""
    return {
        secret: config.require_secret(secret.key) if secret.required else config.get_secret(secret.key)
        for secret in NODE_SECRETS
    }


def run_command_scripts(plan: AzurePlan, node: NodePlan, built: Bundle, secrets: Secrets) -> Scripts | None:
    """The scripts that Azure runs, once the vault and the node's identity are known; None where SSH delivers."""
    if plan.access.delivery is Delivery.SSH:
        return None
    source = pulumi.Output.all(secrets.vault_uri, secrets.node_identity_client_id).apply(
        lambda it: run_command.SecretSource(*it)
    )
    return Scripts(
        prepare=source.apply(lambda known: run_command.prepare_script(plan, node, built, known)),
        apply=source.apply(lambda known: run_command.apply_script(plan, node, built, known)),
    )


def part_scripts(plan: AzurePlan, built: Bundle) -> Mapping[str, str]:
    """The scripts that bring the bundle's parts to any node, by the pieces' names; none where SSH delivers."""
    if plan.access.delivery is Delivery.SSH:
        return {}
    return {piece.name: run_command.piece_script(piece) for piece in built.pieces}


def deliver(  # noqa: PLR0917
    plan: AzurePlan,
    node: NodePlan,
    vm: GpuNode,
    built: Bundle,
    after: Sequence[pulumi.Resource],
    turn_after: Sequence[pulumi.Resource],
) -> Delivered:
    """Bring the bundle over SSH where the stack says so; a run command is part of its VM already.

    Over SSH nobody can be asked whether a node serves, so a new stack's nodes start one after the other, too.
    """
    if plan.access.delivery is Delivery.RUN_COMMAND:
        return Delivered(vm.address, vm.vm_id, vm.status, vm.applied, vm.served_before)
    config = pulumi.Config(plan.project)
    over = RemoteNode(
        f"{node.name}-ssh",
        RemoteNodeArgs(
            host=vm.address,
            port=SSH_PORT,
            user=plan.compute.admin_username,
            private_key=config.require_secret(Secret.SSH_PRIVATE_KEY.key),
            identity=vm.machine_id,
            scripts=over_ssh.scripts(node, built),
            archive=archive_file(built),
            pieces=piece_files(built),
            bundle_digest=built.digest,
            secrets={secret.key: value for secret, value in node_secrets(config).items()},
            after=[vm.vm, *after],
            turn_after=turn_after,
        ),
    )
    return Delivered(vm.address, vm.vm_id, over.status, over.applied, served_before=True)


def archive_file(built: Bundle, folder: Path | None = None) -> Path:
    """The bundle's archive as a file."""
    return _kept_file(f"{built.name}.tar.bz2", built.archive, folder)


def piece_files(built: Bundle, folder: Path | None = None) -> Mapping[str, Path]:
    """The pieces of the bundle's parts as files, by name."""
    return {piece.name: _kept_file(f"{piece.name}-{piece.digest}", piece.content, folder) for piece in built.pieces}


def _kept_file(name: str, content: bytes, folder: Path | None) -> Path:
    """A file that outlives this program: the engine's plugins read it after the program has ended."""
    folder = folder or cache_root() / "bundles"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if not path.is_file() or path.read_bytes() != content:
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as fresh:
            fresh.write(content)
        Path(fresh.name).replace(path)
    return path
