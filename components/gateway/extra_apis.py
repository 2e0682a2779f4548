"""The extra APIs as resources, with their policies and diagnostics; the keyed ones are opened by every product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import apimanagement

from components.gateway.chain import Chain
from components.gateway.observability import diagnostic_settings
from components.scope import StackScope
from gateway_policies.entities import Entity, KeyParameter
from gateway_policies.extra_apis import ExtraApi
from plan.azure.gateway_model import GatewayPlan


@dataclass(frozen=True)
class ExtraApisArgs:
    """`logger_id` is where diagnostics go; every product of `gateway` opens the APIs; `after`: what comes before."""

    scope: StackScope
    service_name: pulumi.Input[str]
    gateway: GatewayPlan
    apis: tuple[ExtraApi, ...]
    logger_id: pulumi.Output[str]
    after: Sequence[pulumi.Resource]


class ExtraApis(pulumi.ComponentResource):
    """All extra APIs, one write after another. `tail` is the last one."""

    tail: list[pulumi.Resource]

    def __init__(self, name: str, args: ExtraApisArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:DoorApis", name, None, opts)
        self._args, self._chain = args, Chain(args.after, shared=args.gateway.shared)
        for extra in args.apis:
            self._open(f"{name}-{extra.name}", extra)
        self.tail = self._chain.tail
        self.register_outputs({})

    def _open(self, name: str, extra: ExtraApi) -> None:
        here = {"resource_group_name": self._args.scope.resource_group_name, "service_name": self._args.service_name}
        policy = {"policy_id": Entity.POLICY.value, "format": apimanagement.PolicyContentFormat.RAWXML}
        api = self._chain.add(
            apimanagement.Api(
                f"{name}-api",
                **here,
                api_id=extra.id,
                display_name=extra.title,
                path=extra.path,
                protocols=[apimanagement.Protocol.HTTPS],
                subscription_required=extra.key_required,
                subscription_key_parameter_names=apimanagement.SubscriptionKeyParameterNamesContractArgs(
                    header=extra.key_header, query=KeyParameter.QUERY.value
                ),
                format=apimanagement.ContentFormat.OPENAPI_JSON,
                value=extra.document,
                opts=self._chain.link(self, alone=True),
            )
        )
        self._chain.add(
            apimanagement.ApiPolicy(
                f"{name}-policy", **here, **policy, api_id=api.name, value=extra.policy, opts=self._chain.link(self)
            )
        )
        for operation, text in sorted(extra.operations.items()):
            self._chain.add(
                apimanagement.ApiOperationPolicy(
                    f"{name}-{operation}",
                    **here,
                    **policy,
                    api_id=api.name,
                    operation_id=operation,
                    value=text,
                    opts=self._chain.link(self),
                )
            )
        self._chain.add(
            apimanagement.ApiDiagnostic(
                f"{name}-diagnostic",
                **here,
                api_id=api.name,
                diagnostic_id=Entity.DIAGNOSTIC.value,
                **diagnostic_settings(self._args.logger_id),
                opts=self._chain.link(self),
            )
        )
        # Last, so that no key opens an API whose policy is not there yet.
        for product in self._args.gateway.products if extra.key_required else ():
            self._chain.add(
                apimanagement.ProductApi(
                    f"{name}-{product.name}",
                    **here,
                    product_id=product.id,
                    api_id=api.name,
                    opts=self._chain.link(self),
                )
            )
