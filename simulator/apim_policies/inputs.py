"""What a person gives the lab on its command line: read and judged before anything listens or is written."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from huddle.errors import Fault, InputError

_KEY = re.compile(r"[!-~]{8,256}")
"""What can stand in a header, and is long enough to be no slip."""
_MOST_PORT = 65_535


def subscription_keys(file: Path) -> dict[str, str]:
    """Keys by "PRODUCT/SUBSCRIPTION", of any stack; none when the file is not there.

    Raises:
        InputError: the file can't be read, or holds anything else.
    """
    if not file.exists():
        return {}
    try:
        known = json.loads(_text(file))
    except (ValueError, RecursionError):
        known = None
    if not isinstance(known, dict) or not all(isinstance(key, str) and _KEY.fullmatch(key) for key in known.values()):
        allowed = 'a JSON object such as {"chat/web": "KEY"}, as the lab writes it, or a new file'
        raise InputError(Fault(str(file), "", f"holds no subscription keys; allowed: {allowed}"))
    return known


def keep(keys: Mapping[str, str], file: Path) -> None:
    """Write keys to a file that only its owner may read, whole or not at all.

    Raises:
        InputError: it can't be written.
    """
    try:
        handle, made = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(keys, out, indent=2, sort_keys=True)
        Path(made).replace(file)
    except OSError as error:
        raise InputError(Fault(str(file), "", f"can't be written: {error.strerror}")) from None


def backend_key(file: Path) -> str:
    """The key that the wrapper lets in. It is not repeated in errors.

    Raises:
        InputError: the file can't be read, or holds no key.
    """
    key = _text(file).strip()
    if not _KEY.fullmatch(key):
        raise InputError(Fault(str(file), "", "holds no key; allowed: one of 8 to 256 printable ASCII characters"))
    return key


def wrapper_url(given: str) -> str:
    """The wrapper's address, without a slash at the end.

    Raises:
        InputError: it is no http address of a host.
    """
    url = given.rstrip("/")
    try:
        parts = urlsplit(url)
        right = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
        right = right and not (parts.path or parts.query or parts.fragment or parts.username)
    except ValueError:
        right = False
    if not right:
        raise InputError(Fault("--wrapper", "", f"{given!r} is not allowed; allowed: such as http://127.0.0.1:8000"))
    return url


def port(given: int) -> int:
    """The port to listen on; 0 takes any that is free.

    Raises:
        InputError: there is no such port.
    """
    if not 0 <= given <= _MOST_PORT:
        raise InputError(Fault("--port", "", f"{given} is not allowed; allowed: 0-{_MOST_PORT}"))
    return given


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(Fault(str(file), "", f"can't be read: {reason}")) from None
