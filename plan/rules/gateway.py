"""Rules of a stack file about the gateway: tier and network, products, nodes behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from plan.azure_facts import GATEWAY_TIERS
from plan.build_gateway import display_name, models_of, nodes_of
from plan.settings.azure import Settings
from plan.settings.gateway import Product
from plan.vocabulary import Affinity, GatewayInbound, GatewayTier, PublicAccess

CLASSIC_TIERS = frozenset({GatewayTier.DEVELOPER, GatewayTier.PREMIUM})
BUILT_IN_PRODUCTS = frozenset({"starter", "unlimited"})
"""Sample products of a new classic service (Microsoft's tutorial on products): ours would collide at creation."""
POOL_LIMIT = 30
"""Backends in one pool (Microsoft's page "Backends in API Management", Limitations)."""
SUBSCRIPTION_NAME_LENGTH = 100
"""Characters of a subscription's display name (SDK, `SubscriptionCreateParameters`): its name, and its owner behind."""
Findings = Iterator[tuple[str, str]]


def _tier(settings: Settings, _: Mapping[str, str]) -> Findings:
    gateway, facts = settings.gateway, GATEWAY_TIERS[settings.gateway.tier]
    if gateway.inbound not in facts.inbound:
        yield (
            "gateway.inbound",
            f"'{gateway.inbound}' is not offered by tier {gateway.tier}; allowed: {', '.join(facts.inbound)}",
        )
    if gateway.existing is None and settings.network.gateway_subnet.prefixlen > facts.min_prefix:
        yield (
            "network.gateway_subnet",
            f"{settings.network.gateway_subnet} is too small for gateway tier {gateway.tier}; "
            f"allowed: /{facts.min_prefix} or larger",
        )
    if gateway.units > facts.max_units:
        yield "gateway.units", f"{gateway.units} is too many for tier {gateway.tier}; allowed: 1-{facts.max_units}"
    if gateway.public_access is PublicAccess.DISABLED and gateway.inbound is not GatewayInbound.PRIVATE_ENDPOINT:
        yield "gateway.public_access", "'disabled' needs `gateway.inbound: private-endpoint`, or nobody could reach it"


def _existing(settings: Settings, _: Mapping[str, str]) -> Findings:
    """A service of somebody else's is used as it is, so nothing here may promise to change it."""
    existing = settings.gateway.existing
    if existing is None:
        return
    own = (("inbound", GatewayInbound.PUBLIC), ("public_access", PublicAccess.ENABLED))
    for key, default in own:
        value = getattr(settings.gateway, key)
        if value is not default:
            yield f"gateway.{key}", f"'{value}' is the business of whoever keeps gateway.existing; remove it"
    for key in ("nodes_subnet", "endpoints_subnet"):
        subnet = getattr(settings.network, key)
        if subnet.overlaps(existing.subnet):
            yield (
                "gateway.existing.subnet",
                f"{existing.subnet} overlaps network.{key} {subnet}; choose other ranges",
            )


def _products(settings: Settings, _: Mapping[str, str]) -> Findings:
    served = set(settings.serving.models)
    for folded, count in Counter(name.casefold() for name in settings.gateway.products).items():
        if count > 1:
            yield "gateway.products", f"{count} products have the id '{folded}' (ids are compared without case)"
    for name, product in settings.gateway.products.items():
        key = f"gateway.products.{name}"
        if settings.gateway.tier in CLASSIC_TIERS and name in BUILT_IN_PRODUCTS:
            yield key, f"is a product that tier {settings.gateway.tier} comes with; allowed: any other id"
        for model in product.models or ():
            if model not in served:
                allowed = ", ".join(sorted(served))
                yield f"{key}.models", f"'{model}' is not served by this stack; allowed: {allowed}"
        yield from _limits(key, product)


def _limits(key: str, product: Product) -> Findings:
    quota = product.token_quota
    if quota and quota.tokens < product.tokens_per_minute:
        yield (
            f"{key}.token_quota.tokens",
            f"{quota.tokens} is less than tokens_per_minute {product.tokens_per_minute}, which then never counts; "
            f"allowed: {product.tokens_per_minute} or more",
        )
    if product.visible_to_guests and not product.published:
        yield f"{key}.visible_to_guests", "shows nothing while `published: false`; remove one of the two"
    for subscription in product.subscriptions:
        shown = display_name(subscription.name, subscription.owner)
        if len(shown) > SUBSCRIPTION_NAME_LENGTH:
            yield (
                f"{key}.subscriptions",
                f"'{subscription.name}' and its owner make a name of {len(shown)} characters; "
                f"allowed: {SUBSCRIPTION_NAME_LENGTH}",
            )


def _models_of_products(settings: Settings, _: Mapping[str, str]) -> Findings:
    """The gateway picks nodes by product, never by reading a body: a product's models must share their nodes."""
    for name, product in settings.gateway.products.items():
        groups: dict[frozenset[int], list[str]] = {}
        for model in models_of(settings, product):
            if model in settings.serving.models:
                groups.setdefault(nodes_of(settings, model), []).append(model)
        if len(groups) > 1:
            wanted = sorted(model for group in groups.values() for model in group)
            choices = " or ".join(f"[{', '.join(group)}]" for group in sorted(groups.values()))
            yield (
                f"gateway.products.{name}.models",
                f"{', '.join(wanted)} are not on the same nodes, and the gateway chooses nodes by product; "
                f"allowed: {choices}",
            )


def _pool(settings: Settings, _: Mapping[str, str]) -> Findings:
    count, gateway = settings.nodes.count, settings.gateway
    for key, numbers in (("drain", gateway.drain), ("pool", tuple(gateway.pool))):
        for number in numbers:
            if not 1 <= number <= count:
                yield f"gateway.{key}", f"{number} is not a node; allowed: 1-{count}"
    if gateway.pool and gateway.affinity is not Affinity.NONE:
        yield "gateway.pool", f"can't stand beside `affinity: {gateway.affinity}`, which sets priorities itself"
    served: dict[frozenset[int], str] = {}
    for model in sorted(settings.serving.models):
        served.setdefault(nodes_of(settings, model), model)
    for nodes, model in served.items():
        if nodes and nodes <= set(gateway.drain):
            only = ", ".join(map(str, sorted(nodes)))
            yield "gateway.drain", f"{only} are all nodes that serve {model}; leave at least one in"
        if len(nodes) > POOL_LIMIT:
            yield (
                "nodes.count",
                f"{len(nodes)} nodes would serve {model} behind one pool of API Management; allowed: {POOL_LIMIT}, "
                "or a second stack",
            )


def _doors(settings: Settings, _: Mapping[str, str]) -> Findings:
    """The bearer API calls the gateway by its own name (docs/decisions/0007)."""
    if settings.gateway.bearer_api and settings.gateway.inbound is GatewayInbound.INTERNAL:
        yield (
            "gateway.bearer_api",
            "needs a gateway that reaches itself by its name, which is unproven with `inbound: internal`; "
            "use the header Ocp-Apim-Subscription-Key, or `azure_openai_api`",
        )


def lists(settings: Settings) -> dict[str, Sequence[object]]:
    """Lists whose items may stand only once."""
    gateway = settings.gateway
    found: dict[str, Sequence[object]] = {
        "gateway.drain": gateway.drain,
        "gateway.cors_origins": gateway.cors_origins,
        "gateway.policy_fragments.inbound": gateway.policy_fragments.inbound,
        "gateway.policy_fragments.outbound": gateway.policy_fragments.outbound,
    }
    for name, product in settings.gateway.products.items():
        found[f"gateway.products.{name}.models"] = product.models or ()
        found[f"gateway.products.{name}.subscriptions"] = [each.name for each in product.subscriptions]
    return found


RULES: tuple[Callable[[Settings, Mapping[str, str]], Findings], ...] = (
    _tier,
    _existing,
    _products,
    _models_of_products,
    _pool,
    _doors,
)
