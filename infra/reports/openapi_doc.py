"""The gateway's OpenAPI document: the wrapper's routes and fields, described for developers. Pure.

The wrapper says what it offers (`huddle.wrapper.openapi`), data/operations.yaml how people read about it. The outcome
is gateway_policies/openapi.json, which is what API Management imports and the developer portal shows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from huddle import data_file
from huddle.errors import Fault, InputError
from huddle.wrapper import openapi
from plan.azure.gateway_model import WRAPPER_API_PATH

PATH = "gateway_policies/openapi.json"
_PREFIX = f"/{WRAPPER_API_PATH}"
_WORDS = Path(__file__).parent / "data" / "operations.yaml"


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Operation(_Data):
    id: str
    summary: str
    description: str
    tag: str
    answer: str
    example: dict[str, Any] | None = None


class _Words(_Data):
    title: str
    description: str
    tags: dict[str, str]
    operations: dict[str, _Operation]
    refusal: str


def document() -> dict[str, Any]:
    """The document (OpenAPI 3.0.3). Routes outside of the API's path, such as /health, stay inside.

    Raises:
        InputError: operations.yaml is wrong, or lacks a route of the wrapper.
    """
    offered, words = openapi.document(), data_file.load(_WORDS, _Words)
    paths = {
        path.removeprefix(_PREFIX): {
            method: _operation(operation, _words_of(path, words)) for method, operation in methods.items()
        }
        for path, methods in offered["paths"].items()
        if path.startswith(f"{_PREFIX}/")
    }
    json_error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "openapi": offered["openapi"],
        "info": {"title": words.title, "version": "1", "description": words.description},
        "tags": [{"name": name, "description": text} for name, text in words.tags.items()],
        "paths": paths,
        "components": {
            "responses": {"Error": {"description": words.refusal, "content": json_error}},
            "schemas": offered["components"]["schemas"],
        },
    }


def text() -> str:
    """The document as its file holds it."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def _operation(operation: dict[str, Any], words: _Operation) -> dict[str, Any]:
    """One operation. The gateway checks the key, so the wrapper's own security stays out; refusals are one response."""
    friendly: dict[str, Any] = {
        "operationId": words.id,
        "summary": words.summary,
        "description": words.description,
        "tags": [words.tag],
    }
    if body := operation.get("requestBody"):
        content = {**body["content"]["application/json"], "example": words.example}
        friendly["requestBody"] = {**body, "content": {"application/json": content}}
    answer = {**operation["responses"]["200"], "description": words.answer}
    return {**friendly, "responses": {"200": answer, "default": {"$ref": "#/components/responses/Error"}}}


def _words_of(path: str, words: _Words) -> _Operation:
    if path not in words.operations:
        raise InputError(Fault(str(_WORDS), f"operations.{path}", "is required: the wrapper has this route"))
    return words.operations[path]
