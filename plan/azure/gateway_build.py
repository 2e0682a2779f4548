"""From settings to API Management's part of the plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from plan.azure.gateway_model import (
    POOL,
    WRAPPER_API_PATH,
    BackendPlan,
    ExistingGatewayPlan,
    GatewayPlan,
    GatewayProduct,
    PoolPlan,
)
from plan.azure_facts import GATEWAY_TIERS
from plan.build_service import product_plan
from plan.model import NodePlan
from plan.placement import Placement
from plan.settings.azure import AzureSettings
from plan.settings.azure_gateway import PortalProduct
from plan.settings.gateway import PoolMember
from plan.vocabulary import Affinity

HOME, AWAY = 1, 2
"""Priorities of a product's own node and of the others, which take over when it is out."""


def gateway_plan(
    settings: AzureSettings, nodes: tuple[NodePlan, ...], placement: Placement, *, name: str, stack: str
) -> GatewayPlan:
    """The gateway of checked settings; `name` is what ours would be called."""
    gateway, prefix = settings.gateway, id_prefix(settings, stack)
    existing = _existing(gateway.existing.id) if gateway.existing else None
    serving = placement.serving
    backends = {node.number: _backend(settings, node, prefix) for node in nodes if node.number in serving}
    pools = _pools(settings, backends, placement, prefix)
    return GatewayPlan(
        name=existing.name if existing else name,
        facts=GATEWAY_TIERS[gateway.tier],
        units=gateway.units,
        inbound=gateway.inbound,
        public_access=gateway.public_access,
        publisher_name=gateway.publisher_name,
        publisher_email=gateway.publisher_email,
        api_path=gateway.api_path,
        products=tuple(
            _product(key, product, placement, pools[key].id, prefix)
            for key, product in sorted(gateway.products.items())
        ),
        backends=tuple(backends.values()),
        pools=tuple(sorted(set(pools.values()), key=lambda pool: pool.id)),
        prefix=prefix,
        keys_in_key_vault=gateway.keys_in_key_vault,
        private_address=str(gateway.private_address) if gateway.private_address else None,
        existing=existing,
        azure_openai_api=gateway.azure_openai_api,
        bearer_api=gateway.bearer_api,
        cors_origins=gateway.cors_origins,
    )


def id_prefix(settings: AzureSettings, stack: str) -> str:
    """What ids begin with (docs/decisions/0018): in somebody else's service, the stack's name or its own word."""
    existing = settings.gateway.existing
    word = (stack if existing.prefix is None else existing.prefix) if existing else ""
    return f"{word}-" if word else ""


def _pools(
    settings: AzureSettings, backends: Mapping[int, BackendPlan], placement: Placement, prefix: str
) -> dict[str, PoolPlan]:
    """Each product's pool: shared by all that go to the same nodes, or its own, with a home, for affinity."""
    found: dict[str, PoolPlan] = {}
    for place, (name, product) in enumerate(sorted(settings.gateway.products.items())):
        numbers = placement.nodes_of_product(product)
        members = tuple(backends[number] for number in sorted(numbers) if not backends[number].drained)
        if settings.gateway.affinity is Affinity.PRODUCT:
            home = members[place % len(members)]
            members = tuple(replace(member, priority=HOME if member is home else AWAY) for member in members)
            found[name] = _pool(f"{POOL}-for-{name}", members, prefix)
        else:
            found[name] = _pool(pool_name(numbers, placement.serving), members, prefix)
    return found


def _pool(name: str, members: tuple[BackendPlan, ...], prefix: str) -> PoolPlan:
    return PoolPlan(name, f"{prefix}{name}", members)


def pool_name(numbers: frozenset[int], serving: frozenset[int]) -> str:
    """The name of the pool over some of the serving nodes."""
    return POOL if numbers == serving else "-".join([POOL, *map(str, sorted(numbers))])


def _backend(settings: AzureSettings, node: NodePlan, prefix: str) -> BackendPlan:
    name = f"node-{node.number}"
    place = settings.gateway.pool.get(node.number, PoolMember())
    return BackendPlan(
        name=name,
        id=f"{prefix}{name}",
        url=f"http://{node.address}:{settings.serving.ports.wrapper}/{WRAPPER_API_PATH}",
        weight=place.weight,
        priority=place.priority,
        drained=node.number in settings.gateway.drain,
    )


def _product(name: str, product: PortalProduct, placement: Placement, pool: str, prefix: str) -> GatewayProduct:
    facts = vars(product_plan(name, product, placement, prefix))
    if prefix:  # one name of a product in a service (docs/facts/api-management.md#subscriptions-and-products)
        facts["display_name"] = f"{product.display_name} ({prefix.removesuffix('-')})"
    return GatewayProduct(
        **facts,
        name=name,
        approval_required=product.approval_required,
        published=product.published,
        terms=product.terms,
        visible_to_guests=product.visible_to_guests,
        pool=pool,
    )


def _existing(gateway_id: str) -> ExistingGatewayPlan:
    parts = gateway_id.split("/")
    return ExistingGatewayPlan(id=gateway_id, resource_group=parts[4], name=parts[8])
