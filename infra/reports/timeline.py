"""How long an operation on a whole stack takes, and its critical path.

A resource starts when everything it depends on is done; nothing else limits it (Pulumi runs independent resources in
parallel). Durations are typical ones from data/durations.yaml: good for "minutes or an hour", not for deadlines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from rich.console import Group
from rich.text import Text

from infra.reports import durations as table
from infra.reports.durations import ASSUMPTION, Durations, Operation, plain_type
from infra.reports.resource_graph import Registered
from infra.reports.shapes import in_middle
from plan.azure.model import AzurePlan

GATEWAY_TYPE = "azure-native:apimanagement:ApiManagementService"
BASTION_TYPE = "azure-native:network:BastionHost"
RUN_COMMAND_TYPE = "azure-native:compute:VirtualMachineRunCommandByVirtualMachine"


@dataclass(frozen=True)
class Span:
    """One resource's turn, in seconds from the start of the operation."""

    urn: str
    name: str
    type: str
    start_s: float
    end_s: float
    source: str
    critical: bool

    @property
    def duration_s(self) -> float:
        """Seconds from its start to its end."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Timeline:
    """Every real resource's turn, by start; `critical_path` is the chain that decides the total, first to last."""

    operation: Operation
    spans: tuple[Span, ...]
    total_s: float
    unknown_types: tuple[str, ...]

    @property
    def critical_path(self) -> tuple[Span, ...]:
        """The chain whose durations add up to the total."""
        return tuple(span for span in self.spans if span.critical)


def variants_of(plan: AzurePlan) -> dict[str, str]:
    """The SKUs of a plan that decide how long a type takes."""
    return {GATEWAY_TYPE: plan.gateway.facts.tier.value, BASTION_TYPE: plan.access.bastion_sku.value}


def critical_path(
    resources: Iterable[Registered],
    operation: Operation = Operation.CREATE,
    *,
    variants: Mapping[str, str] | None = None,
    durations: Durations | None = None,
) -> Timeline:
    """Lay every resource out in time. Components take no time of their own.

    Raises:
        graphlib.CycleError: the resources depend on each other in a circle.
    """
    durations, variants = durations or table.load(), variants or {}
    nodes = {node.urn: node for node in resources}
    before = _predecessors(nodes)
    if operation is Operation.DELETE:
        before = _reversed(before)
    sources: dict[str, str] = {}
    start: dict[str, float] = {}
    end: dict[str, float] = {}
    for urn in TopologicalSorter(before).static_order():
        node = nodes[urn]
        seconds, sources[urn] = (
            durations.lookup(node.type, operation, _variant(node, variants)) if node.custom else (0.0, "")
        )
        start[urn] = max((end[other] for other in before[urn]), default=0.0)
        end[urn] = start[urn] + seconds
    chain = _chain(before, start, end)
    spans = [
        Span(urn, node.name, node.type, start[urn], end[urn], sources[urn], urn in chain)
        for urn, node in nodes.items()
        if node.custom
    ]
    unknown = {plain_type(node.type) for node in nodes.values() if node.custom} - set(durations.resources)
    return Timeline(
        operation=operation,
        spans=tuple(sorted(spans, key=lambda span: (span.start_s, span.end_s, span.urn))),
        total_s=max(end.values(), default=0.0),
        unknown_types=tuple(sorted(unknown)),
    )


def _variant(node: Registered, variants: Mapping[str, str]) -> str | None:
    """A run command makes a node serve, prepares it for that, or only brings it a part of the bundle."""
    kind = plain_type(node.type)
    if kind != RUN_COMMAND_TYPE or node.name.endswith("-apply"):
        return variants.get(kind)
    return "prepare" if node.name.endswith("-prepare") else "part"


def _predecessors(nodes: Mapping[str, Registered]) -> dict[str, set[str]]:
    """What each resource waits for: parent, dependencies, and all that a component it depends on holds."""
    children: dict[str, list[str]] = {urn: [] for urn in nodes}
    for urn, node in nodes.items():
        if node.parent in children:
            children[node.parent].append(urn)
    before: dict[str, set[str]] = {}
    for urn, node in nodes.items():
        ancestors = _ancestors(urn, nodes)
        waits = {node.parent} & set(nodes)
        for dependency in node.depends_on:
            if dependency in nodes:
                inside = set() if dependency in ancestors else _inside(dependency, children) - ancestors
                waits |= {dependency} | (inside - _inside(urn, children))
        before[urn] = waits - {urn}
    return before


def _ancestors(urn: str, nodes: Mapping[str, Registered]) -> set[str]:
    found: set[str] = set()
    parent = nodes[urn].parent
    while parent in nodes and parent not in found:
        found.add(parent)
        parent = nodes[parent].parent
    return found


def _inside(urn: str, children: Mapping[str, list[str]]) -> set[str]:
    found: set[str] = {urn}
    waiting = [urn]
    while waiting:
        for child in children[waiting.pop()]:
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def _reversed(before: Mapping[str, set[str]]) -> dict[str, set[str]]:
    after: dict[str, set[str]] = {urn: set() for urn in before}
    for urn, others in before.items():
        for other in others:
            after[other].add(urn)
    return after


def _chain(before: Mapping[str, set[str]], start: Mapping[str, float], end: Mapping[str, float]) -> set[str]:
    """Back from what ends last, always to what was waited for longest; by name where two are equal."""
    if not end:
        return set()
    current: str | None = max(end, key=lambda urn: (end[urn], urn))
    chain: set[str] = set()
    while current is not None:
        chain.add(current)
        waited = [other for other in before[current] if end[other] == start[current]]
        current = max(waited, default=None)
    return chain


def to_json(timeline: Timeline) -> dict[str, Any]:
    """For `--json`: seconds from the start of the operation."""
    return {
        "operation": timeline.operation.value,
        "total_s": timeline.total_s,
        "critical_path": [span.name for span in timeline.critical_path],
        "resources": [
            {
                "name": span.name,
                "type": span.type,
                "start_s": span.start_s,
                "end_s": span.end_s,
                "critical": span.critical,
                "source": span.source,
            }
            for span in timeline.spans
        ],
        "types_without_a_duration": list(timeline.unknown_types),
    }


_MINOR = 0.01
"""Off the critical path, what takes less than this part of the total is counted but not drawn."""
_LEAST_BAR = 10


def render(timeline: Timeline, *, width: int = 80) -> Group:
    """A Gantt chart in `width` columns: the critical path in heavy lines, short work beside it only counted."""
    drawn = [s for s in timeline.spans if s.critical or s.duration_s >= _MINOR * timeline.total_s]
    names = min(max((len(span.name) for span in drawn), default=0), max(12, width // 3))
    room = max(_LEAST_BAR, width - names - len("  00:00  00:00  "))
    heading = Text(f"Timeline of {timeline.operation}: about {spoken(timeline.total_s)}", style="bold")
    rows = [_row(span, timeline.total_s, names, room) for span in drawn]
    return Group(heading, *rows, *(Text(line, style="dim") for line in _footer(timeline, len(drawn))))


def _row(span: Span, total_s: float, names: int, room: int) -> Text:
    scale = room / total_s if total_s else 0.0
    left = min(round(span.start_s * scale), room - 1)
    length = max(1, min(round(span.end_s * scale), room) - left)
    name = in_middle(span.name, names)
    style = "bold" if span.critical else "dim"
    return Text.assemble(
        (f"{name:<{names}}  {clock(span.start_s)}  {clock(span.duration_s)}  ", style),
        " " * left,
        ("━" * length if span.critical else "─" * length, "bold" if span.critical else ""),
        no_wrap=True,
        overflow="crop",
    )


def _footer(timeline: Timeline, drawn: int) -> list[str]:
    assumed = sum(span.source == ASSUMPTION for span in timeline.spans)
    lines = ["Heavy lines are the critical path. Columns: start, duration (min:s)."]
    if hidden := len(timeline.spans) - drawn:
        lines.append(f"{hidden} shorter ones beside the critical path are not drawn.")
    lines.append(f"Durations are typical values; {assumed} of {len(timeline.spans)} are assumptions.")
    if timeline.unknown_types:
        lines.append(f"No duration is known for: {', '.join(timeline.unknown_types)}.")
    return lines


def clock(seconds: float) -> str:
    """Minutes and seconds: `09:17`, `120:00`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def spoken(seconds: float) -> str:
    """`45 s`, `15 min`, `2 h 5 min`."""
    if round(seconds) < 60:
        return f"{round(seconds)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
