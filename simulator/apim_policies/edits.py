"""Elements that change a request or an answer: headers, query, target, path, CORS."""

from __future__ import annotations

from gateway_policies.source import Element, PolicyFault, Text
from simulator.apim_policies import fields
from simulator.apim_policies.exchange import Exchange, Failed, LastError, Returned, Step
from simulator.apim_policies.messages import Headers, Response

_ACTION = fields.one_of("override", "delete")


def header_edit(element: Element) -> tuple[str, fields.Value | None]:
    """A `set-header`: the name, and what gives its value (None deletes it).

    Raises:
        PolicyFault: it is not one.
    """
    given = fields.attributes(element, {"name": fields.literal, "exists-action": _ACTION})
    fields.no_text(element)
    if given["exists-action"] == "delete":
        fields.children(element, (), most=0)
        return given["name"], None
    (child,) = fields.children(element, ("value",), least=1, most=1)
    return given["name"], fields.value(fields.content(child))


def apply_header(edit: tuple[str, fields.Value | None], headers: Headers, exchange: Exchange) -> None:
    """Make a header edit."""
    name, value = edit
    if value is None:
        headers.delete(name)
    else:
        headers.set(name, value(exchange))


def set_header(element: Element, section: str) -> Step:
    """`set-header`: on the request until it is sent, on the answer after."""
    edit = header_edit(element)
    on_request = section in ("inbound", "backend")

    async def step(exchange: Exchange) -> None:
        message = exchange.request if on_request else exchange.response
        if message is not None:
            apply_header(edit, message.headers, exchange)

    return step


def set_query_parameter(element: Element, _: str) -> Step:
    """`set-query-parameter`; names are compared as they are written."""
    given = fields.attributes(element, {"name": fields.literal, "exists-action": fields.one_of("delete")})
    fields.no_text(element)
    fields.children(element, (), most=0)

    async def step(exchange: Exchange) -> None:
        exchange.request.query = [(name, value) for name, value in exchange.request.query if name != given["name"]]

    return step


def set_backend_service(element: Element, _: str) -> Step:
    """`set-backend-service` by backend or by URL."""
    by = "base-url" if "base-url" in element.attributes else "backend-id"
    given = fields.attributes(element, {by: fields.literal})
    fields.children(element, (), most=0)

    async def step(exchange: Exchange) -> None:
        exchange.target = given[by]
        if by == "backend-id" and not exchange.environment.backends.knows(given[by]):
            raise Failed(500, LastError("set-backend-service", "BackendNotFound", f"{element.place}: {given[by]}"))

    return step


def rewrite_uri(element: Element, _: str) -> Step:
    """`rewrite-uri` to a fixed path; without `copy-unmatched-params` the query is dropped."""
    copy = fields.one_of("false")
    given = fields.attributes(element, {"template": _path, "copy-unmatched-params": copy})
    fields.children(element, (), most=0)

    async def step(exchange: Exchange) -> None:
        exchange.path = given["template"]
        exchange.request.query = []

    return step


def _path(text: Text) -> str:
    if not text.value.startswith("/") or "{" in text.value:
        raise PolicyFault(text.place, "the lab knows fixed templates that begin with '/'")
    return text.value


def cors(element: Element, _: str) -> Step:
    """`cors`, by Microsoft's page on it. An answer to an allowed origin gets its headers, whatever its status."""
    given = fields.attributes(
        element, {"allow-credentials": fields.one_of("false"), "terminate-unmatched-request": fields.one_of("false")}
    )
    del given  # the only values that are known
    parts = {child.tag: child for child in fields.children(element, _CORS_PARTS, least=len(_CORS_PARTS), most=4)}
    age = fields.attributes(parts["allowed-methods"], {"preflight-result-max-age": fields.positive})
    for name in ("allowed-origins", "allowed-headers", "expose-headers"):
        fields.attributes(parts[name], {})
    listed = {name: _listed(part, _CORS_PARTS[name]) for name, part in parts.items()}
    origins = frozenset(listed["allowed-origins"])

    async def step(exchange: Exchange) -> None:
        origin = exchange.request.headers.get("Origin")
        allowed = origin is not None and (origin in origins or "*" in origins)
        own = [("Access-Control-Allow-Origin", origin or "")]
        if is_preflight(exchange):
            preflight = [
                *own,
                ("Access-Control-Allow-Methods", ",".join(listed["allowed-methods"])),
                ("Access-Control-Allow-Headers", ",".join(listed["allowed-headers"])),
                ("Access-Control-Max-Age", str(age["preflight-result-max-age"])),
            ]
            raise Returned(Response.whole(200, "OK", Headers(preflight if allowed else ()), b""))
        if allowed:
            exchange.own_headers += [*own, ("Access-Control-Expose-Headers", ",".join(listed["expose-headers"]))]

    return step


_CORS_PARTS = {
    "allowed-origins": "origin",
    "allowed-methods": "method",
    "allowed-headers": "header",
    "expose-headers": "header",
}


def is_preflight(exchange: Exchange) -> bool:
    """Whether a browser asks whether it may ask."""
    request = exchange.request
    return (
        request.method == "OPTIONS"
        and "Origin" in request.headers
        and "Access-Control-Request-Method" in request.headers
    )


def _listed(element: Element, item: str) -> list[str]:
    fields.no_text(element)
    return [fields.literal(fields.content(child)) for child in fields.children(element, (item,), least=1)]
