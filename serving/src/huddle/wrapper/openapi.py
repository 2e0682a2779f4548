"""The OpenAPI document of exactly what the wrapper offers: from the same route and field tables that it judges by."""

from typing import Any, Final

from huddle import __version__
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.content import ROLES
from huddle.wrapper.body.fields import SECTIONS, Action, field_policies
from huddle.wrapper.body.shapes import Whole
from huddle.wrapper.routes import ENGINE_ROUTES, OPEN_ROUTES, Route

_TEXTS: Final = {"oneOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {}}]}
_COUNT: Final = {"type": "integer", "minimum": 1}
_HANDLED: Final[dict[str, dict[str, Any]]] = {
    "model": {"type": "string"},
    "messages": {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["role"],
            "properties": {"role": {"type": "string", "enum": sorted(ROLES)}, "content": {}},
        },
    },
    "prompt": _TEXTS,
    "input": _TEXTS,
    "instructions": {"type": "string"},
    "max_tokens": _COUNT,
    "max_completion_tokens": _COUNT,
    "max_output_tokens": _COUNT,
    "n": _COUNT,
    "stream": {"type": "boolean"},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "tools": {"type": "array", "items": {"type": "object"}},
    "chat_template_kwargs": {"type": "object", "additionalProperties": {"type": "boolean"}},
}
_SERVERS_OWN: Final = frozenset({"cache_salt", "store"})
_REQUIRED: Final = {
    Route.CHAT: ["messages"],
    Route.COMPLETIONS: ["prompt"],
    Route.EMBEDDINGS: ["input"],
    Route.RESPONSES: ["input"],
}
_SUMMARY: Final = {
    Route.MODELS: "List the models that the caller may use",
    Route.CHAT: "Answer a conversation",
    Route.COMPLETIONS: "Continue a text",
    Route.EMBEDDINGS: "Embed texts",
    Route.RESPONSES: "Answer a conversation (Responses API)",
    Route.HEALTH: "Is the wrapper alive",
    Route.READY: "Is the engine ready",
}
_OPERATION: Final = {
    Route.MODELS: "listModels",
    Route.CHAT: "createChatCompletion",
    Route.COMPLETIONS: "createCompletion",
    Route.EMBEDDINGS: "createEmbedding",
    Route.RESPONSES: "createResponse",
    Route.HEALTH: "getHealth",
    Route.READY: "getReady",
}
_REFUSALS: Final = {
    "400": "The request is wrong; `param` names the field",
    "401": "No valid key",
    "403": "The product is not configured, or does not offer this route",
    "404": "No such model, or it does not offer this route",
    "413": "The body is too large",
    "415": "The body is not JSON",
    "429": "Over a limit; see Retry-After",
    "500": "The engine or the wrapper failed",
    "502": "The engine's answer was broken",
    "503": "The engine is not reachable",
    "504": "The engine took too long",
}


def document() -> dict[str, Any]:
    """The document (OpenAPI 3.0.3). Deterministic."""
    return {
        "openapi": "3.0.3",
        "info": {"title": "Huddle inference", "version": __version__},
        "paths": {route.value: _path(route) for route in Route},
        "components": {
            "schemas": {"Error": _error(), **{SECTIONS[route]: _body(route) for route in SECTIONS}},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _path(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _OPERATION[route],
        "summary": _SUMMARY[route],
        "security": [] if route in OPEN_ROUTES else [{"bearer": []}],
    }
    json_of = {"application/json": {"schema": {"type": "object"}}}
    responses: dict[str, Any] = {"200": {"description": "The answer", "content": json_of}}
    if route not in ENGINE_ROUTES:
        if route is Route.READY:
            responses["503"] = {"description": "Not ready; `reason` says why", "content": json_of}
        elif route is Route.MODELS:
            responses["401"] = _refusal("401")
        return {"get": operation | {"responses": responses}}
    if route is not Route.EMBEDDINGS:
        responses["200"]["content"] = json_of | {"text/event-stream": {"schema": {"type": "string"}}}
    responses |= {status: _refusal(status) for status in _REFUSALS}
    reference = {"schema": {"$ref": f"#/components/schemas/{SECTIONS[route]}"}}
    body = {"required": True, "content": {"application/json": reference}}
    return {"post": operation | {"requestBody": body, "responses": responses}}


def _body(route: Route) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, judged in field_policies(route).items():
        if judged.action in (Action.STRIP, Action.REFUSE) or name in _SERVERS_OWN:
            continue
        properties[name] = dict(_HANDLED.get(name, {}))
        if isinstance(judged.check, Whole):
            properties[name]["minimum"], properties[name]["maximum"] = judged.check.bounds(Caps())
    return {"type": "object", "required": ["model", *_REQUIRED[route]], "properties": properties}


def _refusal(status: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"description": _REFUSALS[status], "content": content}


def _error() -> dict[str, Any]:
    text = {"type": "string"}
    properties = {"message": text, "type": text, "param": text | {"nullable": True}, "code": text | {"nullable": True}}
    return {"type": "object", "properties": {"error": {"type": "object", "properties": properties}}}
