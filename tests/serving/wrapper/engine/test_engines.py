"""Several engines behind one wrapper: who gets what, and what a client sees of one that is away: nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from huddle.probe import verdict
from huddle.wrapper.config import WrapperConfig
from huddle.wrapper.engine import probe as probes
from tests.serving.wrapper.conftest import MakeWrapper, Wrapper
from tests.serving.wrapper.fake_engine import (
    DONE,
    MODEL,
    USAGE,
    FakeEngine,
    Received,
    Reply,
    fake_engine,
    saying,
    streaming,
    token,
)
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}


@pytest.fixture
async def engines() -> AsyncIterator[tuple[FakeEngine, FakeEngine]]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(fake_engine()), await stack.enter_async_context(fake_engine())


@pytest.fixture
async def wrapper(make_wrapper: MakeWrapper, engines: tuple[FakeEngine, FakeEngine]) -> AsyncIterator[Wrapper]:
    """In front of both; at the end no engine counts a request that has ended."""
    made = await make_wrapper(engines[0], upstream=[engine.url for engine in engines])
    await answering(made, 2)
    yield made
    await made.until(lambda: made.service.running == 0)
    assert [engine.under_way for engine in made.service.engines.all] == [0, 0]


@pytest.fixture
async def unwatched(wrapper: Wrapper) -> Wrapper:
    """Both engines have answered; from now on nobody asks them."""
    wrapper.service.background.close()
    return wrapper


async def answering(wrapper: Wrapper, count: int) -> None:
    await wrapper.until(lambda: wrapper.service.engines.answering == count, 20)


def served(engines: tuple[FakeEngine, FakeEngine]) -> list[int]:
    return [len(engine.completions) for engine in engines]


async def hang(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.chunk(token("one"))
    await reply.closed_by_peer()


async def read(http: httpx.AsyncClient) -> bytes:
    """A stream, as far as it comes; a cut is an end like any other."""
    received = b""
    async with http.stream("POST", "/v1/chat/completions", json=BODY) as answer:
        assert answer.status_code == 200
        try:
            async for chunk in answer.aiter_raw():
                received += chunk
        except httpx.RemoteProtocolError:
            pass
    return received


class TestSpread:
    async def test_streams_at_once_are_spread_within_one(self, wrapper: Wrapper, engines) -> None:
        go = asyncio.Event()

        async def script(request: Received, reply: Reply) -> None:
            await reply.stream_head()
            await go.wait()
            await reply.chunk(DONE)
            await reply.end()

        for engine in engines:
            engine.script = script
        streams = [asyncio.create_task(read(wrapper.http)) for _ in range(21)]
        await wrapper.until(lambda: sum(served(engines)) == 21)
        assert sorted(served(engines)) == [10, 11]
        text = wrapper.metrics()
        for engine, count in zip(engines, served(engines), strict=True):
            assert f'huddle_wrapper_engine_requests{{engine="{engine.url}"}} {count}.0' in text
        go.set()
        assert await asyncio.gather(*streams) == [DONE] * 21

    async def test_one_after_the_other_they_take_turns_on_kept_connections(self, wrapper: Wrapper, engines) -> None:
        opened = sum(engine.connections for engine in engines)
        probed = sum(len(engine.requests) for engine in engines)
        for _ in range(10):
            assert (await wrapper.chat()).status_code == 200
        assert served(engines) == [5, 5]
        probes_since = sum(len(engine.requests) for engine in engines) - probed - 10
        assert sum(engine.connections for engine in engines) - opened <= 2 + probes_since

    async def test_a_slow_engine_gets_fewer(self, wrapper: Wrapper, engines) -> None:
        slow = engines[0]
        slow.script = hang
        streams = [asyncio.create_task(read(wrapper.http)) for _ in range(2)]
        await wrapper.until(lambda: sum(served(engines)) == 2)
        for _ in range(20):
            assert (await wrapper.chat()).status_code == 200
        assert served(engines) == [1, 21]
        await slow.stop()
        await asyncio.gather(*streams)

    async def test_clients_that_leave_are_not_counted_any_more(self, wrapper: Wrapper, engines) -> None:
        for engine in engines:
            engine.script = hang
        streams = [asyncio.create_task(read(wrapper.http)) for _ in range(4)]
        await wrapper.until(lambda: sum(served(engines)) == 4)
        for stream in streams:
            stream.cancel()
        await wrapper.until(lambda: wrapper.service.running == 0)  # the fixture looks at the counts


class TestProbes:
    async def test_a_verdict_speaks_for_its_own_engine(
        self, make_wrapper: MakeWrapper, engines, tmp_path: Path
    ) -> None:
        files = [tmp_path / "0.json", tmp_path / "1.json"]
        wrapper = await make_wrapper(engines[0], upstream=[engine.url for engine in engines], probe_verdict_file=files)
        await answering(wrapper, 2)
        verdict.write(files[0], verdict="suspect", ready=False, reason="no token", restarts=0)
        await answering(wrapper, 1)
        assert (await wrapper.http.get("/ready")).json()["engines"] == {"answering": 1, "configured": 2}
        before = served(engines)
        for _ in range(4):
            assert (await wrapper.chat()).status_code == 200
        assert served(engines) == [before[0], before[1] + 4]
        verdict.write(files[0], verdict="healthy", ready=True, reason="tokens come again", restarts=0)
        await answering(wrapper, 2)

    def test_each_engine_has_a_file_of_its_own(self) -> None:
        upstream = ["http://127.0.0.1:5005", "http://127.0.0.1:5006"]
        with pytest.raises(ValidationError, match="names 1 files and upstream 2 engines; each engine has a probe"):
            WrapperConfig.model_validate({"models": {"m": {}}, "upstream": upstream, "probe_verdict_file": ["/x"]})


class TestAway:
    async def test_one_that_dies_takes_its_own_streams_only(self, wrapper: Wrapper, engines) -> None:
        dying, living = engines
        go = asyncio.Event()

        async def script(request: Received, reply: Reply) -> None:
            await reply.stream_head()
            await reply.chunk(token("one"))
            await go.wait()
            await reply.chunk(DONE)
            await reply.end()

        for engine in engines:
            engine.script = script
        streams = [asyncio.create_task(read(wrapper.http)) for _ in range(8)]
        await wrapper.until(lambda: served(engines) == [4, 4])
        await dying.stop()
        await wrapper.until(lambda: sum(stream.done() for stream in streams) == 4)
        living.script = FakeEngine().script
        for _ in range(40):
            assert (await wrapper.chat()).status_code == 200
        assert served(engines) == [4, 44]
        go.set()
        received = await asyncio.gather(*streams)
        assert received.count(token("one") + DONE) == 4
        assert sum(b'"code": "engine_broken"' in cut and DONE not in cut for cut in received) == 4
        assert [line["end"] for line in wrapper.request_lines()].count("truncated") == 4

    async def test_it_comes_back_as_soon_as_the_watch_sees_it(self, wrapper: Wrapper, engines) -> None:
        await engines[0].stop()
        await answering(wrapper, 1)
        answer = await wrapper.http.get("/ready")
        assert answer.status_code == 200
        assert answer.json() == {"status": "ready", "engines": {"answering": 1, "configured": 2}}
        up = "huddle_wrapper_engine_up"
        text = wrapper.metrics()
        assert f'{up}{{engine="{engines[0].url}"}} 0.0' in text and f'{up}{{engine="{engines[1].url}"}} 1.0' in text
        assert "huddle_wrapper_engine_ready 1.0" in text
        await engines[0].start()
        await answering(wrapper, 2)
        for _ in range(4):
            assert (await wrapper.chat()).status_code == 200
        assert served(engines) == [2, 2]

    async def test_with_all_gone_it_is_the_503_of_one_engine(self, wrapper: Wrapper, engines) -> None:
        for engine in engines:
            await engine.stop()
        for _ in range(3):
            answer = await wrapper.chat()
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_unavailable")
            assert answer.json()["error"]["message"] == "the engine is not reachable; it may be starting"
            assert int(answer.headers["retry-after"]) > 0
        await answering(wrapper, 0)
        unready = await wrapper.http.get("/ready")
        assert unready.status_code == 503
        assert unready.json() == {
            "status": "not ready",
            "reason": "none of 2 engines answers: the engine is not reachable; it may be starting",
            "engines": {"answering": 0, "configured": 2},
        }
        assert "huddle_wrapper_engine_ready 0.0" in wrapper.metrics()

    async def test_none_that_is_known_to_answer_does_not_mean_that_none_is_asked(self, unwatched, engines) -> None:
        for engine in unwatched.service.engines.all:
            engine.probe.problem = "the engine has not been asked yet"
        for _ in range(4):
            assert (await unwatched.chat()).status_code == 200
        assert served(engines) == [2, 2]

    async def test_an_engine_without_the_promised_models_gets_nothing(self, make_wrapper: MakeWrapper, engines) -> None:
        engines[0].watched = saying({"object": "list", "data": [{"id": "another"}]})
        wrapper = await make_wrapper(engines[0], upstream=[engine.url for engine in engines])
        await wrapper.until(lambda: wrapper.service.engines.problem is None)
        for _ in range(4):
            assert (await wrapper.chat()).status_code == 200
        assert served(engines) == [0, 4]


class TestUnsent:
    async def test_a_refused_connection_is_nothing_that_a_client_sees(self, unwatched: Wrapper, engines) -> None:
        away = engines[0]
        await away.stop()
        for _ in range(4):
            assert (await unwatched.chat()).status_code == 200
        assert "huddle_wrapper_refusals_total{" not in unwatched.metrics()
        await away.start()  # but it gets nothing as long as the watch has not seen it
        for _ in range(4):
            assert (await unwatched.chat()).status_code == 200
        assert served(engines) == [0, 8]

    async def test_the_watch_ends_the_doubt(self, wrapper: Wrapper, engines) -> None:
        wrapper.service.engines.all[0].doubted = True
        await wrapper.until(lambda: not wrapper.service.engines.all[0].doubted, 20)

    async def test_what_was_sent_goes_nowhere_else(self, unwatched: Wrapper, engines) -> None:
        broken = engines[0]

        async def script(request: Received, reply: Reply) -> None:
            reply.writer.close()

        broken.script = script
        answer = await unwatched.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_broken")
        assert served(engines) == [1, 0]
        assert (await unwatched.chat()).status_code == 200
        assert (await unwatched.chat()).status_code == 200, "an engine that has just failed gets no other request"
        assert served(engines) == [1, 2]

    async def test_nor_what_was_sent_on_a_connection_that_the_engine_closed(self, unwatched: Wrapper, engines) -> None:
        """It may have been read: a request that ends an engine must not end the next one."""
        fatal = engines[0]

        async def script(request: Received, reply: Reply) -> None:
            if len(fatal.completions) == 1:
                await reply.json({"choices": [{"message": {"content": "hi"}}], "usage": USAGE})
            else:
                await fatal.stop()

        fatal.script = script
        assert (await unwatched.chat()).status_code == 200
        assert (await unwatched.chat()).status_code == 200
        assert served(engines) == [1, 1]
        assert (await unwatched.chat()).status_code == 503
        assert served(engines) == [2, 1]

    async def test_an_engine_that_fails_at_once_does_not_draw_all_requests(self, unwatched: Wrapper, engines) -> None:
        engines[0].script = saying({"error": {"message": "EngineCore is dead"}}, 500)
        assert [(await unwatched.chat()).status_code for _ in range(6)] == [500] + [200] * 5
        assert served(engines) == [1, 5]

    async def test_nor_one_whose_core_has_died_under_its_streams(self, unwatched: Wrapper, engines) -> None:
        engines[0].script = streaming(
            b'data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\n'
        )
        answers = [(await unwatched.chat(stream=True)).text for _ in range(6)]
        assert ["engine_error" in answer for answer in answers] == [True] + [False] * 5
        assert served(engines) == [1, 5]


async def test_the_context_is_the_shortest_of_those_that_answer(make_wrapper: MakeWrapper, engines) -> None:
    def length(tokens: int):
        return saying({"object": "list", "data": [{"id": MODEL, "max_model_len": tokens}]})

    engines[0].watched, engines[1].watched = length(4096), length(2048)
    wrapper = await make_wrapper(engines[0], upstream=[engine.url for engine in engines])

    async def is_told(tokens: int) -> None:
        async with asyncio.timeout(scaled(20)):
            while (await wrapper.http.get("/v1/models")).json()["data"][0].get("max_model_len") != tokens:
                await asyncio.sleep(0.05)

    await answering(wrapper, 2)
    await is_told(2048)
    await engines[1].stop()
    await is_told(4096)
    await engines[0].stop()
    await answering(wrapper, 0)
    await is_told(4096)  # of a model that no engine knows now, what was known last


async def test_a_reload_keeps_the_engines(wrapper: Wrapper, engines) -> None:
    given = wrapper.service.runtime.config.model_dump() | {"upstream": engines[0].url}
    runtime, ignored = wrapper.service.prepare_reload(WrapperConfig.model_validate(given))
    assert ignored == ["upstream"]
    wrapper.service.reload(runtime, ignored)
    for _ in range(4):
        assert (await wrapper.chat()).status_code == 200
    assert served(engines) == [2, 2]


async def test_each_watch_asks_by_itself(make_wrapper: MakeWrapper, engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that does not answer at all does not keep the wrapper from seeing the other."""

    async def silent(request: Received, reply: Reply) -> None:
        await reply.closed_by_peer()

    monkeypatch.setattr(probes, "_TIMEOUT_S", scaled(60))
    engines[0].watched = silent
    wrapper = await make_wrapper(engines[0], upstream=[engine.url for engine in engines])
    await answering(wrapper, 1)
    assert (await wrapper.chat()).status_code == 200
    assert served(engines) == [0, 1]
