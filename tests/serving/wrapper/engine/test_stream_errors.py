"""An engine's error inside of a stream is replaced by ours; the rest of the stream is the engine's."""

import json

import openai
import pytest

from huddle.wrapper.engine.answers import Judge
from huddle.wrapper.engine.usage import StreamMeter
from huddle.wrapper.routes import Route
from tests.serving.wrapper.conftest import PROMPT, Wrapper
from tests.serving.wrapper.engine.vllm_errors import (
    HI,
    INVALID,
    told,
    vllm,
)
from tests.serving.wrapper.fake_engine import (
    DONE,
    MODEL,
    event,
    streaming,
    token,
)

pytestmark = pytest.mark.anyio


async def test_an_error_in_a_stream_is_ours_and_the_rest_is_the_engines(wrapper: Wrapper) -> None:
    error = event(vllm(f"temperature must be at least 0: {PROMPT}", param="temperature"))
    said, more = token('say "error": {"x"}'), token("error")
    wrapper.engine.script = streaming(said, more + error[:40], error[40:] + DONE)
    answer = await wrapper.chat(stream=True, stream_options={"include_usage": True})
    assert answer.content.startswith(said + more)
    assert answer.content.endswith(DONE)
    ours = json.loads(answer.content[len(said + more) : -len(DONE)].removeprefix(b"data: "))["error"]
    assert ours == told("'temperature' is out of range", "temperature", INVALID)


async def test_the_sdk_raises_it(wrapper: Wrapper, sdk: openai.AsyncOpenAI) -> None:
    wrapper.engine.script = streaming(event({"type": "error", "code": None, "message": PROMPT}) + DONE)
    with pytest.raises(openai.APIError, match="the engine failed on this request"):
        async for _ in await sdk.chat.completions.create(model=MODEL, messages=HI, stream=True):
            pass


def metered(chunks: list[bytes], *, hide: bool = False, route: Route = Route.CHAT) -> bytes:
    meter = StreamMeter(Judge(route), hide=hide, error=lambda _: b"data: ours\n\n")
    return b"".join(map(meter.feed, chunks)) + meter.rest()


LONG = b"x" * 3_000_000
NO_ERRORS = {
    "a text": event({"choices": [{"finish_reason": "error", "delta": {"content": "error"}}]}),
    "a long event": token("x" * 1_400_000),
    "a piece with quotes": token('say "error": {"x"}, \\ and more'),
}
ERRORS = {
    "vLLM's": event(vllm(PROMPT)),
    "an older one": event({"object": "error", "message": PROMPT}),
    "of /v1/responses": b"event: error\n" + event({"type": "error", "message": PROMPT}),
    "a failed response": event({"type": "response.failed", "response": {"error": {"message": PROMPT}}}),
    "not JSON": b'data: {"error": {"message": ' + PROMPT.encode() + b"\n\n",
    "without an end": b'data: {"error": {"message": "' + PROMPT.encode(),
    "long": event(vllm(PROMPT + "x" * 5_000_000)),
    "long and without an end": b'data: {"error": {"message": "' + LONG + LONG + PROMPT.encode(),
}


SIZES = pytest.mark.parametrize("size", [1, 7, 65_536, 10**9])
HIDDEN = pytest.mark.parametrize("hide", [False, True])


def chunks(stream: bytes, size: int) -> list[bytes]:
    """Pieces of `size` bytes; larger ones where there would be too many."""
    size = max(size, len(stream) // 2_000)
    return [stream[i : i + size] for i in range(0, len(stream), size)]


@SIZES
@HIDDEN
@pytest.mark.parametrize("name", NO_ERRORS)
def test_what_is_no_error_passes_unchanged(name: str, hide: bool, size: int) -> None:
    stream = token("a") + NO_ERRORS[name]
    assert metered(chunks(stream, size), hide=hide) == stream


@SIZES
@HIDDEN
@pytest.mark.parametrize("name", ERRORS)
def test_what_is_an_error_is_replaced_whole(name: str, hide: bool, size: int) -> None:
    after = token("b") if ERRORS[name].endswith(b"\n\n") else b""
    got = metered(chunks(token("a") + ERRORS[name] + after, size), hide=hide)
    assert got == token("a") + b"data: ours\n\n" + after
