"""The nodes as API Management sees them: a backend with a circuit breaker for each, and the pools over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import apimanagement

from components.gateway.chain import Chain
from components.scope import StackScope
from infra.gateway_plan import BackendPlan, PoolPlan

_FAILURES = 3
_WINDOW = "PT30S"
_TRIP = "PT30S"


@dataclass(frozen=True)
class BackendsArgs:
    """`after`: what must be written before."""

    scope: StackScope
    service_name: pulumi.Input[str]
    backends: tuple[BackendPlan, ...]
    pools: tuple[PoolPlan, ...]
    after: Sequence[pulumi.Resource]


class Backends(pulumi.ComponentResource):
    """Backends and pools. `tail` is the last thing written.

    A drained node's backend stays and only its place in the pool goes, so that taking it out and back is one small
    write that nothing else waits for.
    """

    tail: list[pulumi.Resource]

    def __init__(self, name: str, args: BackendsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:Backends", name, None, opts)
        self._name, self._args, self._chain = name, args, Chain(args.after)
        nodes = {backend.id: self._node(backend) for backend in args.backends}
        for pool in args.pools:
            self._pool(pool, nodes)
        self.tail = self._chain.tail
        self.register_outputs({})

    def _node(self, backend: BackendPlan) -> apimanagement.Backend:
        return self._chain.add(
            apimanagement.Backend(
                f"{self._name}-{backend.id}",
                resource_group_name=self._args.scope.resource_group_name,
                service_name=self._args.service_name,
                backend_id=backend.id,
                type=apimanagement.BackendType.SINGLE,
                title=backend.id,
                description="The wrapper on a GPU node, over the VNet.",
                url=backend.url,
                protocol=apimanagement.BackendProtocol.HTTP,
                circuit_breaker=apimanagement.BackendCircuitBreakerArgs(rules=[_breaker()]),
                opts=self._chain.link(self),
            )
        )

    def _pool(self, pool: PoolPlan, nodes: dict[str, apimanagement.Backend]) -> None:
        self._chain.add(
            apimanagement.Backend(
                f"{self._name}-{_logical(pool.id)}",
                resource_group_name=self._args.scope.resource_group_name,
                service_name=self._args.service_name,
                backend_id=pool.id,
                type=apimanagement.BackendType.POOL,
                title=pool.id,
                description="Nodes that serve the same model, in turn.",
                pool=apimanagement.BackendBaseParametersPoolArgs(
                    services=[
                        apimanagement.BackendPoolItemArgs(
                            id=nodes[member.id].id, priority=member.priority, weight=member.weight
                        )
                        for member in pool.members
                    ]
                ),
                opts=self._chain.link(self),
            )
        )


def _logical(pool: str) -> str:
    """`nodes` is `pool`, `nodes-x` is `pool-x`: names that tell pools from nodes in a tree."""
    return pool.replace("nodes", "pool", 1)


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
