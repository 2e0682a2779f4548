"""Serving runtime: what runs on a GPU node and what talks to it. Never imports infra, components or Pulumi."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from huddle.client.api import Client as Client

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`huddle.Client`, imported when it is first asked for: the node's commands do not need the `openai` SDK."""
    if name == "Client":
        from huddle.client.api import Client  # noqa: PLC0415

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
