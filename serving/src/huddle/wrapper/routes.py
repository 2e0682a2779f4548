"""The routes that exist. The engine's others answer 404 (docs/facts/vllm-and-ray.md#open-routes)."""

from collections.abc import Collection, Set
from enum import UNIQUE, StrEnum, verify
from typing import Final, Literal

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


@verify(UNIQUE)
class EngineRoute(StrEnum):
    """The engine's routes, in the words of configurations and stack files. Each has its route's name."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    EMBEDDINGS = "embeddings"


def offered(words: Collection[EngineRoute] | None) -> frozenset[Route]:
    """The routes behind a configuration's words; all of the engine's where it has none."""
    return frozenset(Route[word.name] for word in (EngineRoute if words is None else words))


ENGINE_ROUTES: Final = offered(None)
OPEN_ROUTES: Final = frozenset({Route.HEALTH, Route.READY})
"""Answered without a key: they say nothing but up or down."""
_METHODS: Final = {route: ("POST",) if route in ENGINE_ROUTES else ("GET", "HEAD") for route in Route}
_BY_PATH: Final = {route.value: route for route in Route}
_NOT_OFFERED: Final = {"product": (403, ErrorType.PERMISSION), "model": (404, ErrorType.NOT_FOUND)}


def resolve(method: str, path: str) -> Route:
    """The route of a request. Raises `RequestError` (404 or 405)."""
    route = _BY_PATH.get(path)
    if route is None:
        raise not_found()
    if method not in _METHODS[route]:
        allowed = ", ".join(_METHODS[route])
        raise RequestError(405, "method_not_allowed", f"{route.value} answers {allowed} only", allow=allowed)
    return route


def check_offered(route: Route, whose: Literal["product", "model"], allowed: Set[Route]) -> None:
    """Raises `RequestError` (403 for a product, 404 for a model) for a route that is switched off."""
    if route not in allowed:
        status, kind = _NOT_OFFERED[whose]
        paths = ", ".join(each.value for each in Route if each in allowed)
        raise RequestError(
            status, "route_not_offered", f"this {whose} does not offer {route.value}; allowed: {paths}", type=kind
        )


def not_found() -> RequestError:
    """The refusal of every path that is not offered; it says nothing about the path."""
    return RequestError(404, "not_found", "there is no such route", type=ErrorType.NOT_FOUND)
