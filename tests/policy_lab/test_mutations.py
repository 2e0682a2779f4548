"""Nothing in our policies is there for nothing: without any one of its elements, some promise is broken.

A mutant is caught when the lab cannot read it, or when a promise fails. The static checker's part is told apart: what
only `policy_rules` would notice is listed here by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from components.gateway.policy_rules import violations
from infra.markup import PolicyFault
from simulator.policy_lab.gateway import Gateway
from simulator.policy_lab.service import DEFAULT_POLICY, Service

from .lab import Lab, service
from .mutants import mutants
from .scenarios import SCENARIOS

SERVICE = service()
API = SERVICE.apis[0].policy
PRODUCT = next(product.policy for product in SERVICE.products if product.id == "developers")

SAYS_A_DEFAULT_ALOUD = {
    "/backend/retry/forward-request@follow-redirects taken out",
    "/backend/retry/forward-request@fail-on-error-status-code taken out",
}
"""Azure's defaults, written down so that a reader need not know them: without them nothing changes."""
ONLY_THE_CHECKER_SEES = {
    "/backend taken out",  # of a product: the API's policy forwards by itself and never asks for the product's
    "/backend/base taken out",
}


def with_api(text: str) -> Service:
    return replace(SERVICE, apis=(replace(SERVICE.apis[0], policy=text),))


def with_product(text: str) -> Service:
    changed = (replace(product, policy=text) if product.id == "developers" else product for product in SERVICE.products)
    return replace(SERVICE, products=tuple(changed))


def breaks(mutated: Service) -> str | None:
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


def survivors(text: str, install: Callable[[str], Service]) -> dict[str, str]:
    return {name: mutant for name, mutant in mutants(text) if breaks(install(mutant)) is None}


@pytest.mark.parametrize(
    ("text", "install", "expected"),
    [(API, with_api, SAYS_A_DEFAULT_ALOUD), (PRODUCT, with_product, ONLY_THE_CHECKER_SEES)],
    ids=["api", "product"],
)
def test_every_element_and_attribute_is_needed(
    text: str, install: Callable[[str], Service], expected: set[str]
) -> None:
    left = survivors(text, install)
    assert set(left) == expected
    for name in expected & ONLY_THE_CHECKER_SEES:
        assert violations(left[name])


def test_there_are_mutants() -> None:
    assert len(list(mutants(API))) > 150
    assert len(list(mutants(PRODUCT))) > 25


def test_the_promises_hold_without_a_mutation() -> None:
    """Else every mutant would be caught for nothing."""
    assert breaks(SERVICE) is None
