"""Whether system prompts leave room for a conversation in the context of the models that they stand before."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from huddle import shapes
from huddle.errors import Fault, InputError
from huddle.registry import Registry
from huddle.registry.prompts import read_system_prompt
from plan.settings.service import ServiceSettings

CHARACTERS_PER_TOKEN = 4
"""English text, roughly (docs/facts/vllm-and-ray.md#words-and-tokens)."""


@dataclass(frozen=True)
class Prompt:
    """What stands before each conversation with a model: its own prompt, and a product's before it.

    `key` is the setting that it comes from, `context` what the model's requests may hold (tokens).
    """

    key: str
    model: str
    text: str
    context: int


def least_tokens(text: str) -> int:
    """A number of tokens that no shipped model's tokenizer stays below: the words between blanks and line ends.

    Their tokenizers never join two such words (docs/facts/vllm-and-ray.md#words-and-tokens).
    """
    return len(re.findall(r"[^ \n]+", text))


def likely_tokens(text: str) -> int:
    """A rough guess: four characters of English make a token, each other character one."""
    english = sum(character.isascii() for character in text)
    return max(least_tokens(text), english // CHARACTERS_PER_TOKEN + len(text) - english)


def checks(settings: ServiceSettings, registry: Registry, file: str) -> Iterator[Callable[[], object]]:
    """A step that raises InputError with a fault for each prompt that surely fills its model's context."""

    def refuse() -> None:
        faults = [
            Fault(
                file,
                prompt.key,
                f"makes {least_tokens(prompt.text)} tokens or more, and {prompt.model} takes {prompt.context}, "
                "conversation and answer included; shorten it",
            )
            for prompt in _prompts(settings, registry)
            if least_tokens(prompt.text) >= prompt.context
        ]
        if faults:
            raise InputError(*faults)

    yield refuse


def warnings(settings: ServiceSettings, registry: Registry) -> Iterator[str]:
    """A sentence for each prompt that probably takes more than half of its model's context, and is not refused."""
    for prompt in _prompts(settings, registry):
        likely = likely_tokens(prompt.text)
        if likely > prompt.context // 2 and least_tokens(prompt.text) < prompt.context:
            yield (
                f"{prompt.key} makes about {likely} tokens, and {prompt.model} takes {prompt.context}, "
                "conversation and answer included"
            )


def _prompts(settings: ServiceSettings, registry: Registry) -> Iterator[Prompt]:
    """The prompts of known models, and of products over the model that leaves least room. Rules refuse unknown ones.

    Raises:
        RegistryError: a prompt's file is missing. ShapeError: nothing says how long a model's context is.
    """
    known: dict[str, Prompt] = {}
    for served in registry.served:
        if served.name in settings.serving.models:
            text = settings.serving.models[served.name].system_prompt
            if text is None:
                shipped = read_system_prompt(registry, served)
                text = shipped.text if shipped else ""
            context = served.model.max_model_len or shapes.for_model(served.model).context
            known[served.name] = Prompt(f"serving.models.{served.name}.system_prompt", served.name, text, context)
    yield from known.values()
    for name, product in settings.gateway.products.items():
        behind = [known[model] for model in sorted(known) if model in (product.models or known)]
        if product.system_prompt and behind:
            least = min(behind, key=lambda own: own.context - likely_tokens(own.text))
            text = f"{product.system_prompt}\n{least.text}"
            yield Prompt(f"gateway.products.{name}.system_prompt", least.model, text, least.context)
