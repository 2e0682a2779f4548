"""Keys and other people's products, under the real engine: rotated by the command, asked of the simulated Azure."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from infra.rehearsal.record import RUN_COMMAND
from plan import stack_file
from plan.model import subscription_id
from simulator.apim_policies.from_plan import gateway_config_of
from simulator.apim_policies.gateway_config import GatewayConfig
from simulator.apim_policies.messages import Headers, Request
from simulator.azure.arm import serve
from simulator.azure.state.store import Resource, Store
from tests.engine.life import Life
from tests.simulator.apim_policies.lab import Lab
from tools.deadlines import scaled

NAME = "developers/playground"
SID = subscription_id(*NAME.split("/"))


@pytest.fixture(scope="module")
def endpoint(created: Life) -> Iterator[str]:
    server = serve(Store(created.sandbox.azure_state))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def infra(life: Life, endpoint: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, as a person would run it who is signed in to this state and this (simulated) Azure."""
    environment = {**os.environ, **life.sandbox.stack.workspace.env_vars, "ARM_ENDPOINT": endpoint}
    return subprocess.run(
        [sys.executable, "-m", "infra.cli.main", *arguments],
        cwd=stack_file.ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(120),
    )


def keys(life: Life) -> tuple[str, str]:
    """What the stack's outputs hand out after an `up`."""
    life.up()
    outputs = life.sandbox.stack.outputs()
    return outputs["product_keys"].value[NAME], outputs["product_secondary_keys"].value[NAME]


def opens(life: Life, held: tuple[str, str], key: str) -> bool:
    """Whether the gateway's own policies, run in the policy lab over these keys, let a request with a key through."""
    service: GatewayConfig = gateway_config_of(life.plan(), backend_key="backend-key")
    subscriptions = tuple(replace(each, keys=held) if each.id == SID else each for each in service.subscriptions)
    lab = Lab(replace(service, subscriptions=subscriptions))
    body = json.dumps({"model": "hl", "messages": [{"role": "user", "content": "Hi"}]}).encode()
    headers = Headers([("Content-Type", "application/json"), ("Ocp-Apim-Subscription-Key", key)])
    response = asyncio.run(lab.gateway.handle(Request("POST", "/v1/chat/completions", [], headers, body)))
    assert response.status in (200, 401), response.status
    return response.status == 200


def rotate(life: Life, endpoint: str, *flags: str) -> dict[str, Any]:
    done = infra(life, endpoint, "keys", "rotate", "-s", "dev", NAME, "--yes", "--json", *flags)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_rotation_has_a_key_that_works_at_every_moment(created: Life, endpoint: str) -> None:
    old_primary, old_secondary = keys(created)
    assert rotate(created, endpoint)["renewed"] == "secondary"
    primary, new_secondary = keys(created)
    assert primary == old_primary, "clients still use it"
    assert new_secondary != old_secondary
    held = (primary, new_secondary)
    assert [opens(created, held, key) for key in (old_primary, new_secondary, old_secondary)] == [True, True, False]
    assert rotate(created, endpoint, "--finish")["renewed"] == "primary"
    new_primary, secondary = keys(created)
    assert secondary == new_secondary, "clients have moved to it"
    held = (new_primary, secondary)
    assert [opens(created, held, key) for key in (new_primary, secondary, old_primary)] == [True, True, False]


def test_a_rotation_touches_no_resource(created: Life, endpoint: str) -> None:
    rotate(created, endpoint)
    touched = created.up().touched_types()
    touched.pop(RUN_COMMAND, None)  # the tree's own code may have changed meanwhile; the nodes' bundle holds no key
    assert touched == {}


def test_no_key_stands_in_what_the_command_says(created: Life, endpoint: str) -> None:
    done = infra(created, endpoint, "keys", "rotate", "-s", "dev", NAME, "--yes")
    assert done.returncode == 0
    for key in keys(created):
        assert key not in done.stdout + done.stderr


def test_a_script_must_say_that_it_means_it(created: Life, endpoint: str) -> None:
    done = infra(created, endpoint, "keys", "rotate", "-s", "dev", NAME)
    assert done.returncode == 2
    assert "add --yes. The secondary key of developers/playground stops working at once" in done.stderr


def test_what_others_made_is_listed(created: Life, endpoint: str) -> None:
    (service,) = created.azure.of_type("apimanagement:ApiManagementService")
    with Store(created.sandbox.azure_state).transaction() as azure:
        theirs = f"{service.id}/products/partner"
        azure.put(Resource(theirs, "azure-native:apimanagement:Product", {"displayName": "Partner"}))
        signed_up = {"displayName": "Grace's app", "scope": f"{service.id}/products/developers", "state": "active"}
        azure.put(Resource(f"{service.id}/subscriptions/5f1e", "azure-native:apimanagement:Subscription", signed_up))
    done = infra(created, endpoint, "products", "-s", "dev", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [product["id"] for product in document["foreign_products"]] == ["partner"]
    assert [each["sid"] for each in document["foreign_subscriptions"]] == ["5f1e"]
    assert document["blocked"] == {}


def test_an_up_leaves_alone_what_others_made(created: Life) -> None:
    created.up()
    left = {resource.name for resource in created.azure.of_type("apimanagement:Product", "apimanagement:Subscription")}
    assert left >= {"partner", "5f1e"}


def test_removing_a_product_that_others_use_is_refused_by_azure_too(created: Life) -> None:
    """Even without asking first, nothing is deleted silently."""
    (service,) = created.azure.of_type("apimanagement:ApiManagementService")
    with Store(created.sandbox.azure_state).transaction() as azure:
        azure.resources[f"{service.id}/subscriptions/5f1e".lower()].refs = [f"{service.id}/products/developers".lower()]
    created.edit(lambda s: s["gateway"].update(products={"other": {"display_name": "Other"}}))
    text, _ = created.fail(created.sandbox.stack.up)
    assert "has subscriptions (/subscriptions/5f1e)" in text
    assert any(resource.name == "developers" for resource in created.azure.of_type("apimanagement:Product"))
