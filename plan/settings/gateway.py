"""What a stack file may say about its gateway: products, limits, subscriptions, nodes. See `plan.settings.azure`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from plan.settings.types import Cidr, GatewayId, Line, NodeKey, NodeNumber, Origin, Section, Slug, named
from plan.vocabulary import Affinity, GatewayInbound, GatewayTier, PublicAccess, QuotaPeriod

MOST_PER_MINUTE = 1_000_000_000
MOST_PER_PERIOD = 1_000_000_000_000_000
"""Bounds of ours, far above what nodes can do: what is more is a slip. Azure documents none."""


class TokenQuota(Section):
    """How much a subscription may use in a period, on top of the limit per minute."""

    tokens: int = Field(ge=1, le=MOST_PER_PERIOD, description="Tokens in each period, prompt and answer together.")
    period: QuotaPeriod = Field(description="After which the count starts anew.")


class Subscription(Section):
    """An application with keys of its own. A bare name may stand for it."""

    name: Slug = Field(description="The application's name.")
    owner: Line | None = Field(
        None,
        min_length=1,
        max_length=60,
        description="Person or team behind it, shown with the subscription in portal and reports.",
    )


class Product(Section):
    """What application developers subscribe to."""

    display_name: Line = Field(min_length=1, max_length=300, description="Name shown in the developer portal.")
    description: str = Field("", max_length=1000, description="Text shown in the developer portal.")
    terms: str = Field(
        "", max_length=10_000, description="Terms of use that a developer accepts before subscribing in the portal."
    )
    models: tuple[str, ...] | None = Field(
        None, min_length=1, description="Served model names this product may call; none means all."
    )
    system_prompt: str | None = Field(
        None, min_length=1, max_length=32_768, description="System prompt placed before the model's own."
    )
    requests_per_minute: int = Field(60, ge=1, le=MOST_PER_MINUTE, description="Requests per minute and subscription.")
    tokens_per_minute: int = Field(20_000, ge=1, le=MOST_PER_MINUTE, description="Tokens per minute and subscription.")
    token_quota: TokenQuota | None = Field(None, description="Tokens per period and subscription; none is no quota.")
    approval_required: bool = Field(False, description="Whether an administrator approves each subscription.")
    published: bool = Field(True, description="Whether the product is offered in the portal.")
    visible_to_guests: bool = Field(
        False, description="Whether a published product is shown without signing in, not only to signed-in developers."
    )
    subscriptions: tuple[Annotated[Subscription, BeforeValidator(named)], ...] = Field(
        (), description="Applications that get keys of their own, created with the stack."
    )


class ExistingGateway(Section):
    """An API Management service that is there already: our API and products are added to it, the rest left alone."""

    id: GatewayId = Field(description="Its ARM id.")
    subnet: Cidr = Field(description="The range that it calls the nodes from (CIDR); the wrapper lets in nobody else.")


class PoolMember(Section):
    """A node's place in the gateway's backend pool."""

    weight: int = Field(1, ge=1, le=100, description="Share of the requests within its priority.")
    priority: int = Field(
        1, ge=0, le=100, description="Lower goes first; others only take over when all of a lower number are out."
    )


class PolicyFragments(Section):
    """Files with policy elements of your own, by the section of the API's policy that they go to."""

    inbound: tuple[str, ...] = Field(
        (), description="Files, from the project's directory, that hold for requests: after the product's limits."
    )
    outbound: tuple[str, ...] = Field((), description="Files that hold for answers; they may set headers.")


class Gateway(Section):
    """API Management in front of the nodes."""

    tier: GatewayTier = Field(GatewayTier.STANDARD_V2, description="API Management tier.")
    units: int = Field(1, ge=1, description="Scale units.")
    publisher_name: Line = Field(min_length=1, max_length=100, description="Organisation named in the portal.")
    publisher_email: str = Field(
        description="Address for the service's notices.", pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$"
    )
    inbound: GatewayInbound = Field(
        GatewayInbound.PUBLIC, description="How clients reach it; what a tier offers differs."
    )
    public_access: PublicAccess = Field(
        PublicAccess.ENABLED,
        description="With a private endpoint, set `disabled` after the first `up`: Azure refuses it at creation.",
    )
    existing: ExistingGateway | None = Field(
        None, description="Use a service that is there already; tier, inbound and units then say what it is."
    )
    api_path: str = Field(
        "v1",
        pattern=r"^([a-z0-9][a-z0-9-]{0,39}/){0,3}v1$",
        description="Path of the API on the gateway; it ends in v1, as OpenAI clients expect of a base URL.",
    )
    products: dict[Slug, Product] = Field(min_length=1, description="Products by id.")
    azure_openai_api: bool = Field(
        False,
        description="Whether clients of Azure OpenAI (header api-key, path openai/deployments/…) are served, too.",
    )
    bearer_api: bool = Field(
        False, description="Whether a second address takes keys as `Authorization: Bearer`, as plain OpenAI clients do."
    )
    cors_origins: tuple[Origin, ...] = Field(
        (),
        max_length=50,
        description="Origins, such as https://chat.example.com, whose pages may call the API; none means no CORS.",
    )
    policy_fragments: PolicyFragments = Field(
        PolicyFragments(), description="Policy elements of your own; what would buffer, leak or bypass is refused."
    )
    keys_in_key_vault: bool = Field(
        False, description="Whether the stack's key vault also holds every subscription's keys, for its operators."
    )
    affinity: Affinity = Field(
        Affinity.NONE,
        description="`product` sends each product to a node of its own, for its prefix cache; others take over for it.",
    )
    drain: tuple[NodeNumber, ...] = Field((), description="Nodes that get no requests, for as long as they stand here.")
    pool: dict[NodeKey, PoolMember] = Field(
        default_factory=dict, description="Weight and priority of nodes by number; others have 1 and 1."
    )
