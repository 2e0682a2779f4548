"""Who owns a gateway's products and subscriptions: this stack, or others (never deleted here). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infra.operations.arm_gateway import LiveProduct, LiveSubscription
from plan.azure.gateway_model import GatewayPlan

ALL_ACCESS = "master"
"""The built-in subscription of every service, which opens everything; our API's policy refuses its key."""


@dataclass(frozen=True)
class Inventory:
    """What the gateway holds besides the plan.

    `foreign_products` have another owner. `foreign_subscriptions` are to products of ours, but not ours: people
    who subscribed in the portal, say. `bypasses` open the API past every product's limits. `blocked` are products that
    the next `up` would delete, with the foreign subscriptions that stand in the way.
    """

    foreign_products: tuple[LiveProduct, ...]
    foreign_subscriptions: tuple[LiveSubscription, ...]
    bypasses: tuple[LiveSubscription, ...]
    blocked: Mapping[str, tuple[str, ...]]

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why the next `up` must not run, one sentence for each product."""
        return tuple(
            f"product '{product}' is no longer in the stack file, and {len(names)} subscriptions that this program did "
            f"not make would go with it: {', '.join(names)}; move or delete them in the portal first, or keep the "
            "product with `published: false`"
            for product, names in sorted(self.blocked.items())
        )

    @property
    def lost_by_destroy(self) -> tuple[str, ...]:
        """What `destroy` takes from others, one sentence for each product."""
        found: dict[str, list[str]] = {}
        for each in self.foreign_subscriptions:
            found.setdefault(str(each.product), []).append(_called(each))
        return tuple(
            f"product '{product}' has {len(names)} subscriptions that this program did not make: {', '.join(names)}"
            for product, names in sorted(found.items())
        )


def take(
    gateway: GatewayPlan,
    deployed: Iterable[str],
    live_products: Iterable[LiveProduct],
    live_subscriptions: Iterable[LiveSubscription],
) -> Inventory:
    """Compare the plan, and the products that the last `up` left (`deployed`), with what Azure says."""
    planned = {product.id.casefold(): product for product in gateway.products}
    ours = set(planned) | {product.casefold() for product in deployed}
    leaving = ours - set(planned)
    sids = {each.id.casefold() for product in gateway.products for each in product.subscriptions}
    own = [each for each in live_subscriptions if each.sid.casefold() not in sids | {ALL_ACCESS}]
    # Of a product that leaves the plan, subscriptions that the program made go with it; their ids say so.
    foreign = [
        each
        for each in own
        if each.product is not None
        and each.product.casefold() in ours
        and not (each.product.casefold() in leaving and each.sid.casefold().startswith(f"{each.product.casefold()}_"))
    ]
    blocked: dict[str, tuple[str, ...]] = {}
    for each in sorted(foreign, key=lambda subscription: subscription.display_name):
        product = str(each.product)
        if product.casefold() in leaving:
            blocked[product] = (*blocked.get(product, ()), _called(each))
    return Inventory(
        foreign_products=tuple(
            sorted((each for each in live_products if each.id.casefold() not in ours), key=lambda product: product.id)
        ),
        foreign_subscriptions=tuple(sorted(foreign, key=lambda each: (str(each.product), each.sid))),
        bypasses=tuple(sorted((each for each in own if each.product is None), key=lambda each: each.sid)),
        blocked=blocked,
    )


def _called(subscription: LiveSubscription) -> str:
    owner = f" of {subscription.owner}" if subscription.owner else ""
    return f"{subscription.display_name}{owner}"
