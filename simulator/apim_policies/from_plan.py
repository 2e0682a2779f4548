"""A plan's gateway as the lab runs it: the same renderings, ids and rules that the program sends to Azure."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import replace

from gateway_policies import openapi
from gateway_policies import render as policies
from gateway_policies.entities import NODE_CANNOT_SERVE, BreakerRule, Entity, KeyParameter
from gateway_policies.extra_apis import ExtraApi, extra_apis
from plan.azure.gateway_model import GatewayPlan
from plan.azure.model import AzurePlan
from plan.model import SubscriptionPlan
from simulator.apim_policies.counters import Algorithm
from simulator.apim_policies.gateway_config import (
    Api,
    GatewayConfig,
    Operation,
    Product,
    Subscription,
    SubscriptionScope,
)
from simulator.apim_policies.pool import Backend, Breaker, Pool, PoolItem


def gateway_config_of(plan: AzurePlan, *, backend_key: str, keys: Mapping[str, str] | None = None) -> GatewayConfig:
    """The gateway of a plan.

    `keys` are subscription keys by `<product>/<subscription>`; those that are missing are made, as Azure does.
    """
    gateway, opened = plan.gateway, extra_apis(plan.gateway)
    keyed = {gateway.entity_id(Entity.API), *(extra.id for extra in opened if extra.key_required)}
    return GatewayConfig(
        apis=(_api(gateway), *(_extra_api(extra) for extra in opened)),
        products=tuple(
            Product(product.id, frozenset(keyed), policies.product_policy(product)) for product in gateway.products
        ),
        subscriptions=tuple(
            _subscription(subscription, keys or {})
            for product in gateway.products
            for subscription in product.subscriptions
        ),
        backends=tuple(Backend(backend.id, backend.url, _breaker(NODE_CANNOT_SERVE)) for backend in gateway.backends),
        pools=tuple(
            Pool(pool.id, tuple(PoolItem(member.id, member.priority, member.weight) for member in pool.members))
            for pool in gateway.pools
        ),
        named_values={gateway.entity_id(Entity.BACKEND_KEY): backend_key},
        algorithm=Algorithm.SLIDING_WINDOW if gateway.facts.classic else Algorithm.TOKEN_BUCKET,
    )


def _api(gateway: GatewayPlan) -> Api:
    return Api(
        id=gateway.entity_id(Entity.API),
        path=gateway.api_path,
        operations=operations(openapi.document()),
        policy=policies.api_policy(gateway),
        key_header=KeyParameter.HEADER.value,
        key_query=KeyParameter.QUERY.value,
    )


def _extra_api(extra: ExtraApi) -> Api:
    return Api(
        id=extra.id,
        path=extra.path,
        operations=tuple(
            replace(operation, policy=extra.operations.get(operation.id, ""))
            for operation in operations(json.loads(extra.document))
        ),
        policy=extra.policy,
        key_header=extra.key_header,
        key_query=KeyParameter.QUERY.value,
        subscription_required=extra.key_required,
    )


def operations(document: Mapping[str, Mapping[str, Mapping[str, Mapping[str, str]]]]) -> tuple[Operation, ...]:
    """The operations that an import of an OpenAPI document makes."""
    return tuple(
        Operation(operation["operationId"], method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )


def _subscription(plan: SubscriptionPlan, keys: Mapping[str, str]) -> Subscription:
    primary = keys.get(plan.path) or secrets.token_hex(16)
    return Subscription(plan.id, SubscriptionScope.PRODUCT, plan.product_id, (primary, secrets.token_hex(16)))


def _breaker(rule: BreakerRule) -> Breaker:
    return Breaker(rule.failures, rule.window_s, rule.statuses, rule.rest_s, accept_retry_after=True)
