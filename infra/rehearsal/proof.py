"""`infra prove` in a rehearsal: asks the stand-in, so that the asking itself has run before it costs anything."""

from __future__ import annotations

from infra import program
from infra.proof import answers, gather, sent
from infra.proof.answers import Answer
from infra.proof.evidence import Unread
from infra.rehearsal import existing
from infra.rehearsal.leftovers import azure_of
from infra.rehearsal.sandbox import Sandbox

_NO_GATEWAY = Unread("a rehearsal has no gateway to send a request through")
_HAD = Unread("a step of the rehearsal has refreshed and previewed")


def answers_of(sandbox: Sandbox) -> tuple[Answer, ...]:
    """What the simulated Azure says to each assumption."""
    plan = program.load_azure_plan(sandbox.stack_name, sandbox.directory)
    with azure_of(sandbox) as azure:
        seen = gather.evidence(
            azure,
            plan,
            existing.subscription(plan),
            sent_bytes=sent.largest_bytes(plan),
            trying=True,
            requests=_NO_GATEWAY,
            drift=_HAD,
        )
    return answers.all_of(plan, seen)


def told(sandbox: Sandbox) -> str:
    """How many hold."""
    return answers.count(answers_of(sandbox))
