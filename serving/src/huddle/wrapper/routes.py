"""The routes that exist. The engine's others answer 404 (docs/facts/vllm-and-ray.md#open-routes)."""

from enum import UNIQUE, StrEnum, verify
from typing import Final

from huddle.wrapper.errors import ErrorType, RequestError


@verify(UNIQUE)
class Route(StrEnum):
    """Paths, exactly as they must be written (a query is ignored, nothing is decoded or normalised)."""

    MODELS = "/v1/models"
    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    EMBEDDINGS = "/v1/embeddings"
    RESPONSES = "/v1/responses"
    HEALTH = "/health"
    READY = "/ready"


ENGINE_ROUTES: Final = frozenset({Route.CHAT, Route.COMPLETIONS, Route.EMBEDDINGS, Route.RESPONSES})
OPEN_ROUTES: Final = frozenset({Route.HEALTH, Route.READY})
"""Answered without a key: they say nothing but up or down."""
_METHODS: Final = {route: ("POST",) if route in ENGINE_ROUTES else ("GET", "HEAD") for route in Route}
_BY_PATH: Final = {route.value: route for route in Route}


def resolve(method: str, path: str) -> Route:
    """The route of a request. Raises `RequestError` (404 or 405)."""
    route = _BY_PATH.get(path)
    if route is None:
        raise not_found()
    if method not in _METHODS[route]:
        allowed = ", ".join(_METHODS[route])
        raise RequestError(405, "method_not_allowed", f"{route.value} answers {allowed} only", allow=allowed)
    return route


def not_found() -> RequestError:
    """The refusal of every path that is not offered; it says nothing about the path."""
    return RequestError(404, "not_found", "there is no such route", type=ErrorType.NOT_FOUND)
