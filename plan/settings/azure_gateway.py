"""The settings of API Management, apart from its products."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated

from pydantic import Field

from huddle.forms import Form
from plan.settings.gateway import Gateway, Product
from plan.settings.types import Cidr, Email, GatewayId, IdPrefix, Line, Origin, Section, Slug
from plan.vocabulary import GatewayInbound, GatewayTier, PublicAccess


class ExistingGateway(Section):
    """An API Management service that is there already: our API and products are added to it, the rest left alone."""

    id: GatewayId = Field(description="Its ARM id.")
    subnet: Cidr = Field(description="The range from which it calls the nodes (CIDR); the wrapper accepts no others.")
    prefix: IdPrefix | None = Field(
        None,
        description="First part of the ids of what this stack creates in it; the stack's name when left out. Empty "
        "keeps the ids and keys of a stack that was brought up without one.",
    )


class PolicyFragments(Section):
    """Files with policy elements of your own, by the section of the API's policy that they go to."""

    inbound: tuple[str, ...] = Field(
        (), description="Files (paths from the project's directory) for requests. They run after the product's limits."
    )
    outbound: tuple[str, ...] = Field((), description="Files for answers; they may set headers.")


class PortalProduct(Product):
    """A product as the developer portal offers it."""

    terms: str = Field(
        "", max_length=10_000, description="Terms of use that a developer accepts before subscribing in the portal."
    )
    approval_required: bool = Field(False, description="Whether an administrator approves each subscription.")
    published: bool = Field(True, description="Whether the product is offered in the portal.")
    visible_to_guests: bool = Field(
        False, description="Whether a published product is also shown to visitors who are not signed in."
    )


class ApiManagement(Gateway):
    """API Management in front of the nodes."""

    products: dict[Slug, PortalProduct] = Field(min_length=1, description="Products by id.")
    tier: GatewayTier = Field(GatewayTier.STANDARD_V2, description="API Management tier.")
    units: int = Field(1, ge=1, description="Scale units.")
    publisher_name: Line = Field(min_length=1, max_length=100, description="Organisation named in the portal.")
    publisher_email: Email = Field(description="E-mail address for the service's notices.")
    inbound: GatewayInbound = Field(
        GatewayInbound.PUBLIC, description="How clients reach it; the tier decides what is possible."
    )
    private_address: IPv4Address | None = Field(
        None,
        description="With `inbound: internal`: the gateway's address in the VNet; needed if Azure does not tell it.",
    )
    public_access: PublicAccess = Field(
        PublicAccess.ENABLED,
        description="With a private endpoint, set `disabled` after the first `up`: Azure refuses it at creation.",
    )
    existing: ExistingGateway | None = Field(
        None, description="Use an existing service; `tier`, `inbound` and `units` must then describe it."
    )
    api_path: Annotated[
        str,
        Form(
            r"([a-z0-9][a-z0-9-]{0,39}/){0,3}v1",
            "v1, or up to three parts of lower-case letters, digits and hyphens before it, such as llm/v1",
        ),
    ] = Field(
        "v1",
        description="Path of the API on the gateway; it ends in v1, as OpenAI clients expect of a base URL.",
    )
    azure_openai_api: bool = Field(
        False,
        description="Whether to serve Azure OpenAI clients, too (header api-key, path openai/deployments/…).",
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
        PolicyFragments(),
        description="Your own policy elements; none may buffer, leak keys or bypass products.",
    )
    keys_in_key_vault: bool = Field(
        False, description="Whether the stack's key vault also contains every subscription's keys, for its operators."
    )
