"""What Azure was seen to say. Plain data: `answers` judges it, `gather` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from infra.operations.arm_subscription import SoftDeleted

T = TypeVar("T")
Body = Mapping[str, Any]
"""A resource as a GET shows it."""


@dataclass(frozen=True)
class Unread:
    """Why something was not read, as a sentence."""

    why: str


class NotReadError(Exception):
    """Something that an answer needs was not read."""


@dataclass(frozen=True)
class Run:
    """A run command after a PUT of it: when its last run began, what that said, and the seconds there and back."""

    started: str
    output: str
    parameters: Mapping[str, str]
    took_s: float


@dataclass(frozen=True)
class Trial:
    """One command, put three times: new, as it was, with another parameter."""

    first: Run
    equal: Run
    changed: Run


@dataclass(frozen=True)
class Reply:
    """An answer through the gateway: its status, the headers that count (lower case), and the tokens of its `usage`."""

    status: int
    headers: Mapping[str, str]
    tokens: int


@dataclass(frozen=True)
class Evidence:
    """Everything that was read. `sent_bytes`: the largest script that the program sends to the first node."""

    sent_bytes: int | Unread
    bastion: Body | Unread
    gateway: Body | Unread
    backend_key: Body | Unread
    vm: Body | Unread
    image: Body | Unread
    commands: Mapping[str, Body] | Unread
    providers: Mapping[str, str] | Unread
    sizes: Mapping[str, Mapping[str, str]] | Unread
    locked: tuple[SoftDeleted, ...] | Unread
    trial: Trial | Unread
    replies: tuple[Reply, ...] | Unread
    drift: tuple[str, ...] | Unread


def known(read: T | Unread) -> T:
    """What was read.

    Raises:
        NotReadError: it was not, with the reason.
    """
    if isinstance(read, Unread):
        raise NotReadError(read.why)
    return read


def properties(body: Body) -> Body:
    """A resource's own properties."""
    found: Body = body.get("properties") or {}
    return found
