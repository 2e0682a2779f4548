"""What test_helper_process.py has done in the process beside."""

import os
import signal
import time
from typing import Any

from huddle.wrapper.errors import bad_request


def reverse(word: str, body: bytes) -> tuple[Any, bytes]:
    return (os.getpid(), word), body[::-1]


def refuse(body: bytes) -> tuple[Any, bytes]:
    raise bad_request("invalid_value", f"'a' is {len(body)}", "a")


def fail(body: bytes) -> tuple[Any, bytes]:
    raise KeyError(body)


def doze(seconds: float, _body: bytes) -> tuple[Any, bytes]:
    print("this is in no answer")  # noqa: T201 - what some library may do
    time.sleep(seconds)
    return time.monotonic(), b""


def die(_body: bytes) -> tuple[Any, bytes]:
    os.kill(os.getpid(), signal.SIGKILL)
    return None, b""
