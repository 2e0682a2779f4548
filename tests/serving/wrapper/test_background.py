"""What the wrapper does beside requests: a task that ends comes back and is heard of, whatever ended it."""

import asyncio
from typing import Any

import pytest

from huddle.wrapper.background import Background
from huddle.wrapper.engine import probe as probes
from tools.deadlines import scaled

from . import fake_engine as fakes
from .conftest import MakeWrapper, Wrapper
from .fake_engine import MODEL, Received, Reply

pytestmark = pytest.mark.anyio

NOT_MODELS: dict[str, bytes] = {
    "a list": b"[]",
    "null": b"null",
    "a number": b"5",
    "a text": b'"x"',
    "data null": b'{"data": null}',
    "data a number": b'{"data": 5}',
    "data a text": b'{"data": "tiny"}',
    "cards of any kind": b'{"data": [null, 5, [], {}, {"id": []}, {"id": {}}, {"id": null}]}',
    "deeply nested": b"[" * 100_000,
    "deeply nested data": b'{"data": ' + b"[" * 100_000,
    "huge": b'{"data": [' + b'{"id": "x"},' * 200_000 + b"{}]}",
    "no JSON": b"<html>",
    "no UTF-8": b"\xff\xfe",
    "a number of 5,000 digits": b'{"data": [{"id": "tiny", "max_model_len": ' + b"9" * 5_000 + b"}]}",
}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the engine says of its models: the last item; nothing in it lets it answer properly."""
    said: list[bytes] = []

    async def answer(request: Received, reply: Reply) -> None:
        if request.path != "/v1/models" or not said:
            await polite(request, reply)
            return
        head = f"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: {len(said[-1])}\r\n\r\n"
        await reply.raw(head.encode() + said[-1])

    polite = fakes.polite
    monkeypatch.setattr(fakes, "polite", answer)
    return said


async def ready(wrapper: Wrapper, reason: str | None) -> None:
    """Wait until `/ready` says so; None is 200."""
    async with asyncio.timeout(scaled(10)):
        while (await wrapper.http.get("/ready")).json().get("reason") != reason:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("shape", NOT_MODELS)
async def test_models_of_any_shape_do_not_end_the_watch(
    make_wrapper: MakeWrapper, models: list[bytes], shape: str
) -> None:
    """F11: one such answer, and the node was never ready again."""
    models.append(NOT_MODELS[shape])
    wrapper = await make_wrapper()
    async with asyncio.timeout(scaled(10)):
        while "models" not in (reason := str(wrapper.service.engines.problem)) and "serve" not in reason:
            await asyncio.sleep(0.05)
    models.clear()
    await ready(wrapper, None)
    assert "task_deaths_total{" not in wrapper.metrics()


@pytest.mark.parametrize("length", [b"true", b"-1", b"0", b"1e999", b'"4096"', b"[]", b"1" + b"0" * 400, b"NaN"])
async def test_a_context_of_any_length_is_no_length(
    make_wrapper: MakeWrapper, models: list[bytes], length: bytes
) -> None:
    models.append(b'{"data": [{"id": "%b", "max_model_len": %b}]}' % (MODEL.encode(), length))
    wrapper = await make_wrapper()
    await ready(wrapper, None)
    assert "max_model_len" not in (await wrapper.http.get("/v1/models")).json()["data"][0]


@pytest.mark.parametrize("error", [ZeroDivisionError("secret"), RecursionError(), asyncio.CancelledError(), None])
async def test_a_task_that_ends_is_logged_counted_and_started_again(
    make_wrapper: MakeWrapper, error: BaseException | None
) -> None:
    wrapper = await make_wrapper()
    await ready(wrapper, None)
    lives: list[int] = []

    async def work() -> None:
        lives.append(1)
        if len(lives) > 1:
            await asyncio.Event().wait()
        if error is not None:
            raise error

    # Down for long enough to be seen on a busy machine.
    background = wrapper.service.background = Background(wrapper.service.log, wrapper.service.metrics, scaled(0.25))
    background.keep("sweeper", work)
    await ready(wrapper, "of the wrapper's own tasks, sweeper has ended; it starts again")
    await ready(wrapper, None)
    background.close()
    assert len(lives) == 2
    assert 'huddle_wrapper_task_deaths_total{task="sweeper"} 1.0' in wrapper.metrics()
    lines = [line for line in wrapper.log_lines() if line["event"] == "task_ended"]
    assert [(line["level"], line["task"], line["error"]) for line in lines] == [
        ("warning", "sweeper", type(error).__name__)
    ]
    assert "secret" not in str(lines)


async def test_the_watch_of_the_engine_comes_back_after_any_fault(
    make_wrapper: MakeWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, faults = probes.EngineProbe.ask, [ZeroDivisionError()]

    async def faulty(self: Any) -> str | None:
        if faults:
            raise faults.pop()
        return await ask(self)

    monkeypatch.setattr(probes.EngineProbe, "ask", faulty)
    await ready(await make_wrapper(), None)


async def test_a_connection_that_cannot_be_checked_does_not_end_the_timeouts(
    make_wrapper: MakeWrapper,
) -> None:
    wrapper = await make_wrapper(timeouts={"client_head_s": 0.1})

    class Broken:
        def check(self, now: float) -> None:
            raise ZeroDivisionError

        def abort(self) -> None:
            pass

    broken: Any = Broken()
    wrapper.service.connected(broken, None)
    await wrapper.until(lambda: 'task_deaths_total{task="tick"}' in wrapper.metrics())
    wrapper.service.disconnected(broken)
    assert b"408" in await wrapper.raw(b"GET /health HTTP/1.1\r\n", timeout=20)
