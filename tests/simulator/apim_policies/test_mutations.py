"""Nothing in our policies is there for nothing: without any one of its elements, some promise is broken.

A mutant is caught when the lab cannot read it, or when a promise fails. The static checker's part is told apart: what
only `policy_rules` would notice is listed here by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from gateway_policies.rules import violations
from gateway_policies.source import PolicyFault
from simulator.apim_policies.gateway import Gateway
from simulator.apim_policies.gateway_config import DEFAULT_POLICY, GatewayConfig

from .lab import Lab, service
from .mutants import altered, mutants
from .scenarios import SCENARIOS

SERVICE = service()
API, AZURE, BEARER = (api.policy for api in SERVICE.apis)
REWRITE = next(operation.policy for operation in SERVICE.apis[1].operations if operation.id == "create-embedding")
PRODUCT = next(product.policy for product in SERVICE.products if product.id == "developers")

SAYS_A_DEFAULT_ALOUD = {
    "/forward-request@follow-redirects taken out",
    "/forward-request@fail-on-error-status-code taken out",
}
"""Azure's defaults, written down so that a reader need not know them: without them nothing changes."""
BUFFERS_ALOUD = {"/forward-request@buffer-request-body taken out"}  # of the bearer API, which never tries again
NEVER_WAITED = "/backend/retry/retry@interval: 1 → 2"
"""Azure wants an interval; with one retry that comes at once, nobody ever waits for it."""
SHARED = "/on-error/choose"
"""The answers to errors are one file for all APIs; the first API's mutants are theirs."""
ONLY_THE_CHECKER_SEES = {
    "/backend taken out",  # of a product: the API's policy forwards by itself and never asks for the product's
    "/backend/base taken out",
}


def with_api(text: str) -> GatewayConfig:
    return replace(SERVICE, apis=(replace(SERVICE.apis[0], policy=text), *SERVICE.apis[1:]))


def with_bearer(text: str) -> GatewayConfig:
    return replace(SERVICE, apis=(*SERVICE.apis[:2], replace(SERVICE.apis[2], policy=text)))


def with_rewrite(text: str) -> GatewayConfig:
    azure = SERVICE.apis[1]
    operations = (replace(each, policy=text) if each.id == "create-embedding" else each for each in azure.operations)
    return replace(SERVICE, apis=(SERVICE.apis[0], replace(azure, operations=tuple(operations)), SERVICE.apis[2]))


def with_product(text: str) -> GatewayConfig:
    changed = (replace(product, policy=text) if product.id == "developers" else product for product in SERVICE.products)
    return replace(SERVICE, products=tuple(changed))


def breaks(mutated: GatewayConfig) -> str | None:
    """The first promise that a mutant breaks; None for a survivor."""
    made: dict[str, Gateway] = {}

    def make(outer: str = DEFAULT_POLICY) -> Lab:
        lab = Lab(replace(mutated, policy=outer), made.get(outer))
        made.setdefault(outer, lab.gateway)
        return lab

    for name, check in SCENARIOS.items():
        try:
            asyncio.run(check(make))
        except PolicyFault as fault:
            return f"cannot be read: {fault}"
        except Exception:
            return name
    return None


def survivors(text: str, install: Callable[[str], GatewayConfig]) -> dict[str, str]:
    return {name: mutant for name, mutant in _own(mutants(text), text) if breaks(install(mutant)) is None}


def _own(found: Iterable[tuple[str, str]], text: str) -> Iterator[tuple[str, str]]:
    return ((name, mutant) for name, mutant in found if text != BEARER or not name.startswith(SHARED))


@pytest.mark.parametrize(
    ("text", "install", "expected"),
    [
        (API, with_api, {f"/backend/retry/retry{way}" for way in SAYS_A_DEFAULT_ALOUD}),
        (PRODUCT, with_product, ONLY_THE_CHECKER_SEES),
        (BEARER, with_bearer, {f"/backend{way}" for way in SAYS_A_DEFAULT_ALOUD | BUFFERS_ALOUD}),
        (REWRITE, with_rewrite, set()),
    ],
    ids=["api", "product", "bearer", "rewrite"],
)
def test_every_element_and_attribute_is_needed(
    text: str, install: Callable[[str], GatewayConfig], expected: set[str]
) -> None:
    left = survivors(text, install)
    assert set(left) == expected
    for name in expected & ONLY_THE_CHECKER_SEES:
        assert violations(left[name])


@pytest.mark.parametrize(
    ("text", "install", "expected"),
    [(API, with_api, {NEVER_WAITED}), (PRODUCT, with_product, set()), (BEARER, with_bearer, set())],
    ids=["api", "product", "bearer"],
)
def test_every_number_and_word_is_needed(
    text: str, install: Callable[[str], GatewayConfig], expected: set[str]
) -> None:
    found = _own(altered(text), text)
    assert {name for name, mutant in found if breaks(install(mutant)) is None} == expected


def test_there_are_mutants() -> None:
    assert len(list(mutants(API))) > 150
    assert len(list(mutants(PRODUCT))) > 25
    assert len(list(altered(API))) > 100


def test_the_promises_hold_without_a_mutation() -> None:
    """Else every mutant would be caught for nothing."""
    assert breaks(SERVICE) is None
