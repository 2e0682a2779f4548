"""Shapes of values: what a field may hold, as data. A check gives the value that goes to the engine, or refuses.

A shape is written in engine_fields.yaml, or made by the functions here. Objects are rebuilt from the keys that belong
to them; other keys are left out. `null` is no shape's: a field that is null is not asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from huddle.wrapper.body.caps import Caps
from huddle.wrapper.errors import RequestError, bad_request

Bound: TypeAlias = int | float | str
"""A number, or the name of one of `Caps`."""
Check: TypeAlias = Callable[[Any, str, Caps], Any]
"""Takes a value, its place and the caps; returns what goes to the engine. Raises `RequestError` (400)."""

TOKEN_MAX: Final = 2**31 - 1
"""The engine keeps token ids in 32 bits."""
BIAS_MAX: Final = 100
"""OpenAI's bound of `logit_bias`; the engine would clamp to it."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds."""

    least: Bound
    most: Bound

    def bounds(self, caps: Caps) -> tuple[float, float]:
        """The least and the most that pass."""
        return _bound(self.least, caps), _bound(self.most, caps)

    def __call__(self, value: Any, where: str, caps: Caps) -> Any:
        """Check a value."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(where, "a whole number")
        return _between(value, where, self.bounds(caps))


@dataclass(frozen=True, slots=True)
class Real(Whole):
    """A number between two bounds."""

    def __call__(self, value: Any, where: str, caps: Caps) -> Any:
        """Check a value."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong(where, "a number")
        return _between(value, where, self.bounds(caps))


def flag(value: Any, where: str, _caps: Caps) -> Any:
    """`true` or `false`."""
    if not isinstance(value, bool):
        raise _wrong(where, "true or false")
    return value


def text(value: Any, where: str, caps: Caps) -> Any:
    """A short text: a name, an id, a word."""
    if not isinstance(value, str):
        raise _wrong(where, "a text")
    if len(value) > caps.string_bytes:
        raise _over(where, f"has {len(value)} characters", caps.string_bytes)
    return value


def word(value: Any, where: str, caps: Caps) -> Any:
    """A text that is more than blanks: the engine takes those away, and fails where nothing is left."""
    if not text(value, where, caps).strip():
        raise bad_request("invalid_value", f"'{where}' is empty or blank; it must hold a word", field_of(where))
    return value


def long_text(value: Any, where: str, _caps: Caps) -> Any:
    """A text that only the body's size bounds."""
    if not isinstance(value, str):
        raise _wrong(where, "a text")
    return value


@dataclass(frozen=True, slots=True)
class Word:
    """One of a few words."""

    words: tuple[str, ...]

    def __call__(self, value: Any, where: str, _caps: Caps) -> Any:
        """Check a value."""
        if value not in self.words:
            raise bad_request("invalid_value", f"'{where}' must be one of {', '.join(self.words)}", field_of(where))
        return value


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of at most so many things of one shape."""

    item: Check
    most: Bound

    def __call__(self, value: Any, where: str, caps: Caps) -> Any:
        """Check a value."""
        if not isinstance(value, list):
            raise _wrong(where, "a list")
        _count(len(value), where, _bound(self.most, caps))
        return [self.item(item, f"{where}[{i}]", caps) for i, item in enumerate(value)]


@dataclass(frozen=True, slots=True)
class Mapped:
    """An object of any names with at most so many values of one shape."""

    item: Check
    most: Bound
    numbered: bool = False  # the names are token ids

    def __call__(self, value: Any, where: str, caps: Caps) -> Any:
        """Check a value."""
        if not isinstance(value, dict):
            raise _wrong(where, "an object")
        _count(len(value), where, _bound(self.most, caps))
        for name in value:
            text(name, where, caps)
            if self.numbered and not (name.isascii() and name.isdigit() and len(name) < 11 and int(name) <= TOKEN_MAX):
                raise bad_request("invalid_value", f"the names in '{where}' must be token ids", field_of(where))
        return {name: self.item(item, where, caps) for name, item in value.items()}


@dataclass(frozen=True, slots=True)
class Record:
    """An object that is rebuilt from its own keys; `needed` ones must be there."""

    keys: Mapping[str, Check]
    needed: frozenset[str] = frozenset()

    def __call__(self, value: Any, where: str, caps: Caps) -> Any:
        """Check a value."""
        if not isinstance(value, dict):
            raise _wrong(where, "an object")
        made = {}
        for name, check in self.keys.items():
            held = value.get(name)
            if held is not None:
                made[name] = check(held, f"{where}.{name}", caps)
            elif name in self.needed:
                raise bad_request("missing_required_parameter", f"'{where}.{name}' is missing", field_of(where))
        return made


@dataclass(frozen=True, slots=True)
class Either:
    """One thing where it is of its JSON type, else the other."""

    type: type
    first: Check
    second: Check

    def __call__(self, value: Any, where: str, caps: Caps) -> Any:
        """Check a value."""
        return (self.first if isinstance(value, self.type) else self.second)(value, where, caps)


def texts(most: Bound) -> Check:
    """A text, or a list of texts."""
    return Either(str, text, Listed(text, most))


def mapping(value: Any, where: str, _caps: Caps) -> Any:
    """An object that somebody else judges."""
    if not isinstance(value, dict):
        raise _wrong(where, "an object")
    return value


token: Final = Whole(0, TOKEN_MAX)

_WORDS: Final[Mapping[str, Check]] = {"flag": flag, "text": text}
_MADE: Final[Mapping[str, Callable[[Any], Check]]] = {
    "integer": lambda bounds: Whole(*bounds),
    "number": lambda bounds: Real(*bounds),
    "texts": texts,
    "words": lambda most: Listed(word, most),
    "tokens": lambda most: Listed(token, most),
    "biases": lambda most: Mapped(Real(-BIAS_MAX, BIAS_MAX), most, numbered=True),
    "labels": lambda most: Mapped(text, most),
    "object": lambda keys: Record({name: read(spec) for name, spec in keys.items()}),
    "text_or": lambda spec: Either(str, text, read(spec)),
}


def read(spec: Any) -> Check:
    """A shape from its description in engine_fields.yaml. Raises `ValueError` for one that there is not."""
    if isinstance(spec, str) and spec in _WORDS:
        return _WORDS[spec]
    if isinstance(spec, dict) and len(spec) == 1:
        ((kind, details),) = spec.items()
        if kind in _MADE:
            made = _MADE[kind](details)
            for bound in (getattr(made, name, 0) for name in ("least", "most")):
                if isinstance(bound, str) and bound not in Caps.__dataclass_fields__:
                    raise ValueError(f"there is no cap {bound!r}")
            return made
    raise ValueError(f"there is no shape {spec!r}")


def _bound(bound: Bound, caps: Caps) -> float:
    return getattr(caps, bound) if isinstance(bound, str) else bound


def field_of(where: str) -> str:
    """The request's own field, which is what `param` names."""
    return where.partition("[")[0].partition(".")[0]


def _between(value: float, where: str, bounds: tuple[float, float]) -> float:
    least, most = bounds
    if value > most:
        raise _over(where, f"is {value}" if value < 10**18 else "is a huge number", most)
    if value < least:
        said = f"is {value}" if value > -(10**18) else "is far below zero"
        raise bad_request("invalid_value", f"'{where}' {said}; it must be at least {least}", field_of(where))
    return value


def _count(size: int, where: str, most: float) -> None:
    if size > most:
        raise _over(where, f"has {size} items", most)


def _over(where: str, what: str, most: float) -> RequestError:
    return bad_request("value_too_large", f"'{where}' {what}; at most {most} is allowed here", field_of(where))


def _wrong(where: str, wanted: str) -> RequestError:
    return bad_request("invalid_type", f"'{where}' must be {wanted}", field_of(where))
