"""The gateway's part of the plan: products, subscriptions, nodes behind it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from plan.azure_facts import GATEWAY_TIERS, TierFacts
from plan.settings.azure import Settings
from plan.settings.gateway import PoolMember, Product
from plan.vocabulary import Affinity, GatewayInbound, PublicAccess, QuotaPeriod, Topology

if TYPE_CHECKING:
    from plan.build_azure import NodePlan

WRAPPER_API_PATH = "v1"
"""Where a node's wrapper offers the API."""
DOMAIN = "azure-api.net"
"""Where every gateway has a name, besides any custom ones."""
POOL = "nodes"
"""The gateway's backend pool over all nodes; one over some of them has their numbers behind."""


HOME, AWAY = 1, 2
"""Priorities of a product's own node and of the others, which take over when it is out."""


@dataclass(frozen=True)
class SubscriptionPlan:
    """An application's keys to a product; `owner` is the person or team behind it."""

    product: str
    name: str
    owner: str | None = None

    @property
    def id(self) -> str:
        """Azure's id of it."""
        return subscription_id(self.product, self.name)

    @property
    def display_name(self) -> str:
        """What portal and reports call it."""
        return display_name(self.name, self.owner)

    @property
    def path(self) -> str:
        """What outputs and commands call it."""
        return f"{self.product}/{self.name}"


def subscription_id(product: str, subscription: str) -> str:
    """The id of an application's subscription. Neither part can hold an underscore, so no two pairs share an id."""
    return f"{product}_{subscription}"


def display_name(name: str, owner: str | None) -> str:
    """What a subscription is called in portal and reports."""
    return f"{name} ({owner})" if owner else name


@dataclass(frozen=True)
class QuotaPlan:
    """Tokens that a subscription may use in each period."""

    tokens: int
    period: QuotaPeriod


@dataclass(frozen=True)
class ProductPlan:
    """One product of the gateway; `models` is never empty, `pool` names the nodes that serve them."""

    id: str
    display_name: str
    description: str
    models: tuple[str, ...]
    system_prompt: str | None
    requests_per_minute: int
    tokens_per_minute: int
    approval_required: bool
    published: bool
    subscriptions: tuple[SubscriptionPlan, ...]
    terms: str = ""
    token_quota: QuotaPlan | None = None
    visible_to_guests: bool = False
    pool: str = POOL


@dataclass(frozen=True)
class BackendPlan:
    """One node behind the gateway; a drained one stays known and gets no requests."""

    id: str
    url: str
    weight: int = 1
    priority: int = 1
    drained: bool = False


@dataclass(frozen=True)
class PoolPlan:
    """Nodes that serve the same models, over which the gateway balances; drained ones are not among the members."""

    id: str
    members: tuple[BackendPlan, ...]


@dataclass(frozen=True)
class PolicyFragmentPlan:
    """An operator's own policy elements for a section, and the file that they came from."""

    section: str
    file: str
    text: str


@dataclass(frozen=True)
class ExistingGatewayPlan:
    """A service that is there already, by its ARM id's parts."""

    id: str
    resource_group: str
    name: str


@dataclass(frozen=True)
class GatewayPlan:
    """API Management; `name` is ours, or that of the service that is there already."""

    name: str
    facts: TierFacts
    units: int
    inbound: GatewayInbound
    public_access: PublicAccess
    publisher_name: str
    publisher_email: str
    api_path: str
    products: tuple[ProductPlan, ...]
    backends: tuple[BackendPlan, ...]
    pools: tuple[PoolPlan, ...]
    keys_in_key_vault: bool = False
    existing: ExistingGatewayPlan | None = None
    azure_openai_api: bool = False
    bearer_api: bool = False
    cors_origins: tuple[str, ...] = ()
    policy_fragments: tuple[PolicyFragmentPlan, ...] = ()
    """Filled by `gateway_policies.load_fragments`, which reads and judges the files."""

    @property
    def host(self) -> str:
        """Its own host name."""
        return f"{self.name}.{DOMAIN}"

    @property
    def delegation(self) -> str | None:
        """The delegation that its subnet needs."""
        return self.facts.delegation[self.inbound]

    @property
    def injected(self) -> bool:
        """Whether the gateway itself sits inside the VNet."""
        return self.inbound in self.facts.injected

    @property
    def virtual_network_type(self) -> str:
        """ARM's word: v2 integration is `External`, too (docs/facts/api-management.md#v2-tiers-in-a-vnet)."""
        return "Internal" if self.inbound is GatewayInbound.INTERNAL else "External"


def gateway_plan(settings: Settings, nodes: tuple[NodePlan, ...], name: str) -> GatewayPlan:
    """The gateway of checked settings; `name` is what ours would be called."""
    gateway = settings.gateway
    existing = _existing(gateway.existing.id) if gateway.existing else None
    serving = frozenset().union(*(nodes_of(settings, name) for name in settings.serving.models))
    backends = {node.number: _backend(settings, node) for node in nodes if node.number in serving}
    pools = _pools(settings, backends, serving)
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
            _product(id_, product, settings, pools[id_].id) for id_, product in sorted(gateway.products.items())
        ),
        backends=tuple(backends.values()),
        pools=tuple(sorted(set(pools.values()), key=lambda pool: pool.id)),
        keys_in_key_vault=gateway.keys_in_key_vault,
        existing=existing,
        azure_openai_api=gateway.azure_openai_api,
        bearer_api=gateway.bearer_api,
        cors_origins=gateway.cors_origins,
    )


def _pools(settings: Settings, backends: Mapping[int, BackendPlan], serving: frozenset[int]) -> dict[str, PoolPlan]:
    """Each product's pool: shared by all that go to the same nodes, or its own, with a home, for affinity."""
    found: dict[str, PoolPlan] = {}
    for place, (name, product) in enumerate(sorted(settings.gateway.products.items())):
        numbers = nodes_of_product(settings, product)
        members = tuple(backends[number] for number in sorted(numbers) if not backends[number].drained)
        if settings.gateway.affinity is Affinity.PRODUCT:
            home = members[place % len(members)]
            members = tuple(replace(member, priority=HOME if member is home else AWAY) for member in members)
            found[name] = PoolPlan(f"{POOL}-for-{name}", members)
        else:
            found[name] = PoolPlan(pool_id(numbers, serving), members)
    return found


def nodes_of(settings: Settings, model: str) -> frozenset[int]:
    """The nodes that answer for a served model; a model across all nodes answers on its head only."""
    if settings.serving.topology is Topology.DISTRIBUTED:
        return frozenset({1})
    placed = settings.serving.models[model].nodes
    return frozenset(placed if placed is not None else range(1, settings.nodes.count + 1))


def models_of(settings: Settings, product: Product) -> tuple[str, ...]:
    """The served models that a product may call."""
    return tuple(sorted(product.models or settings.serving.models))


def nodes_of_product(settings: Settings, product: Product) -> frozenset[int]:
    """The nodes that answer for a product; `gateway_rules` sees to it that all of its models are on all of them."""
    return nodes_of(settings, models_of(settings, product)[0])


def pool_id(numbers: frozenset[int], serving: frozenset[int]) -> str:
    """The id of the pool over some of the serving nodes."""
    return POOL if numbers == serving else "-".join([POOL, *map(str, sorted(numbers))])


def _backend(settings: Settings, node: NodePlan) -> BackendPlan:
    place = settings.gateway.pool.get(node.number, PoolMember())
    return BackendPlan(
        id=f"node-{node.number}",
        url=f"http://{node.address}:{settings.serving.ports.wrapper}/{WRAPPER_API_PATH}",
        weight=place.weight,
        priority=place.priority,
        drained=node.number in settings.gateway.drain,
    )


def _product(name: str, product: Product, settings: Settings, pool: str) -> ProductPlan:
    quota = product.token_quota
    return ProductPlan(
        id=name,
        display_name=product.display_name,
        description=product.description,
        models=models_of(settings, product),
        system_prompt=product.system_prompt,
        requests_per_minute=product.requests_per_minute,
        tokens_per_minute=product.tokens_per_minute,
        approval_required=product.approval_required,
        published=product.published,
        subscriptions=tuple(
            SubscriptionPlan(name, subscription.name, subscription.owner)
            for subscription in sorted(product.subscriptions, key=lambda each: each.name)
        ),
        terms=product.terms,
        token_quota=QuotaPlan(quota.tokens, quota.period) if quota else None,
        visible_to_guests=product.visible_to_guests,
        pool=pool,
    )


def _existing(gateway_id: str) -> ExistingGatewayPlan:
    parts = gateway_id.split("/")
    return ExistingGatewayPlan(id=gateway_id, resource_group=parts[4], name=parts[8])
