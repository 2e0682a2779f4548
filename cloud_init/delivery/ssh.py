"""Delivery over SSH: the scripts that pulumi-command runs on a node. No secret is in them; those come on stdin."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cloud_init.bundle import Bundle
from cloud_init.bundle.node_facts import DEADLINES_S
from cloud_init.huddle_apply.paths import NodePaths
from cloud_init.templating import render
from cloud_init.user_data import APPLY_PROGRAM
from plan.model import NodePlan
from plan.secrets import NODE_SECRETS

CREDENTIALS = "/etc/huddle/credentials"
COPIES = "/var/tmp"  # noqa: S108 - copied as the login user, kept through a reboot; its digest is checked before use


@dataclass(frozen=True)
class Scripts:
    """One-line shell commands for one node, and the paths to which archive and pieces are copied before `prepare`."""

    gate: str
    secrets: str
    prepare: str
    apply: str
    archive_path: str
    piece_paths: Mapping[str, str]


def scripts(node: NodePlan, bundle: Bundle) -> Scripts:
    """The scripts of a node. `gate` prints the host's key, `apply` the node's status as its last line."""
    copied = f"{COPIES}/huddle-{bundle.digest}.tar.bz2"
    pieces = {piece.name: f"{COPIES}/huddle-{piece.name}-{piece.digest}" for piece in bundle.pieces}
    values = {
        "node": node,
        "bundle": bundle,
        "program": APPLY_PROGRAM,
        "folder": CREDENTIALS,
        "keep_previous": [secret.key for secret in NODE_SECRETS if secret.keeps_previous],
        "copied": copied,
        "pieces": {pieces[piece.name]: NodePaths(Path("/")).parts / piece.relative for piece in bundle.pieces},
    }

    def as_root(name: str) -> str:
        script = render(f"ssh/{name}.sh.j2", deadline_s=DEADLINES_S["cloud_init"], **values)
        return render("ssh/as-root.sh.j2", name=name, script=shlex.quote(script)).strip()

    return Scripts(as_root("gate"), as_root("secrets"), as_root("prepare"), as_root("apply"), copied, pieces)


def stdin_of(secrets: Mapping[str, str]) -> str:
    """The secrets as `secrets.sh` reads them: base64, so that any text is one word."""
    return "".join(f"{name} {base64.b64encode(value.encode()).decode()}\n" for name, value in sorted(secrets.items()))
