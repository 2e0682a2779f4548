"""From policy documents, outermost first, to what runs: each `<base />` is the same section of the scope around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gateway_policies.source import Node, PolicyFault, parse
from simulator.apim_policies import edits, fields, flow, limits
from simulator.apim_policies.exchange import Exchange, Step

SECTIONS = ("inbound", "backend", "outbound", "on-error")
_NAMED_VALUE = re.compile(r"\{\{([A-Za-z0-9._-]+)\}\}")
_IN: Mapping[str, tuple[Callable[[Node, str], Step], frozenset[str]]] = {
    "set-header": (edits.set_header, frozenset(SECTIONS)),
    "set-query-parameter": (edits.set_query_parameter, frozenset({"inbound"})),
    "set-backend-service": (edits.set_backend_service, frozenset({"inbound", "backend"})),
    "rewrite-uri": (edits.rewrite_uri, frozenset({"inbound"})),
    "cors": (edits.cors, frozenset({"inbound"})),
    "rate-limit-by-key": (limits.rate_limit_by_key, frozenset({"inbound"})),
    "llm-token-limit": (limits.llm_token_limit, frozenset({"inbound"})),
    "llm-emit-token-metric": (limits.llm_emit_token_metric, frozenset({"inbound"})),
}
_AROUND: Mapping[str, tuple[Callable[[Node, flow.Block], Step], frozenset[str]]] = {
    "choose": (flow.choose, frozenset(SECTIONS)),
    "retry": (flow.retry, frozenset({"backend"})),
    "forward-request": (flow.forward_request, frozenset({"backend"})),
    "return-response": (flow.return_response, frozenset(SECTIONS)),
}
ELEMENTS = frozenset({*_IN, *_AROUND, "base"})
"""The statements that the lab knows, besides what stands inside them."""


@dataclass(frozen=True)
class Program:
    """The effective policy of a request: what runs in each section, and whether CORS is part of it."""

    sections: Mapping[str, Step]
    cors: Step | None = None

    def __getitem__(self, section: str) -> Step:
        return self.sections[section]


@dataclass(frozen=True)
class Document:
    """One scope's policy; `file` is what complaints call it."""

    file: str
    text: str


def compile_scopes(documents: Sequence[Document], named_values: Mapping[str, str]) -> Program:
    """The effective policy of some scopes, outermost first. Programs hold no state, so equal ones are made once.

    Raises:
        PolicyFault: something in them is not known, or stands where it cannot; with file, line and column.
    """
    return _compiled(tuple(documents), tuple(sorted(named_values.items())))


@lru_cache(maxsize=256)
def _compiled(documents: tuple[Document, ...], values: tuple[tuple[str, str], ...]) -> Program:
    named_values = dict(values)
    program = Program({section: _sequence([]) for section in SECTIONS})
    for document in documents:
        root = parse(document.text, document.file)
        _fill_in(root, named_values)
        program = _scope(root, program)
    return program


def _fill_in(root: Node, named_values: Mapping[str, str]) -> None:
    for node in root.all():
        for name, text in node.attributes.items():
            node.attributes[name] = type(text)(_filled(text.value, text.place, named_values), text.place)
        if node.text is not None:
            node.text = type(node.text)(_filled(node.text.value, node.text.place, named_values), node.text.place)


def _filled(value: str, place: object, named_values: Mapping[str, str]) -> str:
    for name in _NAMED_VALUE.findall(value):
        if name not in named_values:
            raise PolicyFault(place, f"there is no named value {name!r}")  # type: ignore[arg-type]  # a text's place
        value = value.replace(f"{{{{{name}}}}}", named_values[name])
    return value


def _scope(root: Node, outer: Program) -> Program:
    if root.tag != "policies":
        raise PolicyFault(root.place, f"<{root.tag}> is not <policies>")
    fields.attributes(root, {})
    sections = dict(outer.sections)
    sections.update({section: _sequence([]) for section in SECTIONS})
    cors = outer.cors
    for node in fields.children(root, SECTIONS):
        fields.attributes(node, {})
        sections[node.tag] = _block(node.children, node.tag, outer[node.tag])
        cors = next((edits.cors(child, node.tag) for child in node.children if child.tag == "cors"), cors)
    return Program(sections, cors)


def _block(nodes: Sequence[Node], section: str, base: Step) -> Step:
    return _sequence([_step(node, section, base) for node in nodes])


def _step(node: Node, section: str, base: Step) -> Step:
    if node.tag == "base":
        fields.attributes(node, {})
        fields.children(node, (), most=0)
        return base
    if node.tag not in ELEMENTS:
        raise PolicyFault(node.place, f"<{node.tag}> is not known here; known: {', '.join(sorted(ELEMENTS))}")
    places = (_IN.get(node.tag) or _AROUND[node.tag])[1]
    if section not in places:
        raise PolicyFault(
            node.place, f"<{node.tag}> is not allowed in <{section}>; allowed: {', '.join(sorted(places))}"
        )
    if node.tag in _IN:
        return _IN[node.tag][0](node, section)
    return _AROUND[node.tag][0](node, lambda nodes: _block(nodes, section, base))


def _sequence(steps: Sequence[Step]) -> Step:
    async def run(exchange: Exchange) -> None:
        for step in steps:
            await step(exchange)

    return run
