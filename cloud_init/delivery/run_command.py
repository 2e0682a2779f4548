"""Run-command scripts: one brings a bundle and has the node prepare it, one applies it, others bring its parts."""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_init.bundle import Bundle, Piece
from cloud_init.bundle.node_facts import DEADLINES_S
from cloud_init.huddle_apply.paths import NodePaths
from cloud_init.templating import render
from cloud_init.user_data import APPLY_PROGRAM
from huddle.errors import InputError
from plan.model import FleetPlan, NodePlan

SCRIPT_LIMIT_BYTES = 192 * 1024
"""Ours. What Azure allows is UNVERIFIED (docs/facts/azure.md#run-command); rehearsals can't tell."""
_COLUMNS = 1_000
"""Of base85 in a line: shorter ones cost more for their ends. (base64 would take 6 % more.)"""


class ScriptTooLargeError(InputError):
    """The bundle has outgrown what we are willing to send as a run command."""


@dataclass(frozen=True)
class SecretSource:
    """Where a node reads its secrets, and as whom; so no script holds one."""

    vault_uri: str
    identity_client_id: str


def apply_script(plan: FleetPlan, node: NodePlan, bundle: Bundle, secrets: SecretSource) -> str:
    """The script that has one node switch to a bundle that it has prepared."""
    return render("apply/run-command.sh.j2", **_values(plan, node, bundle, secrets))


def prepare_script(plan: FleetPlan, node: NodePlan, bundle: Bundle, secrets: SecretSource) -> str:
    """The script that brings the bundle to one node, and has it do all that can be done while the old one serves.

    Raises:
        ScriptTooLargeError: at more than 192 KiB.
    """
    rendered = render(
        "apply/run-command-prepare.sh.j2",
        lines=_lines(bundle.archive),
        deadline_s=DEADLINES_S["cloud_init"],
        **_values(plan, node, bundle, secrets),
    )
    if len(rendered) > SCRIPT_LIMIT_BYTES:
        raise ScriptTooLargeError(
            f"the run-command script of {node.name} has {len(rendered)} bytes, allowed: {SCRIPT_LIMIT_BYTES}. "
            f"Largest files of the bundle: {', '.join(f'{path} ({size})' for path, size in bundle.largest(5))}; "
            "shorten system prompts, or set access.delivery to ssh"
        )
    return rendered


def piece_script(piece: Piece) -> str:
    """The script that lays a piece of a part where nodes keep them. It is the same for every node."""
    return render(
        "apply/run-command-piece.sh.j2",
        piece=piece,
        path=NodePaths(Path("/")).parts / piece.relative,
        lines=_lines(piece.content),
    )


def _values(plan: FleetPlan, node: NodePlan, bundle: Bundle, secrets: SecretSource) -> dict[str, Any]:
    return {
        "stack": plan.stack,
        "node": node,
        "bundle": bundle,
        "program": APPLY_PROGRAM,
        "vault_uri": shlex.quote(secrets.vault_uri),
        "identity_client_id": shlex.quote(secrets.identity_client_id),
    }


def _lines(content: bytes) -> list[str]:
    text = base64.b85encode(content).decode()
    return [text[start : start + _COLUMNS] for start in range(0, len(text), _COLUMNS)]
