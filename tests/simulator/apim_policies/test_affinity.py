"""Products with a home node: where requests go, and who takes over, by the gateway's own policies and pools."""

from __future__ import annotations

import pytest

from tests.simulator.apim_policies.lab import KEY, OTHER_KEY, Lab, answer, service

pytestmark = pytest.mark.anyio


async def hosts(lab: Lab, key: str, count: int = 4) -> set[str]:
    before = len(lab.sent)
    for _ in range(count):
        await lab.ask(key=key)
    return {url.split("/")[2] for url, _, _ in lab.sent[before:]}


async def test_with_affinity_a_product_stays_on_its_node() -> None:
    lab = Lab(service(affinity="product"))
    first, second = await hosts(lab, KEY), await hosts(lab, OTHER_KEY)
    assert len(first) == len(second) == 1
    assert first != second


async def test_without_affinity_requests_go_round() -> None:
    assert len(await hosts(Lab(service()), KEY)) == 2


async def test_another_node_takes_over_while_the_home_rests() -> None:
    lab = Lab(service(affinity="product"))
    (home,) = await hosts(lab, OTHER_KEY, 1)
    lab.replies = [answer(503) for _ in range(20)]
    await hosts(lab, OTHER_KEY, 3)
    lab.replies = []
    assert home not in await hosts(lab, OTHER_KEY, 2)


async def test_a_drained_home_moves_the_product() -> None:
    lab = Lab(service(affinity="product", drain=[1]))
    assert await hosts(lab, KEY) == await hosts(lab, OTHER_KEY) == {"10.0.0.5:8000"}
