"""The promise: whatever an engine repeats in its errors, no piece of a secret is in what we say."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from huddle.wrapper.access.auth import new_key
from huddle.wrapper.body.fields import SECTIONS
from huddle.wrapper.engine import errors as engine_errors
from huddle.wrapper.routes import Route
from tests.serving.wrapper.conftest import PROMPT, MakeWrapper
from tests.serving.wrapper.engine.vllm_errors import (
    ENGINE_STATUSES,
    HEADERS,
    HI,
    TOO_LONG,
    finding,
    pydantic,
    vllm,
)
from tests.serving.wrapper.fake_engine import (
    DONE,
    MODEL,
    Received,
    Reply,
    event,
    saying,
    streaming,
)
from tests.serving.wrapper.leaks import bytes_of, leaked

pytestmark = pytest.mark.anyio

KEY, DIGEST = new_key()
SECRET = st.text(
    st.sampled_from("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789 '\"\\{}()[],:\n\t<>&é`="), min_size=16, max_size=60
)
WRAPPINGS = [
    vllm,
    lambda text: vllm(text, 500),
    lambda text: pydantic(finding("value_error", ("body",), f"Value error, `tools` {text}", {"messages": [text]})),
    lambda text: pydantic(finding("missing", ("body", "messages", 0, text, "content"), text, text), param=text),
    lambda text: pydantic(finding("int_type", ("body", text, 12345678, 87654321), text, text)),
    lambda text: vllm(f"{TOO_LONG} {text} (parameter={text}, value={text})", param=f"body.tools.0.{text}"),
    lambda text: {"error": {"message": text, "type": text, "param": text, "code": text}},
    lambda text: {"error": text, "message": text, "detail": [{"loc": [text], "msg": text, "input": {"a": [text]}}]},
    lambda text: vllm(json.dumps(vllm(json.dumps({"a": text}))), param="messages"),
    lambda text: {"type": "error", "message": text, "response": {"error": {"message": text}}},
]
NO_ERROR_SHAPE = [lambda text: [text, {text: text}], lambda text: text]  # an event of a stream like this is no error


@settings(max_examples=400, deadline=None)
@given(
    secrets=st.lists(SECRET, min_size=1, max_size=3),
    wrap=st.sampled_from(WRAPPINGS + NO_ERROR_SHAPE),
    status=st.sampled_from([*ENGINE_STATUSES, 400, 400, 400]),
    html=st.booleans(),
    ascii_only=st.booleans(),
    cut=st.none() | st.integers(1, 400),
    filler=st.sampled_from([0, 0, 5_000]),
    route=st.sampled_from(sorted(SECTIONS)),
)
@example(["secret of 16 char"], WRAPPINGS[2], 400, False, True, None, 0, Route.CHAT)
def test_nothing_secret_of_an_error_is_in_what_we_say(
    secrets: list[str],
    wrap: Any,
    status: int,
    html: bool,
    ascii_only: bool,
    cut: int | None,
    filler: int,
    route: Route,
) -> None:
    text = " ".join(secrets) + "x" * filler
    said = f"<html>{text}</html>" if html else json.dumps(wrap(text), ensure_ascii=ascii_only)
    body = said.encode()[:cut]
    assert leaked(secrets, engine_errors.translate(status, body, route, secrets[0].encode()).body()) == []
    assert leaked(secrets, engine_errors.translate_event(b"data: " + body, route).event()) == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", SECTIONS)
async def test_no_route_shows_what_an_engine_repeats(make_wrapper: MakeWrapper, route: Route, stream: bool) -> None:
    """Through the whole wrapper: an engine that puts all that it got into every kind of error."""
    wrapper = await make_wrapper(products={"team": {"keys": [{"name": "a", "sha256": DIGEST}]}})

    async def script(request: Received, reply: Reply) -> None:
        said = WRAPPINGS[len(wrapper.engine.completions) % len(WRAPPINGS)](request.raw.decode())
        streams = stream and route is not Route.EMBEDDINGS
        await (streaming(event(said) + DONE) if streams else saying(said, 400, HEADERS))(request, reply)

    wrapper.engine.script = script
    fields = {Route.CHAT: {"messages": HI}, Route.COMPLETIONS: {"prompt": "hi"}}
    del wrapper.http.headers["x-backend-key"]
    for _ in WRAPPINGS:
        body = {"model": MODEL, **fields.get(route, {"input": "hi"}), "stream": stream}
        answer = await wrapper.http.post(route.value, json=body, headers={"authorization": f"Bearer {KEY}"})
        salt = wrapper.engine.completions[-1].json["cache_salt"]
        assert leaked([PROMPT, KEY, salt, f"127.0.0.1:{wrapper.engine.port}", "127.0.0.1:5005"], bytes_of(answer)) == []
        assert json.loads(answer.text.removeprefix("data: ").split("\n\n")[0])["error"]["message"]
    assert leaked([PROMPT, KEY], json.dumps(wrapper.log_lines()).encode()) == []
