"""The wrapper behind its connections: who may ask for what, answers of its own, and the books."""

import asyncio
import itertools
import json
import os
import re
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from huddle.headers import REQUEST_ID_HEADER
from huddle.probe import verdict
from huddle.wrapper import runtime as runtimes
from huddle.wrapper.access.admission import Admission
from huddle.wrapper.access.auth import Caller, Via, backend_key
from huddle.wrapper.access.compilation import Compilations
from huddle.wrapper.access.fairness import UNNAMED
from huddle.wrapper.access.limits import Arrival, LimitError, Subscriber
from huddle.wrapper.background import Background, place
from huddle.wrapper.claims import Admitted
from huddle.wrapper.config import WrapperConfig
from huddle.wrapper.engine.engines import Engines
from huddle.wrapper.engine.unreported import Unreported
from huddle.wrapper.engine.usage import Usage
from huddle.wrapper.errors import RequestError, going_away, malformed
from huddle.wrapper.exchange import End, Exchange
from huddle.wrapper.http.connection import ClientConnection, ClientTimeouts
from huddle.wrapper.http.http1 import Head, HttpLimits
from huddle.wrapper.http.ledger import Ledger
from huddle.wrapper.http.seats import FullError, Origins, Seats
from huddle.wrapper.http.upstream import UpstreamPool
from huddle.wrapper.observability.logs import LogWriter
from huddle.wrapper.observability.metrics import Metrics, of
from huddle.wrapper.routes import ENGINE_ROUTES, OPEN_ROUTES, Route, check_offered, resolve
from huddle.wrapper.runtime import Runtime
from huddle.wrapper.turns import Turns
from huddle.wrapper.workbench import Workbench

_TICK_S: Final = 0.25
_FLUSH_POLL_S: Final = 0.02
_BOOK_S: Final = 0.2  # a burst of ends is most often one of new requests, too
_REQUEST_ID_HEADER: Final = REQUEST_ID_HEADER.encode()
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_ID_PREFIX: Final = secrets.token_hex(8) + "-"
_ID_NUMBERS: Final = itertools.count()
_NOBODY: Final = Caller(Via.NOBODY)
_JSON: Final = ("content-type", "application/json")


class WrapperService:
    """Implements the connections' `HttpService`. One per process; everything runs on one event loop."""

    def __init__(
        self,
        runtime: Runtime,
        log: LogWriter,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        config = runtime.config
        self.runtime = runtime
        self.log = log
        self.metrics = metrics
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.draining = False
        self.refusing = False
        self.started = int(time.time())
        self.admission = Admission(runtime.bounds)
        self.compilations = Compilations(*runtime.compiling)
        self.background = Background(log, metrics)
        self.engines = Engines(
            [UpstreamPool(address, config.timeouts.connect_s, clock) for address in config.addresses],
            key=lambda: self.runtime.upstream_key,
            wanted=lambda: {m.upstream_model or name for name, m in self.runtime.config.models.items()},
            learned=self._learned,
            changed=lambda name, problem: log.info("engine", upstream=name, ready=problem is None, reason=problem),
            objections=map(_probe_objection, config.verdict_files),
        )
        self._context_lengths: dict[str, int] = {}
        self.workbench = Workbench(runtime.bench)
        self.answers = Workbench(sys.maxsize)  # places at the engine bound them already
        self.unreported = Unreported()
        self.turns = Turns(self.loop)
        self.ledger = Ledger(*runtime.memory)
        self._seats: Seats[ClientConnection] = Seats(*runtime.seats)
        self._origins = Origins(config.gateway_addresses)
        self._exchanges: set[Exchange] = set()
        self._subscribers: dict[tuple[str, str], Subscriber] = {}
        self._unbooked: list[tuple[Exchange, End, Usage | None, RequestError | None, float]] = []
        metrics.gauge("connections", "Open client connections.", lambda: len(self._seats))
        metrics.gauge("in_flight", "Sequences at the engine.", lambda: self.admission.running)
        metrics.gauge("queue_length", "Sequences waiting for a place.", lambda: self.admission.waiting)
        metrics.gauge("compile_seconds", "Estimated seconds of compiling under way.", lambda: self.compilations.total)
        metrics.gauge(
            "buffered_bytes",
            "Bytes of requests, and of answers that wait for readers, in memory.",
            lambda: self.ledger.held + self.ledger.heads,
        )
        engines = {engine.name: engine for engine in self.engines.all}
        metrics.gauge("engine_ready", "1 while an engine is healthy.", lambda: float(self.engines.answering > 0))
        metrics.gauge_of_each("engine_up", "1 while this engine is healthy.", engines, lambda e: float(e.answers))
        metrics.gauge_of_each("engine_requests", "Requests that this engine has.", engines, lambda e: e.under_way)

    # -- connection.HttpService --

    @property
    def http_limits(self) -> HttpLimits:
        """The largest head and body of a request, in bytes."""
        return self.runtime.http_limits

    @property
    def client_timeouts(self) -> ClientTimeouts:
        """How long a client may take."""
        return self.runtime.client_timeouts

    def connected(self, connection: ClientConnection, peer: object) -> bool:
        """Register a connection, if there is a seat for it."""
        try:
            leaver = self._seats.enter(connection, self._origins.of(peer))
        except FullError:
            of(self.metrics.refusals, "too_many_connections").inc()
            return False
        self._evict(leaver)
        return True

    def idle(self, connection: ClientConnection) -> None:
        """The connection may give way to others now."""
        self._seats.idle(connection)

    def disconnected(self, connection: ClientConnection) -> None:
        """Remove a closed connection from the count."""
        self._seats.leave(connection)

    def admit(self, connection: ClientConnection, head: Head) -> Admitted:
        """Check a request's head: route, caller, form, limits. Before this, none of its body is waited for.

        Raises `RequestError`: 401, 403, 404, 405, 415, 429 or, for a body that has no place here, 400.
        """
        route = resolve(head.method, head.path)
        caller = _NOBODY if route in OPEN_ROUTES else self.runtime.keyring.identify(head)
        if route in ENGINE_ROUTES:
            if self.refusing:
                raise going_away(self.runtime.config.timeouts.restart_s)
            check_offered(route, "product", self.runtime.preparer(caller).routes)
            content_type = (head.text(b"content-type") or "").partition(";")[0].strip().lower()
            if content_type != "application/json":
                raise RequestError(415, "unsupported_media_type", "send 'Content-Type: application/json'")
        elif head.has_body:
            raise malformed(f"a {head.method} request has no body here")
        holder = caller.holder
        self._evict(self._seats.claim(connection, None if holder == UNNAMED else holder))
        subscriber = self._subscriber(caller) if caller.via is Via.OWN_KEY and route in ENGINE_ROUTES else None
        arrival = None if subscriber is None else self._arrival(subscriber, caller)
        self._seats.busy(connection)
        connection.holding.belongs_to(holder)
        key = backend_key(head) if caller.via is Via.GATEWAY else ""
        return Admitted(route, caller, _request_id(head), self.runtime, subscriber, arrival, key)

    def abandoned(self, admitted: object) -> None:
        """A request ends before its body is whole."""
        assert isinstance(admitted, Admitted)  # noqa: S101 - made by admit()
        if admitted.arrival is not None:
            admitted.arrival.end()

    def answer(self, connection: ClientConnection, admitted: object, body: bytes) -> Exchange | None:
        """Answer at once, or start an exchange with the engine."""
        assert isinstance(admitted, Admitted)  # noqa: S101 - made by admit()
        if admitted.route in ENGINE_ROUTES:
            exchange = Exchange(self, connection, admitted, body)
            self._exchanges.add(exchange)
            self.turns.take(exchange.start)
            return exchange
        status, value = self._own_answer(admitted)
        of(self.metrics.requests, admitted.route.value, admitted.caller.product, str(status)).inc()
        headers = [_JSON, (REQUEST_ID_HEADER, admitted.request_id)]
        connection.respond(status, headers, json.dumps(value).encode())
        return None

    def refused(self, head: Head | None, refusal: RequestError) -> list[tuple[str, str]]:
        """Note a refusal of a request that got no further than its head."""
        request_id = _request_id(head) if head is not None else _fresh_id()
        route = _known_route(head)
        of(self.metrics.refusals, refusal.code).inc()
        of(self.metrics.requests, route, "", str(refusal.status)).inc()
        self.log.info("refused", request_id=request_id, route=route, status=refusal.status, code=refusal.code)
        return [(REQUEST_ID_HEADER, request_id)]

    # -- for exchanges --

    def finished(
        self, exchange: Exchange, how: End, usage: Usage | None, refusal: RequestError | None, now: float
    ) -> None:
        """A request has ended. It is booked a moment later: clients that ask again at once need not wait for it."""
        self._exchanges.discard(exchange)
        if not self._unbooked:
            self.loop.call_later(_BOOK_S, self.book)
        self._unbooked.append((exchange, how, usage, refusal, now))

    def book(self) -> None:
        """Write what has ended into metrics and log."""
        ended, self._unbooked = self._unbooked, []
        for entry in ended:
            self._book(*entry)

    def _book(
        self, exchange: Exchange, how: End, usage: Usage | None, refusal: RequestError | None, now: float
    ) -> None:
        admitted, prepared, metrics = exchange.admitted, exchange.prepared, self.metrics
        route, product = admitted.route.value, admitted.caller.product
        model = prepared.served.name if prepared else None
        prompt = prepared.served.prompt if prepared else None
        took = now - exchange.received
        ttft = None if exchange.first_byte_at is None else exchange.first_byte_at - exchange.received
        of(metrics.requests, route, product, str(exchange.status or 499)).inc()
        of(metrics.duration, route).observe(took)
        if exchange.overhead_s:
            metrics.overhead.observe(exchange.overhead_s)
            metrics.queued.observe(exchange.queue_s)
        if prepared and prepared.stream and ttft is not None:
            of(metrics.ttft, model).observe(ttft)
        if how is End.CLIENT_GONE:
            metrics.disconnects.inc()
        elif how is End.TRUNCATED:
            metrics.truncated.inc()
        if usage is not None and (usage.completion_tokens or not usage.estimated):  # a prompt counts with a first token
            for kind, tokens in (("prompt", usage.prompt_tokens), ("completion", usage.completion_tokens)):
                of(metrics.tokens, model, product, kind).inc(tokens)
                if usage.estimated:
                    of(metrics.estimated_tokens, kind).inc(tokens)
        if (usage is None or usage.estimated) and how is End.DONE and exchange.status == 200:
            metrics.usage_missing.inc()
        self.log.info(
            "request",
            request_id=admitted.request_id,
            route=route,
            end=how.value,
            status=exchange.status or 499,
            code=refusal.code if refusal else None,
            via=admitted.caller.via.value,
            product=product or None,
            tenant=admitted.caller.tenant or None,
            model=model,
            stream=prepared.stream if prepared else None,
            sequences=prepared.sequences if prepared else None,
            prompt_id=prompt.id if prompt else None,
            prompt_sha256=prompt.sha256 if prompt else None,
            fields_stripped=prepared.stripped if prepared else None,
            prompt_tokens=usage.prompt_tokens if usage else None,
            completion_tokens=usage.completion_tokens if usage else None,
            tokens_estimated=usage.estimated or None if usage else None,
            ttft_ms=None if ttft is None else round(ttft * 1000, 1),
            total_ms=round(took * 1000, 1),
            queue_ms=round(exchange.queue_s * 1000, 1),
            overhead_ms=round(exchange.overhead_s * 1000, 3),
            bytes_in=exchange.bytes_in,
            bytes_out=exchange.connection.bytes_out,
        )

    def fault(self, error: Exception, request_id: str) -> None:
        """A fault of ours: its place goes to the log, its text does not (it could quote a request)."""
        self.log.warning("fault", request_id=request_id, error=type(error).__name__, at=place(error))

    # -- running --

    async def tick(self) -> None:
        """Enforce every timeout, a few times a second, for ever."""
        while True:
            await asyncio.sleep(_TICK_S)
            now = self.clock()
            for connection in self._seats:
                connection.check(now)
            for exchange in tuple(self._exchanges):
                exchange.check(now)
            self.engines.prune()

    def prepare_reload(self, config: WrapperConfig) -> tuple[Runtime, list[str]]:
        """Read what `reload` takes; may run in a thread. Raises `ConfigError`.

        The engines' addresses, the probe's file, what to listen on and the number of workers need a restart.
        """
        fixed = ("listen", "metrics_listen", "upstream", "probe_verdict_file", "workers")
        kept = {name: getattr(self.runtime.config, name) for name in fixed}
        ignored = [name for name in fixed if getattr(config, name) != kept[name]]
        return runtimes.build(config.model_copy(update=kept), self.runtime.cache_salt_secret), ignored

    def reload(self, new: Runtime, needs_restart: list[str]) -> None:
        """Judge new requests by a new reading; running ones keep theirs."""
        self.runtime = new.with_lengths(self._context_lengths)
        self.admission.resize(new.bounds)
        self.compilations.resize(*new.compiling)
        self.workbench.each = new.bench
        self.ledger.total, self.ledger.per_owner = new.memory
        self._seats.resize(*new.seats)
        self._origins = Origins(new.config.gateway_addresses)
        for (product, holder), subscriber in list(self._subscribers.items()):
            if product in new.config.products:
                subscriber.reconfigure(new.quota(Caller(Via.OWN_KEY, product, holder)))
            else:
                del self._subscribers[product, holder]
        self.log.info("reloaded", needs_restart=needs_restart or None)

    def close_idle(self) -> None:
        """Close the connections that wait for a request, and the others after their current answer."""
        for connection in self._seats:
            connection.close_if_idle()

    @property
    def running(self) -> int:
        """Requests that are being answered."""
        return len(self._exchanges)

    async def flushed(self, deadline: float) -> None:
        """Wait until the last answers have left our buffers and their connections are closed."""
        while self._seats and self.clock() < deadline:
            await asyncio.sleep(_FLUSH_POLL_S)

    def abort_all(self) -> None:
        """Close every connection at once, in the middle of its answer."""
        for connection in self._seats:
            connection.abort()

    def _evict(self, leaver: ClientConnection | None) -> None:
        if leaver is not None:
            of(self.metrics.refusals, "connection_evicted").inc()
            leaver.abort()

    def _subscriber(self, caller: Caller) -> Subscriber:
        holder = (caller.product, caller.tenant)
        subscriber = self._subscribers.get(holder)
        if subscriber is None:
            subscriber = self._subscribers[holder] = Subscriber(self.runtime.quota(caller))
        return subscriber

    def _arrival(self, subscriber: Subscriber, caller: Caller) -> Arrival:
        try:
            return subscriber.arrive(self.clock())
        except LimitError as refusal:
            of(self.metrics.limited, caller.product, refusal.limit.value).inc()
            raise

    def _own_answer(self, admitted: Admitted) -> tuple[int, dict[str, Any]]:
        if admitted.route is Route.HEALTH:
            return 200, {"status": "ok"}
        if admitted.route is Route.READY:
            problem = "draining" if self.draining else self.background.problem or self.engines.problem
            engines = {"engines": {"answering": self.engines.answering, "configured": len(self.engines.all)}}
            refusal = {"status": "not ready", "reason": problem}
            return (503, refusal | engines) if problem else (200, {"status": "ready"} | engines)
        cards = [
            {"id": served.name, "object": "model", "created": self.started, "owned_by": "huddle"}
            | ({"max_model_len": served.max_model_len} if served.max_model_len else {})
            for served in admitted.runtime.models(admitted.caller)
        ]
        return 200, {"object": "list", "data": cards}

    def _learned(self, lengths: dict[str, int]) -> None:
        """The engines have said their context lengths (tokens); of a model that none knows now, the last one holds."""
        known = self._context_lengths | lengths
        if known != self._context_lengths:
            self._context_lengths = known
            self.runtime = self.runtime.with_lengths(known)


def _probe_objection(path: Path | None) -> Callable[[], str | None]:
    """What `huddle probe` holds against an engine, where one runs."""
    return verdict.Listener(path).objection if path is not None else lambda: None


def _request_id(head: Head) -> str:
    """The client's request id when it is one that can stand in a log, else a fresh one."""
    given = head.headers.get(_REQUEST_ID_HEADER)
    if given is None or _REQUEST_ID_HEADER in head.repeated or not _REQUEST_ID.fullmatch(given):
        return _fresh_id()
    return given.decode()


def _fresh_id() -> str:
    """Unique, not secret: the random part is drawn once for each process."""
    return f"{_ID_PREFIX}{os.getpid():x}-{next(_ID_NUMBERS):x}"


def _known_route(head: Head | None) -> str:
    return head.path if head is not None and head.path in {route.value for route in Route} else "other"
