"""What a gateway holds: APIs with their operations, products, subscriptions, named values, policies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import UNIQUE, StrEnum, verify

from simulator.apim_policies.counters import Algorithm
from simulator.apim_policies.pool import Backend, Pool

DEFAULT_POLICY = (
    "<policies><inbound /><backend><forward-request /></backend><outbound /><on-error /></policies>"  # what Azure ships
)


@dataclass(frozen=True)
class Operation:
    """A method and a path below its API's; `{name}` stands for one segment. `policy` may be empty."""

    id: str
    method: str
    template: str
    policy: str = ""

    def matches(self, method: str, path: str) -> bool:
        """Whether a request is one of this operation's."""
        pattern = re.sub(r"\\\{[\w-]+\\\}", "[^/]+", re.escape(self.template))
        return method == self.method and re.fullmatch(pattern, path) is not None


@dataclass(frozen=True)
class Api:
    """An API. `path` has no slash at its ends; the key is asked for in `key_header` and `key_query`."""

    id: str
    path: str
    operations: tuple[Operation, ...]
    policy: str
    key_header: str
    key_query: str
    subscription_required: bool = True


@dataclass(frozen=True)
class Product:
    """A product; `apis` are the ids that it opens."""

    id: str
    apis: frozenset[str]
    policy: str


@verify(UNIQUE)
class SubscriptionScope(StrEnum):
    """What a subscription is for."""

    PRODUCT = "product"
    API = "api"
    ALL_APIS = "apis"


@dataclass(frozen=True)
class Subscription:
    """A subscription with its two keys; `target` is the product's or API's id, empty for all APIs."""

    id: str
    scope: SubscriptionScope
    target: str
    keys: tuple[str, ...] = field(repr=False)
    active: bool = True


@dataclass(frozen=True)
class GatewayConfig:
    """A whole gateway. `files` names a policy in complaints: by `api/<id>`, `product/<id>` or `service`."""

    apis: tuple[Api, ...]
    products: tuple[Product, ...]
    subscriptions: tuple[Subscription, ...]
    backends: tuple[Backend, ...]
    pools: tuple[Pool, ...]
    named_values: Mapping[str, str] = field(repr=False)
    algorithm: Algorithm = Algorithm.SLIDING_WINDOW
    policy: str = DEFAULT_POLICY

    def api_for(self, path: str) -> Api | None:
        """The API of a path: the one with the longest path of its own that fits."""
        fitting = [api for api in self.apis if f"{path}/".startswith(f"/{api.path}/")]
        return max(fitting, key=lambda api: len(api.path), default=None)

    def subscription_for(self, key: str) -> Subscription | None:
        """Who holds a key."""
        return next((held for held in self.subscriptions if key in held.keys), None)
