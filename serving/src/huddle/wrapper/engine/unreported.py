"""Tokens of streams that broke off before the engine said their usage: estimated by what it said of others. Pure.

The wrapper knows two measures of each stream: its own estimate of the input, made from bytes, and the pieces of the
answer that went by. What the engine says of whole answers teaches how many of its tokens one of each is, model by model
(docs/facts/vllm-and-ray.md#what-the-engine-counts).
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from huddle.wrapper.engine.usage import Usage

_MEMORY: Final = 1_000_000  # what was measured beyond this counts half: prompts and engines change


@dataclass(slots=True)  # one for each request: to freeze it would cost 1 µs
class Measured:
    """What the wrapper itself knows of a request: its estimate of the input in tokens, and pieces of the answer."""

    input_tokens: int
    pieces: int


@dataclass(slots=True)
class _Scale:
    """How many of the engine's tokens one of a measure is; one, until an answer has told."""

    counted: float = 0.0
    measured: float = 0.0

    def learn(self, counted: int, measured: int) -> None:
        if not measured:
            return
        if self.measured > _MEMORY:
            self.counted, self.measured = self.counted / 2, self.measured / 2
        self.counted += counted
        self.measured += measured

    def tokens(self, measured: int) -> int:
        return round(measured * self.counted / self.measured) if self.measured else measured


@dataclass(slots=True)
class _Model:
    prompt: _Scale = field(default_factory=_Scale)
    completion: _Scale = field(default_factory=_Scale)


class Unreported:
    """Learns from whole answers, and judges those that broke off."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = defaultdict(_Model)

    def learn(self, model: str, measured: Measured, told: Usage) -> None:
        """The engine has said what a request used."""
        scales = self._models[model]
        scales.prompt.learn(told.prompt_tokens, measured.input_tokens)
        scales.completion.learn(told.completion_tokens, measured.pieces)

    def usage(self, model: str, measured: Measured) -> Usage:
        """What a stream has used as far as it came. What the engine made and did not send is not in it."""
        scales = self._models[model]
        return Usage(
            scales.prompt.tokens(measured.input_tokens), scales.completion.tokens(measured.pieces), estimated=True
        )
