"""From policy documents, outermost first, to what runs: each `<base />` is the same section of the scope around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gateway_policies.source import Element, PolicyFault, parse
from simulator.apim_policies import edits, fields, flow, limits
from simulator.apim_policies.exchange import Exchange, Step

SECTIONS = ("inbound", "backend", "outbound", "on-error")
_NAMED_VALUE = re.compile(r"\{\{([A-Za-z0-9._-]+)\}\}")
_IN: Mapping[str, tuple[Callable[[Element, str], Step], frozenset[str]]] = {
    "set-header": (edits.set_header, frozenset(SECTIONS)),
    "set-query-parameter": (edits.set_query_parameter, frozenset({"inbound"})),
    "set-backend-service": (edits.set_backend_service, frozenset({"inbound", "backend"})),
    "rewrite-uri": (edits.rewrite_uri, frozenset({"inbound"})),
    "cors": (edits.cors, frozenset({"inbound"})),
    "rate-limit-by-key": (limits.rate_limit_by_key, frozenset({"inbound"})),
    "llm-token-limit": (limits.llm_token_limit, frozenset({"inbound"})),
    "llm-emit-token-metric": (limits.llm_emit_token_metric, frozenset({"inbound"})),
}
_AROUND: Mapping[str, tuple[Callable[[Element, flow.Block], Step], frozenset[str]]] = {
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


def _fill_in(root: Element, named_values: Mapping[str, str]) -> None:
    for element in root.all():
        for name, text in element.attributes.items():
            element.attributes[name] = type(text)(_filled(text.value, text.place, named_values), text.place)
        if element.text is not None:
            element.text = type(element.text)(
                _filled(element.text.value, element.text.place, named_values), element.text.place
            )


def _filled(value: str, place: object, named_values: Mapping[str, str]) -> str:
    for name in _NAMED_VALUE.findall(value):
        if name not in named_values:
            raise PolicyFault(place, f"there is no named value {name!r}")  # type: ignore[arg-type]  # a text's place
        value = value.replace(f"{{{{{name}}}}}", named_values[name])
    return value


def _scope(root: Element, outer: Program) -> Program:
    if root.tag != "policies":
        raise PolicyFault(root.place, f"<{root.tag}> is not <policies>")
    fields.attributes(root, {})
    sections = dict(outer.sections)
    sections.update({section: _sequence([]) for section in SECTIONS})
    cors = outer.cors
    for element in fields.children(root, SECTIONS):
        fields.attributes(element, {})
        sections[element.tag] = _block(element.children, element.tag, outer[element.tag])
        cors = next((edits.cors(child, element.tag) for child in element.children if child.tag == "cors"), cors)
    return Program(sections, cors)


def _block(elements: Sequence[Element], section: str, base: Step) -> Step:
    return _sequence([_step(element, section, base) for element in elements])


def _step(element: Element, section: str, base: Step) -> Step:
    if element.tag == "base":
        fields.attributes(element, {})
        fields.children(element, (), most=0)
        return base
    if element.tag not in ELEMENTS:
        raise PolicyFault(element.place, f"<{element.tag}> is not known here; known: {', '.join(sorted(ELEMENTS))}")
    places = (_IN.get(element.tag) or _AROUND[element.tag])[1]
    if section not in places:
        raise PolicyFault(
            element.place, f"<{element.tag}> is not allowed in <{section}>; allowed: {', '.join(sorted(places))}"
        )
    if element.tag in _IN:
        return _IN[element.tag][0](element, section)
    return _AROUND[element.tag][0](element, lambda elements: _block(elements, section, base))


def _sequence(steps: Sequence[Step]) -> Step:
    async def run(exchange: Exchange) -> None:
        for step in steps:
            await step(exchange)

    return run
