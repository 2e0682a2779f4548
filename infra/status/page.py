"""A status for scripts, in a shape that stays (docs/reference/status.md), and as a short table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from huddle import versions
from infra.operations.arm_alerts import Firing
from infra.status.judge import Node, Roll, Status, Turn

FORMAT = 1
"""Goes up when a key of the JSON goes or changes its meaning. New keys may come without."""
_SHORT = 12


def to_json(status: Status) -> dict[str, Any]:
    """For `--json`: every key is always there; what was not told is null."""
    return {
        "format": FORMAT,
        "stack": status.stack,
        "simulated": status.seen.stand_in,
        "asked_at": status.seen.asked_at.isoformat(timespec="seconds"),
        "serves": status.serves,
        "reasons": [reason for node in status.nodes for reason in node.reasons],
        "bundle": {"wanted": status.wanted, "everywhere": all(node.bundle == status.wanted for node in status.nodes)},
        "nodes": [_node(node) for node in status.nodes],
        "pools": [
            {"id": pool, "nodes": [node.seen.name for node in status.nodes if pool in node.pools]}
            for pool in sorted(status.seen.pools)
        ],
        "versions": _versions(status),
        "roll": None if status.roll is None else _roll(status.roll),
        "alarms": None if status.seen.firing is None else [_alarm(one) for one in status.firing],
        "alarms_off": None if status.seen.off is None else list(status.seen.off),
        "not_told": list(status.seen.not_told),
    }


def _node(node: Node) -> dict[str, Any]:
    seen = node.seen
    return {
        "name": seen.name,
        "serves": node.serves,
        "provisioning": seen.provisioning or None,
        "power": seen.power,
        "readiness": node.readiness.value,
        "bundle": node.bundle,
        "pools": list(node.pools),
        "in_service": node.in_service,
        "drained": node.drained,
        "image": seen.image or None,
        "agent": seen.agent or None,
        "apply": None if seen.apply is None else _apply(Turn(seen.name, seen.apply)),
        "reasons": list(node.reasons),
    }


def _apply(turn: Turn) -> dict[str, Any]:
    apply = turn.apply
    return {
        "state": apply.state,
        "exit_code": apply.exit_code,
        "attempt": apply.attempt,
        "bundle": apply.bundle or None,
        "began": apply.began or None,
        "ended": apply.ended or None,
        "said": apply.said or None,
    }


def _roll(roll: Roll) -> dict[str, Any]:
    return {
        "bundle": roll.bundle or None,
        "began": roll.began,
        "ended": roll.ended or None,
        "result": roll.result.value,
        "order": [
            {"node": turn.node, **{key: _apply(turn)[key] for key in ("began", "ended", "state")}}
            for turn in roll.turns
        ],
    }


def _alarm(firing: Firing) -> dict[str, Any]:
    return {
        "rule": firing.rule,
        "severity": firing.severity,
        "since": firing.since,
        "target": firing.target,
        "description": firing.description,
    }


def _versions(status: Status) -> Mapping[str, str] | None:
    """What this checkout pins, where every node serves its bundle; of another bundle Azure tells no versions."""
    if not all(node.bundle == status.wanted for node in status.nodes):
        return None
    return versions.load().engine.model_dump()


def lines(status: Status) -> Iterator[str]:
    """For a terminal."""
    simulated = " (simulated)" if status.seen.stand_in else ""
    count = sum(node.serves for node in status.nodes)
    yield f"{status.stack}{simulated}: {count} of {len(status.nodes)} nodes serve"
    yield from _table(status)
    for node in status.nodes:
        yield from (f"! {reason}" for reason in node.reasons)
    if any(node.bundle and node.bundle != status.wanted for node in status.nodes):
        yield f"this checkout would apply bundle {status.wanted[:_SHORT]}"
    if status.roll is not None:
        turns = ", ".join(f"{turn.node} {turn.apply.began[11:19]}" for turn in status.roll.turns)
        yield f"last roll: {status.roll.result.value}, {status.roll.began[:10]}: {turns}"
    yield from _alarms(status)
    yield from (f"not told: {each}" for each in status.seen.not_told)


def _alarms(status: Status) -> Iterator[str]:
    if status.seen.firing is not None and not status.firing:
        yield "alarms: none"
    count = Counter((one.rule, one.target) for one in status.firing)
    for one in status.firing:  # the first of its like is the oldest
        often = count.pop((one.rule, one.target), 0)
        times = f" {often} times" if often > 1 else ""
        if often:
            since = f"(severity {one.severity}){times} since {one.since}"
            yield f"alarm: {one.rule} {since}, on {one.target}. {one.description}"
    for name in status.seen.off or ():
        again = f"make up STACK={status.stack} PULUMI_FLAGS=--refresh"
        yield f"alarm off: {name} watches nothing (a query that fails for a week is off); `{again}` turns it on"


def _table(status: Status) -> Iterator[str]:
    rows = [("NODE", "VM", "BUNDLE", "READINESS", "POOLS")]
    for node in status.nodes:
        pools = ", ".join(node.pools) or ("none" if node.in_service is False else "-")
        drained = f"{pools} (drained)" if node.drained else pools
        rows.append((node.seen.name, node.seen.power, (node.bundle or "-")[:_SHORT], node.readiness.value, drained))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
