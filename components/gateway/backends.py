"""The nodes as API Management sees them: a backend with a circuit breaker for each, and the pools over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import apimanagement

from components.gateway.chain import Chain
from components.scope import StackScope
from gateway_policies.entities import NODE_CANNOT_SERVE
from plan.azure.gateway_model import BackendPlan, GatewayPlan, PoolPlan


@dataclass(frozen=True)
class BackendsArgs:
    """`after`: what must be written before."""

    scope: StackScope
    service_name: pulumi.Input[str]
    gateway: GatewayPlan
    after: Sequence[pulumi.Resource]


class Backends(pulumi.ComponentResource):
    """Backends and pools. `tail` is the last thing written.

    A drained node's backend stays and only its place in the pool goes, so that taking it out and back is one small
    write that nothing else waits for.
    """

    tail: list[pulumi.Resource]

    def __init__(self, name: str, args: BackendsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:Backends", name, None, opts)
        self._name, self._args, self._chain = name, args, Chain(args.after, shared=args.gateway.shared)
        nodes = {backend.id: self._node(backend) for backend in args.gateway.backends}
        for pool in args.gateway.pools:
            self._pool(pool, nodes)
        self.tail = self._chain.tail
        self.register_outputs({})

    def _node(self, backend: BackendPlan) -> apimanagement.Backend:
        return self._chain.add(
            apimanagement.Backend(
                f"{self._name}-{backend.name}",
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
                f"{self._name}-{_logical(pool.name)}",
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
    """The rule as Azure's resource has it.

    Whether failed connections count without an entry in `errorReasons` is UNVERIFIED: the words that Azure accepts
    there are documented nowhere that could be opened.
    """
    rule = NODE_CANNOT_SERVE
    return apimanagement.CircuitBreakerRuleArgs(
        name=rule.name,
        trip_duration=f"PT{rule.rest_s}S",
        accept_retry_after=True,
        failure_condition=apimanagement.CircuitBreakerFailureConditionArgs(
            count=rule.failures,
            interval=f"PT{rule.window_s}S",
            status_code_ranges=[
                apimanagement.FailureStatusCodeRangeArgs(min=low, max=high) for low, high in rule.statuses
            ],
        ),
    )
