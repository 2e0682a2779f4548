"""Products: who may call what, how much, and the keys of the applications that do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pulumi
from pulumi_azure_native import apimanagement

from components.gateway.chain import Chain
from components.scope import StackScope
from gateway_policies import render as policies
from gateway_policies.entities import Entity
from plan.azure.gateway_model import GatewayProduct
from plan.model import SubscriptionPlan


@dataclass(frozen=True)
class ProductsArgs:
    """`api_id` is the API that the products open; `after`: what must be written before; `shared`: see `Chain`."""

    scope: StackScope
    service_name: pulumi.Input[str]
    api_id: pulumi.Input[str]
    products: tuple[GatewayProduct, ...]
    after: Sequence[pulumi.Resource]
    shared: bool


class Products(pulumi.ComponentResource):
    """All products in the order of their ids, each after the one before: they write to one API and one service.

    `keys` and `secondary_keys` hold the two keys of each subscription (secret), by `<product>/<subscription>`. Either
    opens the API; the second one is there so that the first can be changed (docs/runbooks/keys.md).
    """

    keys: Mapping[str, pulumi.Output[str]]
    secondary_keys: Mapping[str, pulumi.Output[str]]
    tail: list[pulumi.Resource]

    def __init__(self, name: str, args: ProductsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:Products", name, None, opts)
        pairs: dict[str, KeyPair] = {}
        after = args.after
        for plan in sorted(args.products, key=lambda product: product.id):
            product = Product(
                f"{name}-{plan.name}",
                ProductArgs(args.scope, args.service_name, args.api_id, plan, after, shared=args.shared),
                pulumi.ResourceOptions(parent=self),
            )
            pairs.update(product.keys)
            after = product.tail
        self.tail = list(after)
        self.keys = MappingProxyType({name: pair.primary for name, pair in pairs.items()})
        self.secondary_keys = MappingProxyType({name: pair.secondary for name, pair in pairs.items()})
        self.register_outputs({})


@dataclass(frozen=True)
class KeyPair:
    """A subscription's keys, both secret."""

    primary: pulumi.Output[str]
    secondary: pulumi.Output[str]


@dataclass(frozen=True)
class ProductArgs:
    """`api_id` is the API that the product opens; `after`: what must be written before; `shared`: see `Chain`."""

    scope: StackScope
    service_name: pulumi.Input[str]
    api_id: pulumi.Input[str]
    product: GatewayProduct
    after: Sequence[pulumi.Resource]
    shared: bool


class Product(pulumi.ComponentResource):
    """A product with policy, visibility, API and subscriptions.

    `keys` are the subscriptions' by `<product>/<subscription>`; `tail` is the last write.
    """

    keys: Mapping[str, KeyPair]
    tail: list[pulumi.Resource]

    def __init__(self, name: str, args: ProductArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:Product", name, None, opts)
        self._args = args
        self._chain = Chain(args.after, shared=args.shared)
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
                subscription.path: self._subscribe(name, product, subscription)
                for subscription in sorted(args.product.subscriptions, key=lambda each: each.name)
            }
        )
        self.tail = self._chain.tail
        primary = {subscription: pair.primary for subscription, pair in self.keys.items()}
        self.register_outputs({"keys": pulumi.Output.secret(pulumi.Output.from_input(primary))})

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
                terms=args.product.terms or None,
                # Without keys the API is open to everybody (docs/facts/api-management.md#subscriptions-and-products).
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
        """Show a published product to those who may see it, and link the API."""
        args = self._args
        for group in _groups(args.product):
            self._chain.add(
                apimanagement.ProductGroup(
                    f"{name}-{group}",
                    resource_group_name=args.scope.resource_group_name,
                    service_name=args.service_name,
                    product_id=product.name,
                    group_id=group.value,
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

    def _subscribe(self, name: str, product: apimanagement.Product, subscription: SubscriptionPlan) -> KeyPair:
        """An application's keys. Made by the operator, so active at once; Azure's default is a mere request."""
        args = self._args
        made = self._chain.add(
            apimanagement.Subscription(
                f"{name}_{subscription.name}",
                resource_group_name=args.scope.resource_group_name,
                service_name=args.service_name,
                sid=subscription.id,
                display_name=subscription.display_name,
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
        return KeyPair(
            primary=pulumi.Output.secret(secrets.apply(lambda known: str(known.primary_key))),
            secondary=pulumi.Output.secret(secrets.apply(lambda known: str(known.secondary_key))),
        )


def _groups(product: GatewayProduct) -> tuple[Entity, ...]:
    """The built-in groups that see a product; who is in one of them may also ask for a subscription."""
    if not product.published:
        return ()
    return (Entity.DEVELOPERS, Entity.GUESTS) if product.visible_to_guests else (Entity.DEVELOPERS,)
