"""API Management's part of the plan: products, backends, pools, policies. Frozen data, no decisions."""

from __future__ import annotations

from dataclasses import dataclass

from plan.azure_facts import TierFacts
from plan.model import ProductPlan
from plan.vocabulary import GatewayInbound, PublicAccess

BREAKER_REST_S = 30
"""How long a pool sends nothing to a node that could not serve."""

WRAPPER_API_PATH = "v1"
"""Where a node's wrapper offers the API."""
DOMAIN = "azure-api.net"
"""Where every gateway has a name, besides any custom ones."""
POOL = "nodes"
"""The gateway's backend pool over all nodes; one over some of them has their numbers behind."""


@dataclass(frozen=True, kw_only=True)
class GatewayProduct(ProductPlan):
    """A product with what the developer portal shows of it; `pool` is the id of the nodes that serve its models.

    Here and below, `name` is the stack file's or the program's word, and `id` the gateway's (`GatewayPlan.entity_id`).
    """

    name: str
    approval_required: bool
    published: bool
    terms: str = ""
    visible_to_guests: bool = False
    pool: str = POOL


@dataclass(frozen=True)
class BackendPlan:
    """One node behind the gateway; a drained one stays known and gets no requests."""

    name: str
    id: str
    url: str
    weight: int = 1
    priority: int = 1
    drained: bool = False


@dataclass(frozen=True)
class PoolPlan:
    """Nodes that serve the same models, over which the gateway balances; drained ones are not among the members."""

    name: str
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
    """API Management; `name` is ours, or that of the service that is there already.

    `prefix` comes before every id of ours: empty in our own service, the stack's name in one that others use, too.
    `private_address` is what the operator says, None where Azure tells it.
    """

    name: str
    facts: TierFacts
    units: int
    inbound: GatewayInbound
    public_access: PublicAccess
    publisher_name: str
    publisher_email: str
    api_path: str
    products: tuple[GatewayProduct, ...]
    backends: tuple[BackendPlan, ...]
    pools: tuple[PoolPlan, ...]
    prefix: str = ""
    keys_in_key_vault: bool = False
    private_address: str | None = None
    existing: ExistingGatewayPlan | None = None
    azure_openai_api: bool = False
    bearer_api: bool = False
    cors_origins: tuple[str, ...] = ()
    policy_fragments: tuple[PolicyFragmentPlan, ...] = ()
    """Filled by `gateway_policies.load_fragments`, which reads and judges the files."""

    def entity_id(self, name: str) -> str:
        """The id of something that this stack makes in the service. Everybody takes it from here."""
        return f"{self.prefix}{name}"

    @property
    def shared(self) -> bool:
        """Whether the service is somebody else's, so that others use it, too."""
        return self.existing is not None

    @property
    def host(self) -> str:
        """The host name that Azure gives the gateway."""
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
    def has_public_address(self) -> bool:
        """Whether it needs a public IP address of ours: classic tiers that we make do."""
        return self.facts.classic and self.existing is None

    @property
    def virtual_network_type(self) -> str:
        """ARM's word: v2 integration is `External`, too (docs/facts/api-management.md#v2-tiers-in-a-vnet)."""
        return "Internal" if self.inbound is GatewayInbound.INTERNAL else "External"
