"""What a request claims on its way to the engine, each given back once: tokens, places, leave to compile."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from huddle.wrapper.access.admission import Admission
from huddle.wrapper.access.auth import Caller
from huddle.wrapper.access.compilation import Compilations, Leave
from huddle.wrapper.access.limits import Arrival, Reservation, Subscriber
from huddle.wrapper.body.compile_cost import Compiling
from huddle.wrapper.body.prepare import Prepared
from huddle.wrapper.deadline import Deadline
from huddle.wrapper.engine.usage import Usage
from huddle.wrapper.errors import RequestError
from huddle.wrapper.routes import Route
from huddle.wrapper.runtime import Runtime


@dataclass(slots=True)  # one for each request: to freeze it would cost 2 µs
class Admitted:
    """What is known of a request once its head is judged."""

    route: Route
    caller: Caller
    request_id: str
    runtime: Runtime
    subscriber: Subscriber | None = None  # None where limits are the gateway's business
    arrival: Arrival | None = None
    backend_key: str = field(default="", repr=False)


class Givers(Protocol):
    """Who gives what is claimed."""

    clock: Callable[[], float]
    admission: Admission
    compilations: Compilations


class Claims:
    """The claims of one request."""

    __slots__ = ("_admitted", "_compiling", "_entered_at", "_givers", "_holder", "_leave", "_reservation", "_sequences")

    def __init__(self, givers: Givers, admitted: Admitted) -> None:
        self._givers = givers
        self._admitted = admitted
        self._holder = admitted.caller.holder
        self._sequences = 1
        self._compiling: Compiling | None = None
        self._reservation: Reservation | None = None
        self._entered_at: float | None = None
        self._leave: Leave | None = None

    def reserve(self, prepared: Prepared) -> None:
        """Claim the tokens that a request declares. Raises `RequestError` (429; 400: more than there ever are)."""
        admitted = self._admitted
        self._sequences, self._compiling = prepared.sequences, prepared.compiling
        if admitted.arrival is not None:
            admitted.arrival.end()
        if admitted.subscriber is not None:
            self._reservation = admitted.subscriber.reserve(
                prepared.reserve_tokens,
                prepared.sequences,
                self._givers.clock(),
                batch=admitted.route is Route.EMBEDDINGS,
            )

    def enter_at_once(self) -> bool:
        """Take all places now; False when something has to be waited for."""
        givers = self._givers
        if givers.compilations.needs_leave(self._compiling):
            return False
        if not givers.admission.try_enter(self._holder, self._sequences):
            return False
        self._entered_at = givers.clock()
        return True

    async def enter(self, until: Deadline) -> None:
        """Wait for places, and for leave to compile. Raises `RequestError` (429)."""
        if self._entered_at is not None:
            return
        givers, compiling = self._givers, self._compiling
        await givers.admission.enter(self._holder, self._sequences, until)
        self._entered_at = givers.clock()
        # With a place: leave that waits for one would keep others waiting.
        if compiling is not None and givers.compilations.needs_leave(compiling):
            self._leave = await givers.compilations.enter(self._admitted.caller, compiling, until)

    def sent(self) -> None:
        """The engine has the request."""
        if self._leave is not None:
            self._leave.sent()

    def compiled(self) -> None:
        """The engine has answered, and so it has compiled."""
        if self._leave is not None:
            self._leave.answered()

    def refused(self, status: int) -> None:
        """The engine refuses: below 500 it compiles nothing for it; above, it may still, and time ends the leave."""
        if self._leave is not None and status < 500:
            self._leave.end()
        self._leave = None

    def lost(self) -> None:
        """The engine's connection broke: whoever has ended compiles nothing."""
        if self._leave is not None:
            self._leave.end()

    def give_back(
        self, now: float, usage: Usage | None, refusal: RequestError | None, *, sent: bool, refused: bool
    ) -> None:
        """The request has ended. What was `sent` may be compiled yet; `refused`: by the engine."""
        if self._leave is not None and not sent:
            self._leave.end()
        if self._entered_at is not None:
            self._givers.admission.leave(self._holder, self._sequences, now - self._entered_at)
        admitted = self._admitted
        if admitted.arrival is not None:
            admitted.arrival.end()
        if admitted.subscriber is not None and self._reservation is not None:
            tokens = _charged(usage, refusal, sent=sent, refused=refused)
            admitted.subscriber.settle(self._reservation, tokens, now)


def _charged(usage: Usage | None, refusal: RequestError | None, *, sent: bool, refused: bool) -> int | None:
    """Tokens to charge: what the engine counted; nothing where it did or could do no work; else all declared.

    A client that leaves a stream is charged as far as the stream came: leaving just before the usage event would
    otherwise be a way to pay nothing. Of a plain answer nobody knows how far it came, so all it declared is charged.
    """
    if usage is not None and not usage.estimated:
        return usage.total
    if not sent or refused or (refusal is not None and refusal.status in (502, 503)):
        return 0
    return None if usage is None else usage.total
