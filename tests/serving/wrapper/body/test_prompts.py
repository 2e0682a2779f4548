"""Where the system prompt goes: first, in every kind of request, whatever the client sends."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.prepare import Preparer, Served
from huddle.wrapper.body.prompts import ClientSystem, Prompt, compose, into_completion, into_messages, into_responses
from huddle.wrapper.errors import RequestError
from huddle.wrapper.routes import Route
from tests.serving.wrapper.pictures import TINY

PROMPT = Prompt("p", "ours")
USER = {"role": "user", "content": "hi"}


def system(content: Any, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": content}


def test_without_system_text_the_prompt_is_put_first() -> None:
    assert into_messages([USER], PROMPT) == [system("ours"), USER]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_leading_system_text_is_joined_behind_it(role: str) -> None:
    assert into_messages([system("theirs", role), USER], PROMPT) == [system("ours\n\ntheirs"), USER]
    twice = [system("a", role), system("b"), USER]
    assert into_messages(twice, PROMPT) == [system("ours\n\na\n\nb"), USER]


def test_text_parts_are_joined_and_nothing_else_is_allowed() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert into_messages([system(parts), USER], PROMPT) == [system("ours\n\na\nb"), USER]
    picture = [{"type": "image_url", "image_url": {"url": TINY}}]
    with pytest.raises(RequestError, match=r"messages\[0\].content"):
        into_messages([system(picture), USER], PROMPT)


def test_later_system_messages_stay_where_they_are() -> None:
    messages = [USER, system("later"), USER]
    assert into_messages(messages, PROMPT) == [system("ours"), *messages]


def test_empty_system_text_adds_nothing() -> None:
    assert into_messages([system(""), system(None), USER], PROMPT) == [system("ours"), USER]


def test_dropping_takes_out_every_system_message() -> None:
    prompt = Prompt("p", "ours", ClientSystem.DROP)
    assert into_messages([system("a"), USER, system("b", "developer")], prompt) == [system("ours"), USER]


def test_refusing_names_the_field() -> None:
    prompt = Prompt("p", "ours", ClientSystem.REFUSE)
    assert into_messages([USER], prompt) == [system("ours"), USER]
    for messages in ([system("a"), USER], [USER, system("b")]):
        with pytest.raises(RequestError) as refused:
            into_messages(messages, prompt)
        assert (refused.value.status, refused.value.param) == (400, "messages")


def test_multimodal_and_tool_messages_are_untouched() -> None:
    messages = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "what"}, {"type": "image_url", "image_url": {"url": TINY}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {}}]},
        {"role": "tool", "tool_call_id": "1", "content": "result"},
    ]
    assert into_messages(messages, PROMPT)[1:] == messages


def test_product_and_model_prompts_are_one_message() -> None:
    both = compose(Prompt("product", "first"), Prompt("model", "second", ClientSystem.DROP))
    assert both is not None
    assert (both.id, both.text, both.client_system) == ("product+model", "first\n\nsecond", ClientSystem.DROP)
    assert compose(None, PROMPT) is PROMPT
    assert compose(PROMPT, None) is PROMPT
    assert compose(None, None) is None


def test_completions_get_it_before_every_text() -> None:
    assert into_completion("theirs", PROMPT) == "ours\n\ntheirs"
    assert into_completion(["a", "b"], PROMPT) == ["ours\n\na", "ours\n\nb"]


@pytest.mark.parametrize("tokens", [[1, 2], [[1], [2]], ["a", 1], []])
def test_token_ids_are_refused_where_there_is_a_prompt(tokens: list[Any]) -> None:
    with pytest.raises(RequestError, match="'prompt' must be a text"):
        into_completion(tokens, PROMPT)


def test_the_prompt_of_responses_is_their_first_item() -> None:
    """Not their `instructions`: the engine repeats those."""

    def made(text: str) -> dict[str, Any]:
        return {"type": "message", **system(text)}

    hi = {"type": "message", **USER}
    assert into_responses(None, "hi", PROMPT) == [made("ours"), {**hi, "content": "hi"}]
    assert into_responses("theirs", "hi", PROMPT) == [made("ours\n\ntheirs"), {**hi, "content": "hi"}]
    items = [system("item", "developer"), USER, system("later")]
    assert into_responses("theirs", items, PROMPT) == [made("ours\n\ntheirs\n\nitem"), USER, system("later")]
    dropped = Prompt("p", "ours", ClientSystem.DROP)
    assert into_responses("theirs", items, dropped) == [made("ours"), USER]
    with pytest.raises(RequestError, match="more than system text"):
        into_responses(None, [system("only")], PROMPT)


CONTENT = st.one_of(
    st.none(), st.text(max_size=20), st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}))
)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool"])


@given(st.lists(st.fixed_dictionaries({"role": ROLES, "content": CONTENT}), min_size=1), st.sampled_from(ClientSystem))
def test_whatever_comes_the_first_message_begins_with_ours(messages: list[dict[str, Any]], mode: ClientSystem) -> None:
    prompt = Prompt("p", "ours", mode)
    try:
        result = into_messages(messages, prompt)
    except RequestError:
        assert mode is ClientSystem.REFUSE
        return
    assert result[0]["role"] == "system"
    assert result[0]["content"].startswith("ours")
    assert result[1:] == [m for m in messages if m in result[1:]][-len(result[1:]) :] or len(result) == 1
    if mode is ClientSystem.DROP:
        assert result[0]["content"] == "ours"
        assert all(message["role"] not in ("system", "developer") for message in result[1:])


def test_f17_texts_times_system_prompt_are_bounded_before_they_are_built() -> None:
    preparer = Preparer({"m": Served("m", "m", Prompt("p", "x" * 20_000))}, Caps(sequences=4_096))
    body = json.dumps({"model": "m", "prompt": ["a"] * 2_048}).encode()
    with pytest.raises(RequestError) as refused:
        preparer.prepare(Route.COMPLETIONS, body, "salt")
    assert (refused.value.status, refused.value.param) == (400, "prompt")
    most = Caps().prompt_copies_bytes // 20_000
    for count in (1, most):
        body = json.dumps({"model": "m", "prompt": ["a"] * count}).encode()
        assert preparer.prepare(Route.COMPLETIONS, body, "salt").body.count(b"xa") == 0
    huge = Preparer({"m": Served("m", "m", Prompt("p", "x" * 3_000_000))}, Caps())
    assert huge.prepare(Route.COMPLETIONS, b'{"model":"m","prompt":"a"}', "salt")
