"""The addresses besides the first, for clients that put their key elsewhere (docs/decisions/0007). Pure.

An API of API Management takes keys from one header. `api-key` is another header, so it needs another API. A bearer
token is taken from no header at all by the API version that the SDK speaks: the API for it asks for no key and hands
each request to the first API, through the gateway's own address.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gateway_policies import openapi
from gateway_policies import render as policies
from gateway_policies.entities import AZURE_OPENAI_KEY_HEADER, Entity, KeyParameter
from plan.azure.gateway_model import GatewayPlan

_DEPLOYED = ("/chat/completions", "/completions", "/embeddings")
"""Paths that Azure OpenAI's clients put behind a deployment (openai-python, `lib/azure.py`)."""


@dataclass(frozen=True)
class ExtraApi:
    """One more API; `name` is the program's word, `id` the gateway's.

    `document` is its OpenAPI description; `operations` holds policies of operations by their ids.
    """

    name: str
    id: str
    path: str
    title: str
    key_header: str
    key_required: bool
    document: str
    policy: str
    operations: Mapping[str, str] = field(default_factory=dict)


def extra_apis(gateway: GatewayPlan) -> tuple[ExtraApi, ...]:
    """The extra APIs that a stack asks for."""
    wanted = []
    if gateway.azure_openai_api:
        wanted.append(_azure_openai(gateway))
    if gateway.bearer_api:
        wanted.append(_bearer(gateway))
    return tuple(wanted)


@dataclass(frozen=True)
class Rendered:
    """A policy as it is sent, and the scope that it goes to: `api/<id>`, `api/<id>/<operation>`, `product/<id>`."""

    scope: str
    text: str


def rendered(gateway: GatewayPlan) -> tuple[Rendered, ...]:
    """Every policy of a gateway."""
    found = [Rendered(f"api/{gateway.entity_id(Entity.API)}", policies.api_policy(gateway))]
    for extra in extra_apis(gateway):
        found.append(Rendered(f"api/{extra.id}", extra.policy))
        found += [Rendered(f"api/{extra.id}/{name}", text) for name, text in sorted(extra.operations.items())]
    found += [Rendered(f"product/{product.id}", policies.product_policy(product)) for product in gateway.products]
    return tuple(found)


def beside(gateway: GatewayPlan, path: str) -> str:
    """A path in the place of the `v1` at the end of the API's."""
    return gateway.api_path.removesuffix("v1") + path


def _azure_openai(gateway: GatewayPlan) -> ExtraApi:
    title = "OpenAI-compatible inference, for clients of Azure OpenAI"
    document = _described(title, AZURE_OPENAI_KEY_HEADER)
    paths = document["paths"]
    rewritten = {}
    for path in _DEPLOYED:
        item = paths.pop(path)
        for operation in item.values():
            operation["parameters"] = [
                {"name": "deployment", "in": "path", "required": True, "schema": {"type": "string"}}
            ]
            rewritten[operation["operationId"]] = policies.rewrite_policy(path)
        paths[f"/deployments/{{deployment}}{path}"] = item
    return ExtraApi(
        name=Entity.AZURE_OPENAI_API,
        id=gateway.entity_id(Entity.AZURE_OPENAI_API),
        path=beside(gateway, "openai"),
        title=title,
        key_header=AZURE_OPENAI_KEY_HEADER,
        key_required=True,
        document=_compact(document),
        policy=policies.api_policy(gateway, AZURE_OPENAI_KEY_HEADER),
        operations=MappingProxyType(rewritten),
    )


def _bearer(gateway: GatewayPlan) -> ExtraApi:
    title = "OpenAI-compatible inference, with bearer tokens"
    return ExtraApi(
        name=Entity.BEARER_API,
        id=gateway.entity_id(Entity.BEARER_API),
        path=beside(gateway, "bearer/v1"),
        title=title,
        key_header=KeyParameter.HEADER,
        key_required=False,
        document=_compact(_described(title, "Authorization, behind the word Bearer")),
        policy=policies.bearer_policy(f"https://{gateway.host}/{gateway.api_path}"),
    )


def _described(title: str, key_place: str) -> dict[str, Any]:
    document = openapi.document()
    description = f"The same models, products and limits; your product's key goes into the header {key_place}."
    document["info"] |= {"title": title, "description": description}
    return document


def _compact(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
