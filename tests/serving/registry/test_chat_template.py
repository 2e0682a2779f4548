"""Our chat template for Llama 3.x: the text that the engine is given, as transformers renders templates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from huddle import registry
from huddle.registry.prompts import find_chat_template

BOS = "<|begin_of_text|>"
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def said(role: str, text: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>"


ASKED = "<|start_header_id|>assistant<|end_header_id|>\n\n"


def rendered(messages: list[dict[str, Any]], *, prompt: bool = True, **values: Any) -> str:
    """As `apply_chat_template` does it: a sandbox in which nothing can be changed, trimmed blocks, plain JSON."""
    known = registry.load()
    path = find_chat_template(known, known.models["llama-3.2-3b"])
    assert path is not None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(path.read_text(encoding="utf-8"))
    return template.render(messages=messages, bos_token=BOS, add_generation_prompt=prompt, **values)


def test_a_question_without_a_system_prompt() -> None:
    assert rendered([{"role": "user", "content": " Hello \n"}]) == BOS + said("user", "Hello") + ASKED


@pytest.mark.parametrize("role", ["system", "developer"])
def test_several_turns_behind_a_system_prompt(role: str) -> None:
    messages = [
        {"role": role, "content": "Be kind."},
        {"role": "user", "content": "1 < 2 & 'so on'?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Why?"},
    ]
    turns = said("user", "1 < 2 & 'so on'?") + said("assistant", "Yes.") + said("system", "Be short.")
    assert rendered(messages) == BOS + said("system", "Be kind.") + turns + said("user", "Why?") + ASKED


def test_without_a_generation_prompt_it_ends_with_the_last_message() -> None:
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": None}]
    assert rendered(messages, prompt=False) == BOS + said("user", "Hello") + said("assistant", "")
    assert rendered([], prompt=False) == BOS


def test_tools_are_told_behind_the_system_prompt() -> None:
    system, question = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Rain in Zürich?"}
    text = rendered([system, question], tools=[WEATHER])
    first, rest = text.removeprefix(BOS).split("<|eot_id|>", 1)
    assert first.startswith("<|start_header_id|>system<|end_header_id|>\n\nBe kind.\n\nYou can call these functions:\n")
    assert f"\n{json.dumps(WEATHER['function'])}\n" in first
    assert '{"name": its name, "parameters": its arguments}' in first
    assert rest == said("user", "Rain in Zürich?") + ASKED
    assert rendered([question], tools=[WEATHER]).startswith(f"{BOS}<|start_header_id|>system<|end_header_id|>\n\nYou")


@pytest.mark.parametrize("arguments", [{"city": "Zürich"}, '{"city": "Zürich"}'])
def test_calls_and_what_came_back(arguments: object) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "1", "content": "dry"},
    ]
    one = '{"name": "weather", "parameters": {"city": "Zürich"}}'
    expected = said("user", "Rain?") + said("assistant", f"{one}; {one}") + said("ipython", "dry")
    assert rendered(messages) == BOS + expected + ASKED
