"""The gateway: one component that composes service, backends, API, observability and products, one write at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pulumi

from components.gateway.api import Api, ApiArgs
from components.gateway.backends import Backends, BackendsArgs
from components.gateway.extra_apis import ExtraApis, ExtraApisArgs
from components.gateway.observability import Observability, ObservabilityArgs
from components.gateway.products import Products, ProductsArgs
from components.gateway.service import ApiManagement, ApiManagementArgs
from components.scope import StackScope
from gateway_policies import render as policies
from gateway_policies.extra_apis import extra_apis
from plan.azure.gateway_model import GatewayPlan


@dataclass(frozen=True)
class GatewayArgs:
    """The plan's gateway, and what other components made for it.

    `insights_connection_string` and `backend_key` are secrets. `subnet_id` is None for a service that is there already.
    `endpoint_after`: other private endpoints, since Azure changes one child of a VNet at a time. `key_after`: nodes
    that serve, which must take another backend key before the gateway shows it.
    """

    scope: StackScope
    gateway: GatewayPlan
    subnet_id: pulumi.Input[str] | None
    backend_key: pulumi.Input[str]
    insights_id: pulumi.Input[str]
    insights_connection_string: pulumi.Input[str]
    workspace_id: pulumi.Input[str]
    endpoint_subnet_id: pulumi.Input[str]
    gateway_zone_id: pulumi.Input[str] | None
    endpoint_after: Sequence[pulumi.Resource]
    key_after: Sequence[pulumi.Resource] = ()


class Gateway(pulumi.ComponentResource):
    """API Management. `product_keys` and `secondary_keys`: a subscription's keys (secret), see `Products`."""

    service_id: pulumi.Output[str]
    service_name: pulumi.Output[str]
    gateway_url: pulumi.Output[str]
    portal_url: pulumi.Output[str]
    product_keys: Mapping[str, pulumi.Output[str]]
    secondary_keys: Mapping[str, pulumi.Output[str]]

    def __init__(self, name: str, args: GatewayArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:Gateway", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        scope, gateway = args.scope, args.gateway
        service = ApiManagement(
            name,
            ApiManagementArgs(
                scope=scope,
                gateway=gateway,
                subnet_id=args.subnet_id,
                endpoint_subnet_id=args.endpoint_subnet_id,
                gateway_zone_id=args.gateway_zone_id,
                endpoint_after=args.endpoint_after,
            ),
            child,
        )
        scope = replace(scope, resource_group_name=service.resource_group_name)
        entities = pulumi.ResourceOptions.merge(child, service.entities)
        backends = Backends(
            f"{name}-backends",
            BackendsArgs(
                scope=scope,
                service_name=service.name,
                gateway=gateway,
                after=service.ready,
            ),
            entities,
        )
        api = Api(
            f"{name}-api",
            ApiArgs(
                scope=scope,
                service_name=service.name,
                gateway=gateway,
                policy=policies.api_policy(gateway),
                backend_key=args.backend_key,
                after=backends.tail,
                key_after=args.key_after,
            ),
            entities,
        )
        observability = Observability(
            f"{name}-observability",
            ObservabilityArgs(
                scope=scope,
                service_name=service.name,
                service_id=service.id,
                gateway=gateway,
                api_id=api.api_id,
                insights_id=args.insights_id,
                insights_connection_string=args.insights_connection_string,
                workspace_id=args.workspace_id,
                after=api.tail,
            ),
            entities,
        )
        products = Products(
            f"{name}-products",
            ProductsArgs(
                scope=scope,
                service_name=service.name,
                api_id=api.api_id,
                products=gateway.products,
                shared=gateway.shared,
                after=observability.tail,
            ),
            entities,
        )
        if found := extra_apis(gateway):
            ExtraApis(
                f"{name}-doors",
                ExtraApisArgs(
                    scope=scope,
                    service_name=service.name,
                    gateway=gateway,
                    apis=found,
                    logger_id=observability.logger_id,
                    after=products.tail,
                ),
                entities,
            )
        self.service_id, self.service_name = service.id, service.name
        self.gateway_url = service.gateway_url
        self.portal_url = service.portal_url
        self.product_keys, self.secondary_keys = products.keys, products.secondary_keys
        self.register_outputs(
            {"service_name": self.service_name, "gateway_url": self.gateway_url, "portal_url": self.portal_url}
        )
