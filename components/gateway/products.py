"""Products: who may call what, how much, and the keys of the applications that do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pulumi
from pulumi_azure_native import apimanagement

from components.gateway import policies
from components.gateway.chain import Chain
from components.gateway.entities import Entity, subscription_id
from components.scope import StackScope
from infra.plan import ProductPlan


@dataclass(frozen=True)
class ProductsArgs:
    """`api_id` is the API that the products open; `after`: what must be written before."""

    scope: StackScope
    service_name: pulumi.Input[str]
    api_id: pulumi.Input[str]
    products: tuple[ProductPlan, ...]
    after: Sequence[pulumi.Resource]


class Products(pulumi.ComponentResource):
    """All products in the order of their ids, each after the one before: they write to one API and one service.

    `keys` holds the primary key of each subscription (secret), by `<product>/<subscription>`.
    """

    keys: Mapping[str, pulumi.Output[str]]

    def __init__(self, name: str, args: ProductsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:Products", name, None, opts)
        keys: dict[str, pulumi.Output[str]] = {}
        after = args.after
        for plan in sorted(args.products, key=lambda product: product.id):
            product = Product(
                f"{name}-{plan.id}",
                ProductArgs(
                    scope=args.scope, service_name=args.service_name, api_id=args.api_id, product=plan, after=after
                ),
                pulumi.ResourceOptions(parent=self),
            )
            keys.update(product.keys)
            after = product.tail
        self.keys = MappingProxyType(keys)
        self.register_outputs({})


@dataclass(frozen=True)
class ProductArgs:
    """`api_id` is the API that the product opens; `after`: what must be written before."""

    scope: StackScope
    service_name: pulumi.Input[str]
    api_id: pulumi.Input[str]
    product: ProductPlan
    after: Sequence[pulumi.Resource]


class Product(pulumi.ComponentResource):
    """A product with policy, visibility, API and subscriptions; `keys` as in `Products`; `tail`: the last write."""

    keys: Mapping[str, pulumi.Output[str]]
    tail: list[pulumi.Resource]

    def __init__(self, name: str, args: ProductArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:Product", name, None, opts)
        self._args = args
        self._chain = Chain(args.after)
        product = self._product(name)
        # The limits come before anything that lets a request in.
        self._chain.add(
            apimanagement.ProductPolicy(
                f"{name}-policy",
                resource_group_name=args.scope.resource_group_name,
                service_name=args.service_name,
                product_id=product.name,
                policy_id=Entity.POLICY.value,
                format=apimanagement.PolicyContentFormat.RAWXML,
                value=policies.product_policy(args.product),
                opts=self._chain.link(self),
            )
        )
        self._offer(name, product)
        self.keys = MappingProxyType(
            {
                f"{args.product.id}/{subscription}": self._subscribe(name, product, subscription)
                for subscription in sorted(args.product.subscriptions)
            }
        )
        self.tail = self._chain.tail
        self.register_outputs({"keys": pulumi.Output.secret(pulumi.Output.from_input(dict(self.keys)))})

    def _product(self, name: str) -> apimanagement.Product:
        args = self._args
        return self._chain.add(
            apimanagement.Product(
                f"{name}-product",
                resource_group_name=args.scope.resource_group_name,
                service_name=args.service_name,
                product_id=args.product.id,
                display_name=args.product.display_name,
                description=args.product.description,
                # A product without keys would open the API to everybody (azure_facts 5.7).
                subscription_required=True,
                approval_required=args.product.approval_required,
                state=(
                    apimanagement.ProductState.PUBLISHED
                    if args.product.published
                    else apimanagement.ProductState.NOT_PUBLISHED
                ),
                opts=self._chain.link(self),
            )
        )

    def _offer(self, name: str, product: apimanagement.Product) -> None:
        """Show a published product to signed-in developers, and link the API."""
        args = self._args
        if args.product.published:
            self._chain.add(
                apimanagement.ProductGroup(
                    f"{name}-{Entity.DEVELOPERS}",
                    resource_group_name=args.scope.resource_group_name,
                    service_name=args.service_name,
                    product_id=product.name,
                    group_id=Entity.DEVELOPERS.value,
                    opts=self._chain.link(self),
                )
            )
        self._chain.add(
            apimanagement.ProductApi(
                f"{name}-api",
                resource_group_name=args.scope.resource_group_name,
                service_name=args.service_name,
                product_id=product.name,
                api_id=args.api_id,
                opts=self._chain.link(self),
            )
        )

    def _subscribe(self, name: str, product: apimanagement.Product, subscription: str) -> pulumi.Output[str]:
        """An application's key. Made by the operator, so it is active at once; Azure's default is a mere request."""
        args = self._args
        sid = subscription_id(args.product.id, subscription)
        made = self._chain.add(
            apimanagement.Subscription(
                f"{name}_{subscription}",
                resource_group_name=args.scope.resource_group_name,
                service_name=args.service_name,
                sid=sid,
                display_name=subscription,
                scope=product.id,
                state=apimanagement.SubscriptionState.ACTIVE,
                allow_tracing=False,
                opts=self._chain.link(self),
            )
        )
        # By the name that the subscription gives back: Pulumi asks only once it exists, never in a preview before.
        secrets = apimanagement.list_subscription_secrets_output(
            resource_group_name=args.scope.resource_group_name, service_name=args.service_name, sid=made.name
        )
        return pulumi.Output.secret(secrets.apply(lambda known: str(known.primary_key)))
