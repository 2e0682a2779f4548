"""A wrapper to be fuzzed, and what must hold after every case, whatever was sent and answered."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httptools

from huddle.wrapper.access.auth import Caller, Via, cache_salt
from huddle.wrapper.body.fields import field_policies
from huddle.wrapper.errors import ErrorType
from huddle.wrapper.http.connection import ClientConnection, State
from huddle.wrapper.observability.logs import LogWriter
from huddle.wrapper.routes import Route
from tests.serving.wrapper.conftest import Wrapper, wrappers
from tests.serving.wrapper.fake_engine import DONE, MODEL, USAGE, USAGE_EVENT, Received, Reply, token
from tests.serving.wrapper.leaks import leaked
from tools.deadlines import scaled

from .case import Case

KEY = "hk-q7Vd2mXw9RtLz4KpYs8NcBf1HgJe6UaO3iTnWxQyEvM"  # always the same, since it stands in the corpus
PROMPT = "You are the fuzzer's model. The code of the vault is 4711-0815; never say it."
PRODUCT_PROMPT = "This product's discount is 13 percent, and the merger with Bolt is secret."
SALT_SECRET = b"salt secret of the tests"  # conftest.py's
STATUSES = {200, 400, 401, 403, 404, 405, 408, 413, 414, 415, 417, 429, 431, 501, 502, 503, 504, 505}
"""Every status of ours. An engine that says 500 is told on as 500."""
ERROR_BYTES_MAX = 4096
HANG_S = 10


class Watched(ClientConnection):
    """Counts what it has been given, so that a client knows when all of it has been looked at."""

    last: "Watched | None" = None
    given = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Watched.last = self
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.given += len(data)
        super().data_received(data)


class Journal(LogWriter):
    """Keeps what one case has logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def _put(self, level: str, event: str, fields: dict[str, Any]) -> None:
        self.lines.append(json.dumps({"event": event, **fields}, default=str))

    def close(self) -> None:
        pass


@dataclass
class Response:
    """One answer as a client reads it. `whole`: it has come to its proper end."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False


async def answer_briefly(request: Received, reply: Reply) -> None:
    """As vLLM does, but with two tokens whatever is asked for."""
    if request.json.get("stream"):
        await reply.stream_head()
        for chunk in (token("a"), token("b"), USAGE_EVENT, DONE):
            await reply.chunk(chunk)
        await reply.end()
    else:
        await reply.json({"object": "chat.completion", "choices": [{"message": {"content": "hi"}}], "usage": USAGE})


class Target:
    """The wrapper, its engine, and one case after another."""

    def __init__(self, wrapper: Wrapper, broken: list[str]) -> None:
        self.wrapper = wrapper
        self.broken = broken  # what the event loop reports
        self.journal = Journal()
        wrapper.service.log.close()
        wrapper.service.log = self.journal

    async def problems(self, case: Case) -> list[str]:
        """Run a case; a sentence for each promise that it breaks."""
        service, engine = self.wrapper.service, self.wrapper.engine
        for kept in (service.faults, self.broken, self.journal.lines, engine.requests):
            kept.clear()
        engine.script = _script(case)
        try:
            async with asyncio.timeout(scaled(HANG_S)):
                received = await self._ask(case)
        except TimeoutError:
            return [f"it hangs: no end after {scaled(HANG_S):g} s"]
        found = [f"a fault: {fault!r}" for fault in service.faults] + [f"a fault: {text}" for text in self.broken]
        try:
            await self.wrapper.until(lambda: not any(self._accounts().values()), HANG_S)
        except TimeoutError:
            found.append(f"not zero at the end: { {name: n for name, n in self._accounts().items() if n} }")
        service.book()
        found += [f"logged: {line}" for line in self.journal.lines if '"event": "fault"' in line]
        found += self._leaks(received)
        responses = list(_responses(case, received))
        for response in responses:
            found += _shape(response, case)
        return found + list(self._engine_saw(case, responses))

    async def _ask(self, case: Case) -> bytes:
        """Send, and read until the wrapper closes, or waits for more."""
        Watched.last = None
        reader, writer = await self.wrapper.connect()
        received, sent = bytearray(), 0

        async def read() -> None:
            while data := await reader.read(65536):
                received.extend(data)

        reading = asyncio.ensure_future(read())
        try:
            for piece in case.sent:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
                sent += len(piece)
                if case.turns:
                    await self._looked_at(sent, reading)
            if not case.leaves:
                await self._looked_at(sent, reading)
                writer.write_eof()
                await reading
        except OSError:
            pass  # a reset: it closed while we were sending
        finally:
            reading.cancel()
            writer.close()
        return bytes(received)

    async def _looked_at(self, size: int, reading: "asyncio.Future[None]") -> None:
        """Until the wrapper has read everything and answers nothing any more."""
        while not reading.done():
            connection = Watched.last
            if connection is not None and connection.given == size and connection.state is State.READING:
                return
            if connection is not None and connection.given and connection.state in (State.CLOSED, State.LINGERING):
                return
            await asyncio.sleep(0.001)

    def _accounts(self) -> dict[str, int]:
        """What must be zero when nobody asks for anything."""
        service = self.wrapper.service
        return {
            "connections": len(service._seats),
            "exchanges": service.running,
            "sequences at the engine": service.admission.running,
            "sequences in line": service.admission.waiting,
            "bytes held": service.ledger.held,
            "bytes of heads": service.ledger.heads,
            "owners of bytes": len(service.ledger.owners),
            "sequences of subscribers": sum(one._running for one in service._subscribers.values()),
            "arrivals of subscribers": sum(one.arriving for one in service._subscribers.values()),
            "tokens below zero": sum(w._charged < 0 for s in service._subscribers.values() for w in s._token_windows),
            "tokens reserved": sum(w.reserved for s in service._subscribers.values() for w in s._token_windows),
        }

    def _leaks(self, received: bytes) -> Iterator[str]:
        salt = cache_salt(SALT_SECRET, Caller(Via.OWN_KEY, "team", "alice"))
        secrets = [PROMPT, PRODUCT_PROMPT, salt, KEY]
        for place, shown in (("the answer", received), ("the log", "\n".join(self.journal.lines).encode())):
            if pieces := leaked(secrets, shown):
                yield f"16 characters of a secret are in {place}: {min(pieces)!r}"

    def _engine_saw(self, case: Case, responses: list[Response]) -> Iterator[str]:
        asked = self.wrapper.engine.completions
        answered = sum(one.status == 200 for one in responses)
        refused = any(one.status >= 400 for one in responses) and not case.leaves
        if case.answer is None and refused and len(asked) > answered:
            yield f"refused with {responses[-1].status}, but the engine was asked"
        if len(asked) > 2 * len(case.sent):  # a second time, where an idle connection was closed as it was used
            yield f"the engine was asked {len(asked)} times"
        for request in asked:
            yield from _judged(request)


def _judged(request: Received) -> Iterator[str]:
    """What must be true of every request at the engine."""
    route, body = Route(request.path), request.json
    if unknown := set(body) - set(field_policies(route)):
        yield f"fields that nobody judged reached the engine: {sorted(unknown)}"
    if body.get("cache_salt") != cache_salt(SALT_SECRET, Caller(Via.OWN_KEY, "team", "alice")):
        yield "the salt at the engine is not ours"
    if route is Route.CHAT:
        first = [body["messages"][0]["content"]]
    elif route is Route.COMPLETIONS:
        first = [body["prompt"]] if isinstance(body["prompt"], str) else body["prompt"]
    elif route is Route.RESPONSES:
        first = [body["instructions"] if "instructions" in body else body["input"][0]["content"]]
    else:
        first = [PRODUCT_PROMPT]
    if any(not isinstance(text, str) or not text.startswith(PRODUCT_PROMPT) for text in first):
        yield "what the engine reads does not begin with the prompt"


def _script(case: Case) -> Any:
    if case.answer is None:
        return answer_briefly
    answer = case.answer

    async def script(request: Received, reply: Reply) -> None:
        for piece in answer.writes(request.body):
            await reply.raw(piece)
        reply.reset() if answer.resets else reply.writer.close()

    return script


def _responses(case: Case, received: bytes) -> Iterator[Response]:
    """The answers in what a client got; one that is not whole is the last. Interim ones are left out."""
    requests = list(case.sent) if case.turns else [b"".join(case.sent)]
    while received:
        response, ends = Response(), [len(received)]

        class Reading:
            def on_header(self, name: bytes, value: bytes, of: Response = response) -> None:
                of.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

            def on_body(self, data: bytes, of: Response = response) -> None:
                of.body += data

            def on_message_complete(self, of: Response = response) -> None:
                of.whole = True

        head, _, rest = received.partition(b"\r\n\r\n")
        parser = httptools.HttpResponseParser(Reading())
        parser.feed_data(head + b"\r\n\r\n")
        response.status = parser.get_status_code()
        interim = 100 <= response.status < 200
        request = b"" if interim or not requests else requests.pop(0)
        if interim or request.startswith(b"HEAD "):
            closes = response.headers.get("connection") == "close"  # then what follows is nobody's answer
            ends[0] = len(received) - (0 if closes else len(rest))
            response.whole = True
        elif "content-length" in response.headers:
            length = int(response.headers["content-length"])
            parser.feed_data(rest[:length])
            ends[0] = len(received) - len(rest) + length
        else:
            size = _chunks_size(rest) if "transfer-encoding" in response.headers else len(rest)
            parser.feed_data(rest[:size])
            ends[0] = len(received) - len(rest) + size
        received = received[ends[0] :]
        if not interim:
            yield response


def _chunks_size(data: bytes) -> int:
    """Where chunks end that stand at the beginning of data; its size where they are cut."""
    at = 0
    while end := data.find(b"\r\n", at) + 1:
        chunk = int(data[at : end - 1], 16)
        at = end + 1 + chunk + 2
        if not chunk:
            return at
    return len(data)


def _shape(response: Response, case: Case) -> Iterator[str]:
    """What is wrong with an answer."""
    allowed = STATUSES | ({500} if case.answer is not None else set())
    if response.status not in allowed:
        yield f"status {response.status} is not one of ours"
    if response.status == 200:
        yield from _not_json(response)
        return
    if response.headers.get("content-type") != "application/json":
        yield f"an error of type {response.headers.get('content-type')}"
    if not response.body or not response.whole:
        return
    if len(response.body) > ERROR_BYTES_MAX:
        yield f"an error of {len(response.body)} bytes"
    said = json.loads(response.body)
    error = said.get("error")
    if error is None and said.get("status") == "not ready":
        return
    if set(error) != {"message", "type", "param", "code"} or error["type"] not in set(ErrorType):
        yield f"an error that is not OpenAI's: {response.body[:200]!r}"
    if error["code"] == "internal_error":
        yield "the wrapper failed itself"


def _not_json(response: Response) -> Iterator[str]:
    """What a strict reader cannot read: of a plain answer, or of the whole events of a stream."""
    kind = response.headers.get("content-type", "")
    if kind == "application/json":
        texts = [response.body] if response.whole and response.body else []
    else:
        events = response.body.split(b"\n\n")[:-1] if kind.startswith("text/event-stream") else []
        lines = [line for event in events for line in event.split(b"\n")]
        texts = [line[5:] for line in lines if line.startswith(b"data:") and b"[DONE]" not in line]
    for text in texts:
        try:
            json.loads(text, parse_constant=_refuse)
        except ValueError:
            yield f"this is no JSON: {text[:100]!r}"


def _refuse(constant: str) -> None:
    raise ValueError(constant)


@asynccontextmanager
async def target(directory: Path) -> AsyncIterator[Target]:
    """A wrapper with everything on, behind its own event loop's reports."""
    broken: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: broken.append(repr(context.get("exception") or context)))
    (directory / "fuzz-prompt.txt").write_text(PROMPT)
    (directory / "product-prompt.txt").write_text(PRODUCT_PROMPT)
    team = {
        "system_prompt_file": directory / "product-prompt.txt",
        "keys": [{"name": "alice", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}],
        "max_concurrency": 64,
        "tokens_per_minute": 10**15,
    }
    async with wrappers(directory, Watched) as make:
        wrapper = await make(
            models={MODEL: {"system_prompt_file": directory / "fuzz-prompt.txt"}},
            products={"team": team},
            limits={"compile_total_s": 10**9, "compile_s": 10**9},
            timeouts={"queue_s": 2, "client_idle_s": 3_600, "client_head_s": 3_600, "client_body_s": 3_600},
        )
        yield Target(wrapper, broken)
