"""One request on its way: prepare, admit, send, relay the answer's bytes, settle. It ends once, whoever gives up.

Why a client that leaves must reach the engine: docs/facts/vllm-and-ray.md#clients-that-leave.
"""

import asyncio
from collections.abc import Callable
from enum import UNIQUE, StrEnum, verify
from typing import Final, Protocol

from huddle.headers import OVERHEAD_HEADER, PROMPT_HASH_HEADER, PROMPT_ID_HEADER, QUEUE_HEADER, REQUEST_ID_HEADER
from huddle.wrapper import preparing, reading
from huddle.wrapper.access import auth
from huddle.wrapper.access.admission import Admission
from huddle.wrapper.access.compilation import Compilations
from huddle.wrapper.access.limits import LimitError
from huddle.wrapper.body.effort import prepared_at_once
from huddle.wrapper.body.prepare import Prepared
from huddle.wrapper.claims import Admitted, Claims
from huddle.wrapper.deadline import Deadline
from huddle.wrapper.engine import errors as engine_errors
from huddle.wrapper.engine.engines import Engines, Way
from huddle.wrapper.engine.unreported import Unreported
from huddle.wrapper.engine.usage import BytesMeter, PlainMeter, Usage, judge_plain
from huddle.wrapper.errors import RequestError, upstream_broken, upstream_timeout
from huddle.wrapper.http.connection import ClientConnection
from huddle.wrapper.http.upstream import ResponseHead, UpstreamConnection, post_head
from huddle.wrapper.observability.logs import LogWriter
from huddle.wrapper.observability.metrics import Metrics, of
from huddle.wrapper.routes import Route
from huddle.wrapper.workbench import Workbench

_LARGE_BYTES: Final = 256 * 1024  # a larger body is read in the process beside, to keep the streams flowing
_KEEPALIVE: Final = b": keep-alive\n\n"


@verify(UNIQUE)
class End(StrEnum):
    """How a request ended, as the log says it."""

    DONE = "done"
    REFUSED = "refused"
    CLIENT_GONE = "client_gone"
    TRUNCATED = "truncated"


class ExchangeService(Protocol):
    """What an exchange needs of the service that has started it."""

    clock: Callable[[], float]
    loop: asyncio.AbstractEventLoop
    log: LogWriter
    metrics: Metrics
    admission: Admission
    compilations: Compilations
    engines: Engines
    workbench: Workbench
    answers: Workbench
    unreported: Unreported

    def finished(
        self, exchange: "Exchange", how: End, usage: Usage | None, refusal: RequestError | None, now: float
    ) -> None:
        """A request has ended; it is to be logged and counted."""

    def fault(self, error: Exception, request_id: str) -> None:
        """The wrapper itself has failed; the error goes to the log."""


class Exchange:
    """Implements the connection's `Answer` and the upstream's `Sink`."""

    def __init__(self, service: ExchangeService, connection: ClientConnection, admitted: Admitted, body: bytes) -> None:
        self.service = service
        self.connection = connection
        self.admitted = admitted
        self.prepared: Prepared | None = None
        self.status = 0
        self.bytes_in = len(body)
        self.received = service.clock()
        self.queue_s = 0.0
        self.overhead_s = 0.0
        self.first_byte_at: float | None = None
        self._body = body
        self._clock = service.clock
        self._claims = Claims(service, admitted)
        self._way = Way(service.engines)
        self._upstream: UpstreamConnection | None = None
        self._sent_at: float | None = None
        self._heard_at = 0.0
        self._answer_begun = False
        self._meter: reading.Meter = BytesMeter()
        self._sse = False
        self._error: reading.EngineError | None = None
        self._error_inside = False
        self._asked_again = False
        self._ended = False
        self._task: asyncio.Task[None] | None = None

    # -- the way to the engine --

    def start(self) -> None:
        """Go as far as possible at once, which is mostly all the way; a task does what has to wait."""
        if self._ended:
            return
        try:
            if self.bytes_in <= _LARGE_BYTES and prepared_at_once(self._body):
                self._take(preparing.prepare(self.admitted, self._body))
                if self._claims.enter_at_once() and (upstream := self._way.take_idle()) is not None:
                    self._send(upstream)
                    return
            self._task = self.service.loop.create_task(self._wait())
        except Exception as error:
            self._failed(error)

    async def _wait(self) -> None:
        try:
            until = Deadline.after(self.admitted.runtime.config.timeouts.queue_s, self._clock() - self.received)
            if self.prepared is None:
                asked = self._clock()
                async with self.service.workbench.turn(self.admitted.caller.holder, until):
                    self.queue_s = self._clock() - asked
                    prepared = await preparing.prepare_beside(self.service.workbench.helper, self.admitted, self._body)
                self._take(prepared)
            waited_from = self._clock()
            await self._claims.enter(until)
            self.queue_s += self._clock() - waited_from
            self._send(self._way.take_idle() or await self._way.connect())
        except Exception as error:
            self._failed(error)

    def _take(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self._body = b""
        self.connection.holding.hold(len(prepared.body))
        self._claims.reserve(prepared)

    def _send(self, upstream: UpstreamConnection) -> None:
        self._sent_at = self._heard_at = self._clock()
        self.overhead_s = self._sent_at - self.received - self.queue_s
        self._upstream = upstream
        self._claims.sent()
        assert self.prepared is not None  # noqa: S101 - _take has run
        body, admitted = self.prepared.body, self.admitted
        authority, key = upstream.pool.authority, admitted.runtime.upstream_key
        upstream.send(post_head(authority, admitted.route, admitted.request_id, key, len(body)), body, self)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, RequestError):
            self._refuse(error)
        else:
            self.service.fault(error, self.admitted.request_id)
            self._refuse(RequestError(500, "internal_error", "the wrapper failed; the request id is in the log"))

    # -- the answer: upstream.Sink --

    def response_head(self, head: ResponseHead) -> None:
        """The engine has begun to answer."""
        now = self._heard_at = self._clock()
        self._answer_begun = True
        self._let_go()  # now the request is never sent again
        if head.status != 200:
            self.first_byte_at = now
            self._claims.refused(head.status)
            self._way.refused(head.status)
            self._error = reading.EngineError(head.status, head.headers.get(b"retry-after"))
            if not engine_errors.body_matters(head.status):
                self._refuse_for_engine(self._error)
            return
        prepared, upstream = self.prepared, self._upstream
        assert prepared is not None and upstream is not None  # noqa: S101 - an answer follows a request
        content_type = reading.content_type(head, prepared)
        if content_type is None:
            self._upstream_fault(upstream_broken("the engine's answer is not of a type that it was asked for"))
            return
        self.status = head.status
        self._sse = content_type == reading.STREAM_TYPE
        self._meter = reading.meter(content_type, self.admitted, prepared, upstream.pool.address, self._stream_error)
        if isinstance(self._meter, PlainMeter):
            return  # the client's answer begins once this one is whole and judged
        headers, length = [("content-type", content_type)], head.length
        if self._sse:
            length = None
            headers += (("cache-control", "no-cache"), ("x-accel-buffering", "no"))
        self.overhead_s += self._clock() - now
        self.connection.start_response(head.status, headers + self.own_headers(), length)

    def response_body(self, data: bytes, *, last: bool) -> None:
        """Some of the answer: the hot path."""
        self._heard_at = self._clock()
        if self._error is not None:
            self._error.body += data
            if self._error.is_enough:
                self._refuse_for_engine(self._error)
            return
        meter = self._meter
        try:
            data = meter.feed(data)
            if last:
                data += meter.rest()
            self.connection.holding.hold_partial(meter.size)
        except RequestError as broken:
            self._upstream_fault(broken)
            return
        if data:
            if self.first_byte_at is None:
                self.first_byte_at = self._heard_at
                if last or self.admitted.route is not Route.RESPONSES:
                    self._claims.compiled()  # (a stream of /v1/responses begins before the engine has compiled)
            self.connection.write_body(data, last=last)

    def response_end(self) -> None:
        """The answer is whole."""
        self._upstream = None
        if self._ended:
            return
        if self._error is not None:
            self._refuse_for_engine(self._error)
            return
        meter = self._meter
        if isinstance(meter, PlainMeter):
            if meter.size <= _LARGE_BYTES:
                self._plain(meter)
            else:
                self._task = self.service.loop.create_task(self._plain_beside(meter))
            return
        try:
            rest = meter.rest()
        except RequestError as broken:
            self._upstream_fault(broken)
            return
        if rest:
            self.connection.write_body(rest)
        self.connection.end_response()
        self._end(End.DONE)

    def _plain(self, meter: PlainMeter) -> None:
        try:
            self._answer(meter.judged())
        except RequestError as broken:
            self._upstream_fault(broken)

    async def _plain_beside(self, meter: PlainMeter) -> None:
        bench, admitted = self.service.answers, self.admitted
        try:
            async with bench.turn(admitted.caller.holder, Deadline.after(admitted.runtime.config.timeouts.total_s)):
                meter.usage, answer = await bench.helper.run(judge_plain, meter.judge, body=meter.whole())
        except Exception as error:
            self._failed(error)
        else:
            self._answer(answer)

    def _answer(self, body: bytes) -> None:
        """A plain answer that is whole and judged."""
        if self._ended:
            return
        self.connection.holding.hold_partial(0)
        now = self.first_byte_at = self._clock()
        self.overhead_s += now - self._heard_at
        headers = [("content-type", "application/json"), *self.own_headers()]
        self.connection.start_response(200, headers, len(body))
        self.connection.write_body(body, last=True)
        self.connection.end_response()
        self._end(End.DONE)

    def response_lost(self, refusal: RequestError, *, stale: bool) -> None:
        """The engine's connection broke."""
        self._upstream = None
        if self._ended:
            return
        if stale and not self._asked_again:
            self._asked_again = True
            # The engine closed an idle connection as we used it: nothing was begun, so it is safe to ask again.
            self.service.metrics.retries.inc()
            self._task = self.service.loop.create_task(self._again())
            return
        self._claims.lost()
        self._way.doubt()
        self._upstream_fault(refusal)

    def _let_go(self) -> None:
        assert self.prepared is not None  # noqa: S101 - it was sent
        self.prepared.body = b""
        self.connection.holding.hold(0)

    async def _again(self) -> None:
        try:
            self._send(await self._way.connect_again())
        except Exception as error:
            self._failed(error)

    def own_headers(self) -> list[tuple[str, str]]:
        """The headers that tell what the wrapper did."""
        headers = [(REQUEST_ID_HEADER, self.admitted.request_id)]
        prompt = self.prepared.served.prompt if self.prepared else None
        if prompt is not None:
            headers.append((PROMPT_ID_HEADER, prompt.id))
            if self.admitted.backend_key:
                headers.append((PROMPT_HASH_HEADER, auth.keyed_hash(self.admitted.backend_key, prompt.sha256)))
        if self._sent_at is not None:
            headers += (
                (OVERHEAD_HEADER, f"{self.overhead_s * 1000:.3f}"),
                (QUEUE_HEADER, f"{self.queue_s * 1000:.1f}"),
            )
        return headers

    # -- the client: connection.Answer --

    def client_gone(self) -> None:
        """Stop the engine's work: it ends when its connection closes."""
        self._end(End.CLIENT_GONE)

    def pause(self) -> None:
        """The client is slow; let the engine's bytes wait in the kernel."""
        if self._upstream is not None:
            self._upstream.pause()

    def resume(self) -> None:
        """The client has caught up."""
        if self._upstream is not None:
            self._heard_at = self._clock()
            self._upstream.resume()

    # -- time --

    def check(self, now: float) -> None:
        """Enforce the timeouts and keep silent streams alive; called a few times a second."""
        limits = self.admitted.runtime.config.timeouts
        if self._ended:
            return
        if now - self.received > limits.total_s:
            self._upstream_fault(upstream_timeout(f"the request took longer than {limits.total_s:g} s"))
        elif self._upstream is None or self.connection.stalled:
            return
        elif self.first_byte_at is None:
            if now - (self._sent_at or now) > limits.first_byte_s:
                self._upstream_fault(upstream_timeout(f"no answer of the engine began in {limits.first_byte_s:g} s"))
            elif self._sse and now - self._heard_at > limits.keepalive_s:
                self._heard_at = now
                self.service.metrics.keepalives.inc()
                self.connection.write_body(_KEEPALIVE)
        elif now - self._heard_at > limits.idle_s:
            self._upstream_fault(upstream_timeout(f"the engine was silent for {limits.idle_s:g} s"))

    # -- ends --

    def _refuse(self, refusal: RequestError) -> None:
        if self._ended:
            return
        self.status = refusal.status
        if isinstance(refusal, LimitError):
            of(self.service.metrics.limited, self.admitted.caller.product, refusal.limit.value).inc()
        of(self.service.metrics.refusals, refusal.code).inc()
        self.connection.refuse(refusal, self.own_headers())
        self._end(End.REFUSED, refusal)

    def _refuse_for_engine(self, error: reading.EngineError) -> None:
        """The engine has refused or failed: say so in our words."""
        self._refuse(reading.refusal(error, self.admitted, self.prepared, self.service.log))

    def _stream_error(self, event: bytes) -> bytes:
        """The event that stands for an engine's error inside of a stream."""
        refusal = reading.refusal_in_stream(event, self.status, self.admitted, self.prepared, self.service.log)
        of(self.service.metrics.refusals, refusal.code).inc()
        self._claims.refused(refusal.status)
        self._error_inside = True
        self._way.refused(refusal.status)
        return refusal.event()

    def _upstream_fault(self, refusal: RequestError) -> None:
        """The engine failed: an error answer if that is still possible, else a cut that cannot be taken for an end."""
        if not self.connection.head_written:
            self._refuse(refusal)
            return
        of(self.service.metrics.refusals, refusal.code).inc()
        if self._sse:
            self.connection.write_body(refusal.event())
        self.connection.cut()
        self._end(End.TRUNCATED, refusal)

    def _end(self, how: End, refusal: RequestError | None = None) -> None:
        if self._ended:
            return
        self._ended = True
        now = self._clock()
        if self._upstream is not None:
            self._upstream.abort()
            self._upstream = None
        self._way.end()
        if self._task is not None:
            self._task.cancel()
        if how is End.DONE:
            self._claims.compiled()
        broken_off = self._sent_at is not None and (how in (End.CLIENT_GONE, End.TRUNCATED) or self._error_inside)
        usage = reading.used(self._meter, self.admitted, self.prepared, self.service.unreported, broken_off=broken_off)
        self._meter, self._body = BytesMeter(), b""  # it is booked a moment later, and holds nothing until then
        if self.prepared is not None:
            self.prepared.body = b""
        self.connection.holding.hold_partial(0)
        sent, refused = self._sent_at is not None, self._answer_begun and self.status >= 400
        self._claims.give_back(now, usage, refusal, sent=sent, refused=refused)
        self.service.finished(self, how, usage, refusal, now)
