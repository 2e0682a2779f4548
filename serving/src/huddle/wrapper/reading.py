"""How an answer of the engine is read: of what type it may be, who judges it, and its errors in our words."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from huddle.wrapper.access import auth
from huddle.wrapper.body.prepare import Prepared
from huddle.wrapper.claims import Admitted
from huddle.wrapper.engine import errors as engine_errors
from huddle.wrapper.engine.answers import Judge
from huddle.wrapper.engine.unreported import Measured, Unreported
from huddle.wrapper.engine.usage import BytesMeter, PlainMeter, StreamMeter, Usage, VectorsMeter
from huddle.wrapper.errors import RequestError
from huddle.wrapper.http.upstream import Address, ResponseHead
from huddle.wrapper.observability.logs import LogWriter
from huddle.wrapper.routes import Route

Meter = StreamMeter | PlainMeter | VectorsMeter | BytesMeter
STREAM_TYPE: Final = "text/event-stream; charset=utf-8"
_BYTES_TYPE: Final = "application/octet-stream"  # embeddings with encoding_format: bytes
_CONTENT_TYPES: Final = {
    b"application/json": "application/json",
    b"text/event-stream": STREAM_TYPE,
    b"application/octet-stream": _BYTES_TYPE,
}
"""What an answer may be, and how we say it: the engine's own header does not go through."""


@dataclass(slots=True)
class EngineError:
    """An error answer of the engine, as far as it has come and will be read."""

    status: int
    retry_after: bytes | None
    body: bytearray = field(default_factory=bytearray)

    @property
    def is_enough(self) -> bool:
        """Whatever follows is not waited for."""
        return len(self.body) > engine_errors.READ_BYTES


def content_type(head: ResponseHead, prepared: Prepared) -> str | None:
    """The type of an answer; None: it was not asked for."""
    said = _CONTENT_TYPES.get(head.headers.get(b"content-type", b"").partition(b";")[0].strip().lower())
    if said == _BYTES_TYPE and not prepared.as_bytes:
        return None
    return said if head.headers.get(b"content-encoding", b"identity") == b"identity" else None


def meter(
    content_type: str, admitted: Admitted, prepared: Prepared, address: Address, error: Callable[[bytes], bytes]
) -> Meter:
    """What reads an answer of this type; `error` makes our event of the engine's."""
    if content_type == _BYTES_TYPE:
        return BytesMeter()
    secrets = (
        prepared.served.prompt.text if prepared.served.prompt else "",
        auth.cache_salt(admitted.runtime.cache_salt_secret, admitted.caller),
        admitted.runtime.upstream_key or "",
        address.path or address.authority,
    )
    judge = Judge(admitted.route, admitted.request_id, secrets, prepared.repeated, prepared.stops)
    if content_type == STREAM_TYPE:
        tell = admitted.caller.via is auth.Via.GATEWAY  # it counts what goes by; for other callers only we count
        return StreamMeter(judge, hide=prepared.hide_usage, tell=tell, error=error)
    return VectorsMeter(judge) if admitted.route is Route.EMBEDDINGS else PlainMeter(judge)


def used(
    meter: Meter, admitted: Admitted, prepared: Prepared | None, known: Unreported, *, broken_off: bool
) -> Usage | None:
    """What a request has used: as the engine said, or for a stream that has broken off, as far as it came."""
    told = meter.usage
    if prepared is None or (told is None and not (broken_off and prepared.stream)):
        return told
    pieces = meter.pieces if isinstance(meter, StreamMeter) else 0
    begins = prepared.sequences if admitted.route is Route.CHAT else 0  # a choice begins with an event without a token
    measured = Measured(prepared.input_tokens, max(0, pieces - begins))
    if told is None:
        return known.usage(prepared.served.name, measured)
    known.learn(prepared.served.name, measured, told)
    return told


def refusal(error: EngineError, admitted: Admitted, prepared: Prepared | None, log: LogWriter) -> RequestError:
    """An error answer in our words."""
    body = bytes(error.body)
    ours = engine_errors.translate(error.status, body, admitted.route, error.retry_after, moved=_prompted(prepared))
    _note(log, admitted, error.status, ours, len(body))
    return ours


def refusal_in_stream(
    event: bytes, status: int, admitted: Admitted, prepared: Prepared | None, log: LogWriter
) -> RequestError:
    """An error inside of a stream in our words."""
    ours = engine_errors.translate_event(event, admitted.route, moved=_prompted(prepared))
    _note(log, admitted, status, ours, len(event))
    return ours


def _prompted(prepared: Prepared | None) -> bool:
    return prepared is not None and prepared.served.prompt is not None


def _note(log: LogWriter, admitted: Admitted, status: int, ours: RequestError, size: int) -> None:
    """The engine's text is not logged: it could quote a prompt."""
    log.info(
        "engine_error",
        request_id=admitted.request_id,
        engine_status=status,
        status=ours.status,
        code=ours.code,
        param=ours.param,
        bytes=size,
    )
