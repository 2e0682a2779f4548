"""Elements that decide what happens next: choose, retry, forward-request, return-response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gateway_policies.source import Element, PolicyFault
from simulator.apim_policies import fields
from simulator.apim_policies.edits import apply_header, header_edit
from simulator.apim_policies.exchange import BackendFault, Exchange, Failed, LastError, Returned, Step
from simulator.apim_policies.messages import Headers, Request, Response

Block: TypeAlias = Callable[[list[Element]], Step]
"""Compiles the elements inside one."""
_LONGEST_FORWARD_S = 240
_DEFAULT_FORWARD_S = 300  # what the page says, beside the note that more than 240 may not be honoured


def choose(element: Element, block: Block) -> Step:
    """`choose`: the first `when` that holds, else `otherwise`."""
    fields.attributes(element, {})
    branches: list[tuple[Callable[[Exchange], bool], Step]] = []
    otherwise: Step | None = None
    for child in fields.children(element, ("when", "otherwise"), least=1):
        if otherwise is not None:
            raise PolicyFault(child.place, "nothing may follow <otherwise>")
        if child.tag == "when":
            given = fields.attributes(child, {"condition": fields.condition})
            branches.append((given["condition"], block(child.children)))
        else:
            fields.attributes(child, {})
            otherwise = block(child.children)
    if not branches:
        raise PolicyFault(element.place, "<choose> needs a <when>")

    async def step(exchange: Exchange) -> None:
        for holds, then in branches:
            if holds(exchange):
                await then(exchange)
                return
        if otherwise is not None:
            await otherwise(exchange)

    return step


def retry(element: Element, block: Block) -> Step:
    """`retry`: what is inside once, then up to `count` times more while the condition holds."""
    given = fields.attributes(
        element,
        {
            "condition": fields.condition,
            "count": fields.positive,
            "interval": fields.positive,
            "first-fast-retry": fields.boolean,
        },
    )
    fields.children(element, ("forward-request", "retry"), least=1, most=1)
    inside = block(element.children)

    async def step(exchange: Exchange) -> None:
        await inside(exchange)
        for attempt in range(given["count"]):
            if not given["condition"](exchange):
                return
            if attempt or not given["first-fast-retry"]:
                await exchange.environment.sleep(given["interval"])
            if exchange.response is not None and exchange.response.close is not None:
                await exchange.response.close()
            await inside(exchange)

    return step


def forward_request(element: Element, _: Block) -> Step:
    """`forward-request`. With `buffer-response` (Azure's default) the answer is held until it is whole."""
    given = fields.attributes(
        element,
        {},
        {
            "timeout": fields.positive,
            "follow-redirects": fields.one_of("false"),
            "buffer-request-body": fields.boolean,
            "buffer-response": fields.boolean,
            "fail-on-error-status-code": fields.one_of("false"),
        },
    )
    fields.children(element, (), most=0)
    timeout_s = float(min(given.get("timeout", _DEFAULT_FORWARD_S), _LONGEST_FORWARD_S))
    repeatable = given.get("buffer-request-body", False)

    async def step(exchange: Exchange) -> None:
        if exchange.response is not None and not repeatable:
            raise Failed(500, LastError(element.tag, "RequestBodyConsumed", "the request's body was not buffered"))
        response = await _send(exchange, timeout_s, element.tag)
        if given.get("buffer-response", True):
            whole = await response.read()
            response.headers.delete("Transfer-Encoding")
            response = Response.whole(response.status, response.reason, response.headers, whole)
        exchange.response = response

    return step


_NOT_FORWARDED = ("Host", "Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "Expect", "TE", "Upgrade")


async def _send(exchange: Exchange, timeout_s: float, source: str) -> Response:
    environment, request = exchange.environment, exchange.request
    backend = None
    url = exchange.target
    if environment.backends.knows(exchange.target):
        backend = environment.backends.choose(exchange.target, exchange.now)
        if backend is None:
            wait = max(1, round(environment.backends.soonest_s(exchange.target, exchange.now)))
            error = LastError(source, "BackendPoolUnavailable", "No backend of the pool takes requests")
            raise Failed(503, error, ("Retry-After", str(wait)))
        url, exchange.backend_id = backend.url, backend.id
    headers = Headers(request.headers)
    headers.delete(*_NOT_FORWARDED)
    outgoing = Request(request.method, exchange.path, list(request.query), headers, request.body)
    try:
        response = await environment.send(f"{url}{exchange.path}", outgoing, timeout_s)
    except BackendFault as fault:
        # The statuses are assumptions: the page on error handling names the reasons only.
        status = 504 if fault.reason == "Timeout" else 500
        raise Failed(status, LastError(source, fault.reason, "The backend did not answer")) from None
    if backend is not None:
        given = response.headers.get("Retry-After")
        rest = float(given) if given is not None and given.isdecimal() else None
        environment.backends.note(backend, response.status, rest, exchange.now)
    return response


def return_response(element: Element, _: Block) -> Step:
    """`return-response`: a new answer from the elements inside, in their order."""
    fields.attributes(element, {})
    fields.no_text(element)
    parts = fields.children(element, ("set-status", "set-header", "set-body"), least=1)
    status, reason = 200, "OK"
    edits = []
    body: fields.Value | None = None
    for child in parts:
        if child.tag == "set-status":
            given = fields.attributes(child, {"code": fields.positive, "reason": fields.literal})
            status, reason = given["code"], given["reason"]
        elif child.tag == "set-header":
            edits.append(header_edit(child))
        else:
            body = fields.value(fields.content(child))

    async def step(exchange: Exchange) -> None:
        headers = Headers()
        for edit in edits:
            apply_header(edit, headers, exchange)
        text = body(exchange) if body is not None else ""
        raise Returned(Response.whole(status, reason, headers, text.encode()))

    return step
