"""Rules that span fields and hold on every target: models and their nodes, ports, lists. None raises but `check`."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from huddle.errors import Fault, InputError
from plan import ports
from plan.placement import Placement
from plan.settings.service import ServiceSettings
from plan.vocabulary import Topology

Findings = Iterator[tuple[str, str]]
"""Keys at fault, and a sentence for each."""
ENGINE_PORT = "serving.ports.vllm"
S = TypeVar("S", bound=ServiceSettings)


@dataclass(frozen=True)
class Known:
    """What a rule may know beside the settings: base models by served name, the numbers of the stack's nodes, and how
    many engines one of them has at most.
    """

    bases: Mapping[str, str]
    nodes: Sequence[int]
    engines: int = 1

    @property
    def span(self) -> str:
        """The nodes' numbers, for a sentence: `1-2`."""
        return f"{self.nodes[0]}-{self.nodes[-1]}" if self.nodes else "none"

    def placement(self, settings: ServiceSettings) -> Placement:
        """Which nodes answer for what."""
        return Placement(settings.serving, self.nodes)


def check(rules: Iterable[Callable[[S, Known], Findings]], settings: S, known: Known, file: str) -> None:
    """Apply every rule.

    Raises:
        InputError: with one fault for each broken rule.
    """
    faults = [Fault(file, key, sentence) for rule in rules for key, sentence in rule(settings, known)]
    if faults:
        raise InputError(*faults)


def no_item_twice(lists: Mapping[str, Iterable[object]]) -> Findings:
    """Lists whose items each become something of their own, so that none may stand twice."""
    for key, items in lists.items():
        for item, count in Counter(items).items():
            if count > 1:
                yield key, f"'{item}' occurs {count} times; list it once"


def models_on_nodes(settings: ServiceSettings, known: Known) -> Findings:
    """Models are known, on nodes that exist, one base model on each."""
    serving, bases = settings.serving, known.bases
    unknown = [name for name in serving.models if name not in bases]
    for name in unknown:
        close = difflib.get_close_matches(name, bases, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        yield (
            f"serving.models.{name}",
            f"is not in the model registry; {hint}allowed: {', '.join(sorted(bases))}",
        )
    if unknown:
        return  # which engine a node would run is a question for known models only
    engines: dict[int, set[str]] = {number: set() for number in known.nodes}
    for name, placement in serving.models.items():
        for number in placement.nodes if placement.nodes is not None else engines:
            if number not in engines:
                yield f"serving.models.{name}.nodes", f"{number} is not a node; allowed: {known.span}"
            else:
                engines[number].add(bases[name])
    for number, names in engines.items():
        if len(names) != 1:
            what = f"{len(names)} models ({', '.join(sorted(names))})" if names else "no model"
            yield "serving.models", f"node {number} has {what}; allowed: exactly one base model on each node"
    served, count = {bases[name] for name in serving.models}, len(known.nodes)
    if serving.topology is Topology.DISTRIBUTED and (len(served) != 1 or count < 2):
        yield (
            "serving.topology",
            f"'distributed' spreads one model over at least two nodes; this stack has {len(served)} models "
            f"and {count} nodes; use `replicas`",
        )


def somebody_serves(settings: ServiceSettings, known: Known) -> Findings:
    """An update leaves nodes for every model that has several."""
    away, placement = settings.serving.max_unavailable, known.placement(settings)
    if settings.serving.topology is Topology.DISTRIBUTED:
        if away > 1:
            yield "serving.max_unavailable", f"{away} means nothing with 'distributed': its nodes switch together"
        return
    for name in settings.serving.models:
        nodes = len(placement.nodes_of(name))
        if away > 1 and away >= nodes:
            allowed = "1" if nodes <= 2 else f"1 to {nodes - 1}"
            yield (
                "serving.max_unavailable",
                f"{away} nodes away at once would leave nobody for {name}, which is on {nodes}; allowed: {allowed}",
            )
            return


def ports_apart(settings: ServiceSettings, known: Known) -> Findings:
    """Every service has a port of its own, away from those that no setting moves; a node's engines have one each."""
    own = {f"serving.ports.{key}": (port, port) for key, port in settings.serving.ports.model_dump().items()}
    if settings.jupyter.enabled:
        own["jupyter.port"] = (settings.jupyter.port, settings.jupyter.port)
    engines = own[ENGINE_PORT] = ports.engine_ports(settings.serving.ports.vllm, known.engines)
    if engines[1] > ports.LAST_PORT:
        allowed = ports.LAST_PORT - known.engines + 1
        yield ENGINE_PORT, f"{engines[0]} leaves no port for each of {known.engines} engines; allowed: up to {allowed}"
    for (key, span), (other, others) in combinations(own.items(), 2):
        if _overlap(span, others):
            yield other, f"{_written(others)} is already {key}{_of(span)}; every service needs a port of its own"
    for key, span in own.items():
        for name, first, last in ports.FIXED_PORTS:
            if _overlap(span, (first, last)):
                yield key, f"{_written(span)} is taken by {name} ({_written((first, last))}); choose another"


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _written(span: tuple[int, int]) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]}-{span[1]}"


def _of(span: tuple[int, int]) -> str:
    return "" if span[0] == span[1] else f" ({_written(span)})"


def lists(settings: ServiceSettings) -> dict[str, Sequence[object]]:
    """The lists of every stack file whose items may stand only once."""
    found: dict[str, Sequence[object]] = {
        "monitoring.alert_emails": [email.lower() for email in settings.monitoring.alert_emails],
    }
    for name, placement in settings.serving.models.items():
        found[f"serving.models.{name}.nodes"] = placement.nodes or ()
        found[f"serving.models.{name}.routes"] = placement.routes or ()
    return found
