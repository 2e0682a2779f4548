"""URLs of media that may be fetched: how they are compared, and what the engine is told of them."""

import re
from collections.abc import Iterable
from typing import Final

_PREFIX: Final = re.compile(r"https?://([a-z0-9.-]+)(:\d+)?/\S*")


def folded(url: str) -> str:
    """A URL with its scheme and host in lower case: they mean the same in any; the rest does not."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}{mark}{host.lower()}{slash}{path}"


def prefix(text: str) -> str:
    """A prefix of allowed URLs, folded. Raises `ValueError` for one that does not end its host."""
    made = folded(text)
    if not _PREFIX.fullmatch(made):
        raise ValueError(f"{text!r} is not a URL prefix with a whole host (https://host/...)")
    return made


def hosts(prefixes: Iterable[str]) -> tuple[str, ...]:
    """The hosts of prefixes, each once, in their order."""
    return tuple(dict.fromkeys(found[1] for one in prefixes if (found := _PREFIX.fullmatch(prefix(one)))))
