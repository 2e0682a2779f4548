"""A stack in somebody else's service: what its policies tell the node is what the node's wrapper knows."""

from __future__ import annotations

import pytest

from cloud_init.bundle.wrapper_config import wrapper_config
from huddle.headers import PRODUCT_HEADER, TENANT_HEADER
from tests.simulator.apim_policies.lab import KEY, Lab, plan, service

pytestmark = pytest.mark.anyio

EXISTING = {
    "existing": {
        "id": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/hub/providers/"
        "Microsoft.ApiManagement/service/contoso",
        "subnet": "10.9.0.0/27",
    }
}


async def test_a_request_reaches_a_node_that_knows_its_product() -> None:
    lab, built = Lab(service(**EXISTING)), plan(**EXISTING)
    assert (await lab.ask()).status == 200
    sent = lab.last.headers
    assert sent.get(TENANT_HEADER) == "dev-developers_playground"
    assert sent.get(PRODUCT_HEADER) in wrapper_config(built, built.nodes[0])["products"]


async def test_the_other_addresses_open_too() -> None:
    lab = Lab(service(**EXISTING))
    asked = await lab.ask("/bearer/v1/chat/completions", key=None, headers={"Authorization": f"Bearer {KEY}"})
    assert asked.status == 200
    assert (await lab.ask("/openai/deployments/x/chat/completions", key=None, headers={"api-key": KEY})).status == 200
