"""The gateway's settings of every target: products, limits, subscriptions, and the nodes behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field

from plan.settings.types import Line, NodeKey, NodeNumber, Routes, Section, Slug, named
from plan.vocabulary import Affinity, QuotaPeriod

MOST_PER_MINUTE = 1_000_000_000
MOST_PER_PERIOD = 1_000_000_000_000_000
"""Our own bounds, far above what nodes can do; a larger number is a typing error. Azure documents no bounds."""


class TokenQuota(Section):
    """How much a subscription may use in a period, on top of the limit per minute."""

    tokens: int = Field(ge=1, le=MOST_PER_PERIOD, description="Tokens in each period, prompt and answer together.")
    period: QuotaPeriod = Field(description="After this period, the count starts again at zero.")


class Subscription(Section):
    """An application with its own keys. A plain name is enough."""

    name: Slug = Field(description="The application's name.")
    owner: Line | None = Field(
        None,
        min_length=1,
        max_length=60,
        description="Responsible person or team, shown with the subscription in portal and reports.",
    )


class Product(Section):
    """What application developers subscribe to."""

    display_name: Line = Field(min_length=1, max_length=300, description="Name shown in the developer portal.")
    description: str = Field("", max_length=1000, description="Text shown in the developer portal.")
    models: tuple[str, ...] | None = Field(
        None, min_length=1, description="Served model names this product may call; none means all."
    )
    routes: Routes = None
    system_prompt: str | None = Field(
        None, min_length=1, max_length=32_768, description="System prompt placed before the model's own."
    )
    requests_per_minute: int = Field(60, ge=1, le=MOST_PER_MINUTE, description="Requests per minute and subscription.")
    tokens_per_minute: int = Field(20_000, ge=1, le=MOST_PER_MINUTE, description="Tokens per minute and subscription.")
    weight: int = Field(
        1, ge=1, le=100, description="How often its turn comes when requests wait at a node, against other products."
    )
    token_quota: TokenQuota | None = Field(None, description="Tokens per period and subscription; none means no quota.")
    subscriptions: tuple[Annotated[Subscription, BeforeValidator(named)], ...] = Field(
        (), description="Applications with their own keys, created with the stack."
    )


class PoolMember(Section):
    """A node's place in the gateway's backend pool."""

    weight: int = Field(1, ge=1, le=100, description="Share of the requests within its priority.")
    priority: int = Field(
        1,
        ge=0,
        le=100,
        description="Lower goes first; higher numbers get requests only when all lower ones are out.",
    )


class Gateway(Section):
    """Products, and the nodes that answer for them."""

    products: Mapping[Slug, Product] = Field(min_length=1, description="Products by id.")
    affinity: Affinity = Field(
        Affinity.NONE,
        description="`product` sends each product to its own node, for the prefix cache; others take over if needed.",
    )
    drain: tuple[NodeNumber, ...] = Field((), description="Nodes that get no requests while they are in this list.")
    pool: dict[NodeKey, PoolMember] = Field(
        default_factory=dict, description="Weight and priority of nodes by number; others have 1 and 1."
    )
