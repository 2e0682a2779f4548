"""The operations of a resource's life."""

from __future__ import annotations

from enum import UNIQUE, StrEnum, verify


@verify(UNIQUE)
class Operation(StrEnum):
    """What the engine asks of a resource, and what a fault can strike."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
