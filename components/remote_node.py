"""Delivery to a node over SSH: one gate that waits for the host, then secrets, bundle, and the run that applies it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pulumi
from pulumi_command import remote

from cloud_init.delivery import ssh as over_ssh
from cloud_init.delivery.ssh import Scripts

_GATE_TIMEOUTS = pulumi.CustomTimeouts(create="30m", update="30m")
_APPLY_TIMEOUTS = pulumi.CustomTimeouts(create="100m", update="100m")
_DIAL_FOR_EVER = -1
_DIAL_AGAIN = 10


@dataclass(frozen=True)
class RemoteNodeArgs:
    """`identity` is another value when another machine is behind the same address; `private_key` is a secret Input.

    `archive` is the bundle as a file on this machine, `pieces` are those of its parts, by name. `secrets`: secret
    Inputs by the names of the files that they become on the node; None for one that the stack does not have. `after`:
    what must be there before the first dial. `turn_after`: nodes that must serve again before this one leaves.
    """

    host: pulumi.Input[str]
    port: int
    user: str
    private_key: pulumi.Input[str]
    identity: pulumi.Input[str]
    scripts: Scripts
    archive: Path
    pieces: Mapping[str, Path]
    bundle_digest: str
    secrets: Mapping[str, pulumi.Input[str] | None]
    after: Sequence[pulumi.Resource] = ()
    turn_after: Sequence[pulumi.Resource] = ()


class RemoteNode(pulumi.ComponentResource):
    """A host that serves the bundle.

    Only the gate dials without end, under a deadline, and takes the host as it is: it learns the host's key, and all
    that follows insists on it. A rebuilt host behind the same address is therefore noticed: by its new `identity`, or,
    where that did not change, by its key, before any secret is sent. Nothing has a delete command, so that a host that
    is gone cannot fail a destroy.
    """

    host_key: pulumi.Output[str]
    """The key that the host showed at the gate."""
    status: pulumi.Output[str]
    """How the last apply ended, with its bundle: `serving (1a2b3c…)`."""
    applied: pulumi.Resource
    """The command that makes it serve, for those that must wait until it does."""

    def __init__(self, name: str, args: RemoteNodeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:remote_node:RemoteNode", name, None, opts)
        self._name, self._args = name, args
        gate = remote.Command(
            f"{name}-gate",
            connection=self._connection(None),
            create=args.scripts.gate,
            triggers=[args.identity],
            logging=remote.Logging.NONE,
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.after), custom_timeouts=_GATE_TIMEOUTS),
        )
        self.host_key = gate.stdout
        connection = self._connection(gate.stdout)
        to_copy = {"bundle": (args.archive, args.scripts.archive_path)} | {
            piece: (file, args.scripts.piece_paths[piece]) for piece, file in args.pieces.items()
        }
        copied = [
            remote.CopyToRemote(
                f"{name}-{what}",
                connection=connection,
                source=pulumi.FileAsset(str(file)),
                remote_path=path,
                triggers=[args.identity],
                opts=pulumi.ResourceOptions(parent=self, depends_on=[gate]),
            )
            for what, (file, path) in to_copy.items()
        ]
        given = _together(args.secrets)
        secrets = remote.Command(
            f"{name}-secrets",
            connection=connection,
            create=args.scripts.secrets,
            stdin=given.apply(over_ssh.stdin_of),
            triggers=[args.identity],
            logging=remote.Logging.NONE,
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[gate], additional_secret_outputs=["stdout", "stderr"]),
        )
        prepared = remote.Command(
            f"{name}-prepare",
            connection=connection,
            create=args.scripts.prepare,
            triggers=[args.identity, args.bundle_digest],
            logging=remote.Logging.STDERR,
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*copied, secrets], custom_timeouts=_APPLY_TIMEOUTS),
        )
        self.applied = apply = remote.Command(
            f"{name}-apply",
            connection=connection,
            create=args.scripts.apply,
            # Another secret must reach the services that hold it: the digest says that there is one, not which.
            triggers=[args.identity, args.bundle_digest, given.apply(_digest)],
            logging=remote.Logging.STDERR,
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[prepared, *args.turn_after], custom_timeouts=_APPLY_TIMEOUTS
            ),
        )
        self.status = apply.stdout.apply(lambda said: f"{_state(said)} ({args.bundle_digest[:12]})")
        self.register_outputs({"host_key": self.host_key, "status": self.status})

    def _connection(self, host_key: pulumi.Input[str] | None) -> remote.ConnectionArgs:
        args = self._args
        return remote.ConnectionArgs(
            host=args.host,
            port=args.port,
            user=args.user,
            private_key=args.private_key,
            host_key=host_key,
            dial_error_limit=_DIAL_FOR_EVER if host_key is None else _DIAL_AGAIN,
        )


def _together(secrets: Mapping[str, pulumi.Input[str] | None]) -> pulumi.Output[Mapping[str, str]]:
    """All in one output, secret whatever came in. For one that the stack lacks the node makes an empty file itself."""
    return pulumi.Output.all(
        **{name: pulumi.Output.secret(value) for name, value in secrets.items() if value is not None}
    )


def _digest(secrets: Mapping[str, str]) -> str:
    return sha256(json.dumps(dict(sorted(secrets.items()))).encode()).hexdigest()


def _state(said: str) -> str:
    """The state in the last line of what huddle-apply says."""
    try:
        return str(json.loads(said.splitlines()[-1])["state"])
    except (ValueError, LookupError, TypeError):
        return "unknown"
