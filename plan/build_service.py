"""The part of a plan that every target builds alike: models, base models of nodes, products. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plan.model import ProductPlan, QuotaPlan, ServedModel, ServingPlan, SubscriptionPlan
from plan.placement import Placement
from plan.settings.gateway import Gateway, Product
from plan.settings.service import Serving


def serving_plan(serving: Serving, numbers: Sequence[int], bases: Mapping[str, str]) -> ServingPlan:
    """Served models on the nodes with these numbers. `bases` maps each served name to its base model."""
    ports = serving.ports
    return ServingPlan(
        topology=serving.topology,
        models=tuple(
            ServedModel(
                name=name,
                base=bases[name],
                nodes=tuple(sorted(placement.nodes or numbers)),
                system_prompt=placement.system_prompt,
                routes=placement.routes,
            )
            for name, placement in sorted(serving.models.items())
        ),
        wrapper_port=ports.wrapper,
        vllm_port=ports.vllm,
        ray_gcs_port=ports.ray_gcs,
        ray_client_port=ports.ray_client,
        ray_dashboard_port=ports.ray_dashboard,
        max_unavailable=serving.max_unavailable,
    )


def base_models(serving: Serving, numbers: Sequence[int], bases: Mapping[str, str]) -> dict[int, str]:
    """The base model of each node; a rule sees to it that there is exactly one."""
    return {
        number: bases[name] for name, placement in serving.models.items() for number in (placement.nodes or numbers)
    }


def products_plan(gateway: Gateway, placement: Placement) -> tuple[ProductPlan, ...]:
    """The products by id, each with the models that it may call."""
    return tuple(product_plan(name, product, placement) for name, product in sorted(gateway.products.items()))


def product_plan(name: str, product: Product, placement: Placement, prefix: str = "") -> ProductPlan:
    """One product's settings with the models that it may call; `prefix` comes before its ids."""
    quota = product.token_quota
    return ProductPlan(
        id=f"{prefix}{name}",
        display_name=product.display_name,
        description=product.description,
        models=placement.models_of(product),
        routes=product.routes,
        system_prompt=product.system_prompt,
        requests_per_minute=product.requests_per_minute,
        tokens_per_minute=product.tokens_per_minute,
        weight=product.weight,
        subscriptions=tuple(
            SubscriptionPlan(name, subscription.name, subscription.owner, prefix)
            for subscription in sorted(product.subscriptions, key=lambda each: each.name)
        ),
        token_quota=QuotaPlan(quota.tokens, quota.period) if quota else None,
    )
