"""The client of Azure Resource Manager, against the simulator's stand-in and against servers that misbehave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from huddle.errors import InputError
from infra.operations import arm
from infra.operations import arm_gateway as gateway
from plan.vocabulary import KeyName
from simulator.azure.arm import serve
from simulator.azure.state.store import Resource, Store

GATEWAY = "/subscriptions/0/resourceGroups/g/providers/Microsoft.ApiManagement/service/gw"
NAMES = [f"p{number:02}" for number in range(7)]


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def azure(tmp_path: Path) -> Iterator[arm.Arm]:
    store = Store(tmp_path / "azure.json")
    with store.transaction() as state:
        state.put(Resource(GATEWAY, "azure-native:apimanagement:ApiManagementService", {}))
        for name in NAMES:
            product = {"displayName": name.upper()}
            state.put(Resource(f"{GATEWAY}/products/{name}", "azure-native:apimanagement:Product", product))
        for sid, scope, owner in (("p00_web", f"{GATEWAY}/products/p00", None), ("all", "/apis", "/users/ada")):
            properties = {"displayName": sid, "scope": scope, "state": "active", "ownerId": owner}
            state.put(Resource(f"{GATEWAY}/subscriptions/{sid}", "azure-native:apimanagement:Subscription", properties))
    with running(serve(store, page=3)) as endpoint, arm.connect({arm.ENDPOINT_VARIABLE: endpoint}) as client:
        yield client


def test_a_list_is_read_to_its_last_page(azure: arm.Arm) -> None:
    assert [product.id for product in gateway.products(azure, GATEWAY)] == NAMES


def test_a_subscription_says_which_product_it_opens(azure: arm.Arm) -> None:
    found = {each.sid: (each.product, each.owner) for each in gateway.subscriptions(azure, GATEWAY)}
    assert found == {"p00_web": ("p00", None), "all": (None, "ada")}


@pytest.mark.parametrize("which", KeyName)
def test_a_renewed_key_is_another_and_its_twin_stays(azure: arm.Arm, which: KeyName) -> None:
    before = gateway.keys(azure, GATEWAY, "p00_web")
    gateway.regenerate(azure, GATEWAY, "p00_web", which)
    after = gateway.keys(azure, GATEWAY, "p00_web")
    assert (after.primary == before.primary) == (which is KeyName.SECONDARY)
    assert (after.secondary == before.secondary) == (which is KeyName.PRIMARY)
    assert after.primary not in repr(after)


def test_what_is_not_there_is_one_sentence_with_the_next_step(azure: arm.Arm) -> None:
    with pytest.raises(arm.ArmError, match=r"^Azure refused \(ResourceNotFound\): .*'nobody'.* Run `up` first"):
        gateway.keys(azure, GATEWAY, "nobody")


def answering(status: int, body: bytes) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def ask(endpoint: str) -> list[gateway.LiveProduct]:
    with arm.connect({arm.ENDPOINT_VARIABLE: endpoint}) as client:
        return list(gateway.products(client, GATEWAY))


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (403, b'{"error": {"code": "AuthorizationFailed", "message": "no"}}', "API Management Service Contributor"),
        (409, b'{"error": {"code": "Conflict", "message": "busy"}}', "run the command again in a minute"),
        (502, b"<html>", r"Azure refused \(502\)"),
        (400, b'["no"]', r"Azure refused \(400\)"),
        (400, b'{"error": "no"}', r"Azure refused \(400\)"),
        (200, b"<html>", "is no JSON object. Is a proxy in between"),
        (200, b"[]", "is no JSON object"),
    ],
)
def test_a_refusal_says_what_to_do(status: int, body: bytes, sentence: str) -> None:
    with running(answering(status, body)) as endpoint, pytest.raises(arm.ArmError, match=sentence):
        ask(endpoint)


@pytest.mark.parametrize(
    ("path", "role"),
    [
        (GATEWAY, "`API Management Service Contributor` on the gateway"),
        ("/subscriptions/0/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n", "`Virtual Machine Contr"),
        ("/subscriptions/0/resources", "`Reader` on the subscription"),
        ("/subscriptions/0/providers/Microsoft.KeyVault/deletedVaults", "`Reader` on the subscription"),
        ("/subscriptions/0/providers/Microsoft.KeyVault/locations/eastus2/deletedVaults/v", "`Contributor` on the s"),
    ],
)
def test_a_missing_right_names_the_role_that_has_it(path: str, role: str) -> None:
    with (
        running(answering(403, b"{}")) as endpoint,
        arm.connect({arm.ENDPOINT_VARIABLE: endpoint}) as client,
        pytest.raises(arm.ArmError, match=role),
    ):
        client.get(path, "1")


def test_a_next_page_somewhere_else_is_not_followed() -> None:
    body = b'{"value": [], "nextLink": "https://evil.example/next?x=1"}'
    elsewhere = r"evil\.example, which is not 127\.0\.0\.1"
    with running(answering(200, body)) as endpoint, pytest.raises(arm.ArmError, match=elsewhere):
        ask(endpoint)


def test_nobody_listening_is_one_sentence() -> None:
    server = answering(200, b"{}")
    server.server_close()
    with pytest.raises(arm.ArmError, match="did not answer"):
        ask(f"http://127.0.0.1:{server.server_address[1]}")


@pytest.mark.parametrize(
    "endpoint", ["https://evil.example", "http://management.azure.com", "https://127.0.0.1.evil.example"]
)
def test_no_token_goes_anywhere_but_to_azure(endpoint: str) -> None:
    with pytest.raises(InputError, match="is not allowed; allowed: https://management"):
        arm.connect({arm.ENDPOINT_VARIABLE: endpoint})


def test_a_token_goes_with_every_request() -> None:
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as endpoint, arm.Arm(endpoint, lambda: "t") as client:
        assert list(gateway.products(client, GATEWAY)) == []
    assert seen == ["Bearer t"]


def test_what_is_asked_beside_the_version_is_spelled_as_azure_spells_it() -> None:
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            seen.append(f"{self.path} {body.decode()}".strip())
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_GET = do_PUT  # noqa: N815 - the library's name

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = running(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
    with server as endpoint, arm.connect({arm.ENDPOINT_VARIABLE: endpoint}) as client:
        assert client.is_stand_in
        assert list(client.list("/skus", "1", filter="location eq 'x'")) == []
        client.get("/vm", "1", expand="instanceView")
        client.put("/vm", "1", {"a": 1})
    assert seen == [
        "/skus?api-version=1&$filter=location%20eq%20%27x%27",
        "/vm?api-version=1&$expand=instanceView",
        '/vm?api-version=1 {"a":1}',
    ]
