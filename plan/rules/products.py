"""Rules about products and the nodes behind them, on every target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from huddle.wrapper.routes import offered
from plan.rules.service import Findings, Known
from plan.settings.gateway import Product
from plan.settings.service import ServiceSettings
from plan.vocabulary import Affinity


def products_and_models(settings: ServiceSettings, _: Known) -> Findings:
    """Ids differ, models are served, limits make sense."""
    served = set(settings.serving.models)
    for folded, count in Counter(name.casefold() for name in settings.gateway.products).items():
        if count > 1:
            yield "gateway.products", f"{count} products have the id '{folded}' (ids are compared without case)"
    for name, product in settings.gateway.products.items():
        key = f"gateway.products.{name}"
        for model in product.models or ():
            if model not in served:
                allowed = ", ".join(sorted(served))
                yield f"{key}.models", f"'{model}' is not served by this stack; allowed: {allowed}"
        yield from _limits(key, product)


def _limits(key: str, product: Product) -> Findings:
    quota = product.token_quota
    if quota and quota.tokens < product.tokens_per_minute:
        yield (
            f"{key}.token_quota.tokens",
            f"{quota.tokens} is less than tokens_per_minute {product.tokens_per_minute}, which then never counts; "
            f"allowed: {product.tokens_per_minute} or more",
        )


def routes_reach_models(settings: ServiceSettings, known: Known) -> Findings:
    """A product has at least one route that one of its models has, too."""
    placement, models = known.placement(settings), settings.serving.models
    for name, product in settings.gateway.products.items():
        own = {model: models[model].routes for model in placement.models_of(product) if model in models}
        if product.routes and own and not any(offered(product.routes) & offered(routes) for routes in own.values()):
            choices = sorted({word.value for routes in own.values() for word in routes or ()})
            yield (
                f"gateway.products.{name}.routes",
                f"{', '.join(product.routes)} leaves none of its models usable ({', '.join(own)}); "
                f"allowed: one or more of {', '.join(choices)}",
            )


def models_share_nodes(settings: ServiceSettings, known: Known) -> Findings:
    """The gateway picks nodes by product, never by reading a body: a product's models must share their nodes."""
    placement = known.placement(settings)
    for name, product in settings.gateway.products.items():
        groups: dict[frozenset[int], list[str]] = {}
        for model in placement.models_of(product):
            if model in settings.serving.models:
                groups.setdefault(placement.nodes_of(model), []).append(model)
        if len(groups) > 1:
            wanted = sorted(model for group in groups.values() for model in group)
            choices = " or ".join(f"[{', '.join(group)}]" for group in sorted(groups.values()))
            yield (
                f"gateway.products.{name}.models",
                f"{', '.join(wanted)} are not on the same nodes, and the gateway chooses nodes by product; "
                f"allowed: {choices}",
            )


def nodes_behind(settings: ServiceSettings, known: Known) -> Findings:
    """Drained and weighted nodes exist, and none of the models loses its last node."""
    gateway, placement = settings.gateway, known.placement(settings)
    for key, numbers in (("drain", gateway.drain), ("pool", tuple(gateway.pool))):
        for number in numbers:
            if number not in known.nodes:
                yield f"gateway.{key}", f"{number} is not a node; allowed: {known.span}"
    if gateway.pool and gateway.affinity is not Affinity.NONE:
        yield "gateway.pool", f"can't stand beside `affinity: {gateway.affinity}`, which sets priorities itself"
    served: dict[frozenset[int], str] = {}
    for model in sorted(settings.serving.models):
        served.setdefault(placement.nodes_of(model), model)
    for nodes, model in served.items():
        if nodes and nodes <= set(gateway.drain):
            only = ", ".join(map(str, sorted(nodes)))
            yield "gateway.drain", f"{only} are all nodes that serve {model}; leave at least one in"


def lists(settings: ServiceSettings) -> dict[str, Sequence[object]]:
    """Lists whose items may stand only once."""
    found: dict[str, Sequence[object]] = {"gateway.drain": settings.gateway.drain}
    for name, product in settings.gateway.products.items():
        found[f"gateway.products.{name}.models"] = product.models or ()
        found[f"gateway.products.{name}.routes"] = product.routes or ()
        found[f"gateway.products.{name}.subscriptions"] = [each.name for each in product.subscriptions]
    return found
