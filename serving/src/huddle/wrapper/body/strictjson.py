"""JSON as two parsers cannot disagree about it: no repeated keys, no NaN, no lone surrogates, bounded nesting."""

import json
from typing import Any, Final

from huddle.wrapper.body.effort import MOST_NS, Signs
from huddle.wrapper.errors import RequestError, bad_request


class _RepeatedKeyError(ValueError):
    pass


def parse_object(body: Signs, max_depth: int) -> dict[str, Any]:
    """Parse a request body that must be one JSON object. Raises `RequestError` (400 or 413)."""
    if body.effort_ns > MOST_NS:
        raise RequestError(413, "body_too_complex", "the request body holds too many values; send fewer in one")
    if body.holds_endless_number:
        raise bad_request("invalid_json", "the request body holds a number that is too large")
    try:
        value = _DECODER.decode(body.json.decode())
    except _RepeatedKeyError as error:
        raise bad_request("invalid_json", str(error)) from None
    except UnicodeDecodeError:
        raise bad_request("invalid_json", "the request body is not UTF-8") from None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise bad_request("invalid_json", f"the request body is not valid JSON: {error.msg} at {at}") from None
    except RecursionError:
        raise _too_deep(max_depth) from None
    except ValueError as error:
        raise bad_request("invalid_json", f"the request body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad_request("invalid_json", "the request body must be a JSON object")
    # Nesting cannot be deeper than there are opening brackets, so most requests need no walk.
    if body.openings > max_depth and _depth_exceeds(value, max_depth):
        raise _too_deep(max_depth)
    return value


def holds_long_number(value: Any) -> bool:
    """Whether a value has a whole number of more than 64 bits, which the engine cannot carry."""
    pending = [value]
    while pending:
        held = pending.pop()
        if isinstance(held, dict | list):
            pending.extend(held.values() if isinstance(held, dict) else held)
        elif isinstance(held, int) and not -(2**63) <= held < 2**64:
            return True
    return False


def serialise(value: Any) -> bytes:
    """The bytes that the engine gets. Raises `RequestError` for what JSON or UTF-8 cannot say."""
    try:
        return _ENCODER.encode(value).encode()
    except UnicodeEncodeError:
        raise bad_request("invalid_json", "the request body holds half of a surrogate pair") from None
    except ValueError:
        raise bad_request("invalid_json", "the request body holds a number that is too large") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _RepeatedKeyError(f"the key {repeated[:64]!r} is given twice in one object")
    return made


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _depth_exceeds(value: Any, max_depth: int) -> bool:
    level = [value]
    for _ in range(max_depth):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _too_deep(max_depth: int) -> RequestError:
    return bad_request("body_too_deep", f"the request body is nested more than {max_depth} levels deep")


# Made once: json.loads() and json.dumps() would make new ones for every request.
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)
