"""System prompts that fill a model's context: refused when it is certain, told when it is probable."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle import registry
from huddle.errors import InputError
from infra import program
from plan import prompt_room
from tests.unit.stack_values import FILE, MODEL, changed, settings, write

CONTEXT = 4096
MODELS = registry.load()
FULL = "word " * CONTEXT


def refused(**changes: Any) -> list[str]:
    (step,) = prompt_room.checks(settings(**changes), MODELS, FILE)
    with pytest.raises(InputError) as caught:
        step()
    return [f"{fault.key}: {fault.message}" for fault in caught.value.faults]


def product(prompt: str, **more: Any) -> dict[str, Any]:
    return {"gateway": {"products": {"trial": {"display_name": "T", "system_prompt": prompt, **more}}}}


def test_a_prompt_of_a_model_that_fills_its_context_is_refused() -> None:
    found = refused(serving={"models": {MODEL: {"system_prompt": FULL.strip()}, "hl": {}}})
    assert found == [
        f"serving.models.{MODEL}.system_prompt: makes 4096 tokens or more, and {MODEL} takes 4096, conversation and "
        "answer included; shorten it"
    ]


def test_a_prompt_of_a_product_is_refused_for_the_model_with_the_least_room() -> None:
    (found,) = refused(**product(FULL))
    assert found.startswith("gateway.products.trial.system_prompt: makes ")
    assert refused(**product(FULL, models=["hl"]))[0].endswith(
        "hl takes 4096, conversation and answer included; shorten it"
    )


def test_a_products_prompt_counts_with_the_models_own() -> None:
    half = "word " * (CONTEXT // 2)
    models = {MODEL: {"system_prompt": half}, "hl": {}}
    (found,) = refused(**product(half, models=[MODEL]), serving={"models": models})
    assert "makes 4096 tokens or more" in found


def test_a_prompt_just_below_is_not_refused_but_told(tmp_path: Any) -> None:
    models = {MODEL: {"system_prompt": "word " * (CONTEXT - 1)}, "hl": {}}
    root = write(tmp_path, changed(serving={"models": models}))
    told = program.warnings("dev", root)
    assert any(
        one.startswith(f"serving.models.{MODEL}.system_prompt makes about 5118 tokens, and {MODEL} takes 4096")
        for one in told
    )


def test_faults_of_rules_and_prompts_are_told_together(tmp_path: Any) -> None:
    models = {MODEL: {"system_prompt": FULL}, "hl": {}}
    root = write(tmp_path, changed(serving={"models": models}, nodes={"count": 3}))
    with pytest.raises(InputError) as caught:
        program.load_plan("dev", root)
    assert [fault.key for fault in caught.value.faults] == ["nodes.count", f"serving.models.{MODEL}.system_prompt"]


def test_shipped_prompts_are_short() -> None:
    for step in prompt_room.checks(settings(), MODELS, FILE):
        step()


@given(words=st.lists(st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=20), max_size=50))
def test_the_least_is_never_more_than_the_words(words: list[str]) -> None:
    """Whatever the text: no more tokens are certain than it has words, and the guess is no less."""
    text = " ".join(words)
    assert prompt_room.least_tokens(text) == len(words)
    assert prompt_room.likely_tokens(text) >= prompt_room.least_tokens(text)


def test_a_text_without_blanks_is_never_certain() -> None:
    assert prompt_room.least_tokens("\u304b" * 10_000) == 1
    assert prompt_room.likely_tokens("\u304b" * 10_000) == 10_000
