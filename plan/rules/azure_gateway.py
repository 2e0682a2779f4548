"""Rules about API Management: tier and network, built-in entities, limits. See `plan.rules.products`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from huddle.headers import SUBSCRIPTION_KEY_HEADER
from plan.azure_facts import GATEWAY_TIERS
from plan.azure_network import is_reserved
from plan.model import display_name
from plan.rules.service import Findings, Known
from plan.settings.azure import AzureSettings
from plan.vocabulary import GatewayInbound, PublicAccess

BUILT_IN_PRODUCTS = frozenset({"starter", "unlimited"})
"""Sample products of a new classic service (Microsoft's tutorial on products): ours would collide at creation."""
POOL_LIMIT = 30
"""Backends in one pool (Microsoft's page "Backends in API Management", Limitations)."""
SUBSCRIPTION_NAME_LENGTH = 100
"""Characters of a subscription's display name (SDK, `SubscriptionCreateParameters`): its name, and its owner behind."""


def _tier(settings: AzureSettings, _: Known) -> Findings:
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
    if gateway.private_address is not None:
        if gateway.inbound is not GatewayInbound.INTERNAL:
            yield "gateway.private_address", "is for `gateway.inbound: internal` only; remove it"
        elif gateway.private_address not in settings.network.gateway_subnet:
            yield (
                "gateway.private_address",
                f"{gateway.private_address} is not in network.gateway_subnet {settings.network.gateway_subnet}",
            )
        elif is_reserved(gateway.private_address, settings.network.gateway_subnet):
            yield (
                "gateway.private_address",
                f"{gateway.private_address} is an address that Azure keeps for itself in "
                f"{settings.network.gateway_subnet}; take the one that the portal shows",
            )
    if gateway.public_access is PublicAccess.DISABLED and gateway.inbound is not GatewayInbound.PRIVATE_ENDPOINT:
        yield "gateway.public_access", "'disabled' needs `gateway.inbound: private-endpoint`, or nobody could reach it"


def _existing(settings: AzureSettings, _: Known) -> Findings:
    """An existing service is used as it is, so a setting that would change it is refused."""
    existing = settings.gateway.existing
    if existing is None:
        return
    own = (("inbound", GatewayInbound.PUBLIC), ("public_access", PublicAccess.ENABLED))
    for key, default in own:
        value = getattr(settings.gateway, key)
        if value is not default:
            yield f"gateway.{key}", f"'{value}' is the business of the owner of gateway.existing; remove it"
    for key in ("nodes_subnet", "endpoints_subnet"):
        subnet = getattr(settings.network, key)
        if subnet.overlaps(existing.subnet):
            yield (
                "gateway.existing.subnet",
                f"{existing.subnet} overlaps network.{key} {subnet}; choose other ranges",
            )


def _products(settings: AzureSettings, _: Known) -> Findings:
    for name, product in settings.gateway.products.items():
        key, tier = f"gateway.products.{name}", GATEWAY_TIERS[settings.gateway.tier]
        if tier.classic and name in BUILT_IN_PRODUCTS:
            yield key, f"is a product that tier {tier.tier} comes with; allowed: any other id"
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


def _pool(settings: AzureSettings, known: Known) -> Findings:
    placement = known.placement(settings)
    served: dict[frozenset[int], str] = {}
    for model in sorted(settings.serving.models):
        served.setdefault(placement.nodes_of(model), model)
    for nodes, model in served.items():
        if len(nodes) > POOL_LIMIT:
            yield (
                "nodes.count",
                f"{len(nodes)} nodes would serve {model} behind one pool of API Management; allowed: {POOL_LIMIT}, "
                "or a second stack",
            )


def _bearer(settings: AzureSettings, _: Known) -> Findings:
    """The bearer API calls the gateway by its own public name (docs/decisions/0007)."""
    gateway = settings.gateway
    if not gateway.bearer_api:
        return
    if gateway.inbound is GatewayInbound.INTERNAL:
        unproven = "`inbound: internal`"
    elif gateway.public_access is PublicAccess.DISABLED:
        unproven = "`public_access: disabled`"
    else:
        return
    yield (
        "gateway.bearer_api",
        f"needs a gateway that reaches itself by its name, which is unproven with {unproven}; "
        f"use the header {SUBSCRIPTION_KEY_HEADER}, or `azure_openai_api`",
    )


def lists(settings: AzureSettings) -> dict[str, Sequence[object]]:
    """Lists whose items may stand only once."""
    gateway = settings.gateway
    return {
        "gateway.cors_origins": gateway.cors_origins,
        "gateway.policy_fragments.inbound": gateway.policy_fragments.inbound,
        "gateway.policy_fragments.outbound": gateway.policy_fragments.outbound,
    }


RULES: tuple[Callable[[AzureSettings, Known], Findings], ...] = (_tier, _existing, _products, _pool, _bearer)
