"""The nodes as API Management sees them: a backend with a circuit breaker for each, and the pool over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import apimanagement

from components.gateway.chain import Chain
from components.gateway.entities import Entity
from components.scope import StackScope
from infra.plan import BackendPlan

_FAILURES = 3
_WINDOW = "PT30S"
_TRIP = "PT30S"


@dataclass(frozen=True)
class BackendsArgs:
    """`after`: what must be written before."""

    scope: StackScope
    service_name: pulumi.Input[str]
    backends: tuple[BackendPlan, ...]
    after: Sequence[pulumi.Resource]


class Backends(pulumi.ComponentResource):
    """Backends and pool. `tail` is the last thing written."""

    tail: list[pulumi.Resource]

    def __init__(self, name: str, args: BackendsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:Backends", name, None, opts)
        chain = Chain(args.after)
        nodes = [
            chain.add(
                apimanagement.Backend(
                    f"{name}-{backend.id}",
                    resource_group_name=args.scope.resource_group_name,
                    service_name=args.service_name,
                    backend_id=backend.id,
                    type=apimanagement.BackendType.SINGLE,
                    title=backend.id,
                    description="The wrapper on a GPU node, over the VNet.",
                    url=backend.url,
                    protocol=apimanagement.BackendProtocol.HTTP,
                    circuit_breaker=apimanagement.BackendCircuitBreakerArgs(rules=[_breaker()]),
                    opts=chain.link(self),
                )
            )
            for backend in args.backends
        ]
        chain.add(
            apimanagement.Backend(
                f"{name}-pool",
                resource_group_name=args.scope.resource_group_name,
                service_name=args.service_name,
                backend_id=Entity.POOL.value,
                type=apimanagement.BackendType.POOL,
                title=Entity.POOL.value,
                description="All nodes, in turn.",
                pool=apimanagement.BackendBaseParametersPoolArgs(
                    services=[apimanagement.BackendPoolItemArgs(id=node.id, priority=1, weight=1) for node in nodes]
                ),
                opts=chain.link(self),
            )
        )
        self.tail = chain.tail
        self.register_outputs({})


def _breaker() -> apimanagement.CircuitBreakerRuleArgs:
    """Three answers in half a minute that say "this node cannot": it rests for as long as Retry-After says, or 30 s.

    502 and 503 only. 429 is a full queue, which the policy's retry takes elsewhere; 504 and 500 can be one client's
    doing, and no client may switch off nodes. Whether failed connections count without an entry in `errorReasons` is
    UNVERIFIED: the words that Azure accepts there are documented nowhere that could be opened.
    """
    return apimanagement.CircuitBreakerRuleArgs(
        name="node-cannot-serve",
        trip_duration=_TRIP,
        accept_retry_after=True,
        failure_condition=apimanagement.CircuitBreakerFailureConditionArgs(
            count=_FAILURES,
            interval=_WINDOW,
            status_code_ranges=[apimanagement.FailureStatusCodeRangeArgs(min=502, max=503)],
        ),
    )
