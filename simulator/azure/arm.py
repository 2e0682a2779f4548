"""`python -m simulator.azure.arm`: a stand-in for Azure Resource Manager's HTTP api, over the simulated subscription.

Only what `infra` asks for: a service's products and subscriptions, their keys, regenerating a key; private DNS zones
and their links; what `arm_subscription.py` lists and purges; what `arm_power.py` starts; what `arm_resources.py` shows;
alerts that fired (`alarms.py`), log alerts of a group.
Anything else is 404 with a text that says so. It listens on loopback and checks no token: none is ever sent there.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from simulator.azure import alarms, arm_power, arm_resources, arm_subscription
from simulator.azure.arm_power import ASYNC_HEADER
from simulator.azure.cloud.functions import subscription_keys
from simulator.azure.errors import SIMULATED, ArmError
from simulator.azure.rules.compute import run_command
from simulator.azure.settings import from_environment
from simulator.azure.state.store import Resource, State, Store

HOST: Final = "127.0.0.1"
PAGE: Final = 100
_IN_GROUP: Final = r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers"
_SERVICE: Final = rf"{_IN_GROUP}/Microsoft\.ApiManagement/service/[^/]+"
_VM: Final = rf"{_IN_GROUP}/Microsoft\.Compute/virtualMachines/[^/]+"
_ZONES: Final = r"Microsoft\.Network/privateDnsZones"
_COLLECTIONS: Final = {
    re.compile(pattern, re.IGNORECASE): key
    for pattern, key in (
        (rf"(?P<inside>{_SERVICE})/products", "apimanagement:Product"),
        (rf"(?P<inside>{_SERVICE})/subscriptions", "apimanagement:Subscription"),
        (rf"(?P<inside>{_VM})/runCommands", run_command.KIND),
        (
            r"(?P<inside>/subscriptions/[^/]+/resourceGroups/[^/]+)/providers/Microsoft\.Insights/scheduledQueryRules",
            "monitor:ScheduledQueryRule",
        ),
        (rf"(?P<inside>/subscriptions/[^/]+)/providers/{_ZONES}", "privatedns:PrivateZone"),
        (rf"(?P<inside>{_IN_GROUP}/{_ZONES}/[^/]+)/virtualNetworkLinks", "privatedns:VirtualNetworkLink"),
    )
}
_ALERTS: Final = re.compile(r"/subscriptions/[^/]+/providers/Microsoft\.AlertsManagement/alerts", re.IGNORECASE)
_ACTION: Final = re.compile(
    rf"(?P<id>{_SERVICE}/subscriptions/[^/]+)/(?P<action>listSecrets|regenerate(?P<which>Primary|Secondary)Key)",
    re.IGNORECASE,
)


class ArmApi:
    """Answers to requests; each is a status and a body."""

    def __init__(self, store: Store, page: int = PAGE) -> None:
        self._store, self._page = store, page

    def answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = MappingProxyType({}),
        body: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[int, dict[str, Any]]:
        """One request."""
        try:
            if method == "GET" and (listed := self._listed(path, query)) is not None:
                return 200, self._page_of(listed, path, query)
            if method == "POST" and (found := _ACTION.fullmatch(path)):
                if found["which"] is None:
                    return 200, self._keys(found["id"])
                return self._regenerate(found["id"], found["which"].lower())
            with self._store.transaction() as state:
                for answered in (arm_power.answer, arm_subscription.answer):
                    if (said := answered(state, method, path)) is not None:
                        return said
                if (
                    said := arm_resources.answer(state, method, path, body, expand=query.get("$expand", ""))
                ) is not None:
                    return said
        except ArmError as error:
            return error.status, {"error": {"code": error.code, "message": f"{SIMULATED} {error.message}"}}
        return 404, {"error": {"code": "NotImitated", "message": f"{SIMULATED} {method} {path} is not imitated"}}

    def _listed(self, path: str, query: Mapping[str, str]) -> list[dict[str, Any]] | None:
        with self._store.reading() as state:
            if _ALERTS.fullmatch(path):
                return list(alarms.listed(state, query))
            for pattern, key in _COLLECTIONS.items():
                if found := pattern.fullmatch(path):
                    return _inside(state, found["inside"], key)
            return arm_subscription.items(state, path)

    def _page_of(self, items: list[dict[str, Any]], path: str, query: Mapping[str, str]) -> dict[str, Any]:
        skip = int(query.get("$skip", 0))
        page = items[skip : skip + self._page]
        more = urlencode({**query, "$skip": skip + self._page}, safe="$")
        rest = {"nextLink": f"{path}?{more}"} if len(items) > skip + self._page else {}
        return {"value": page, "count": len(items), **rest}

    def _keys(self, resource_id: str) -> dict[str, Any]:
        with self._store.reading() as state:
            return subscription_keys(state.salt, _require(state, resource_id))

    def _regenerate(self, resource_id: str, which: str) -> tuple[int, dict[str, Any]]:
        with self._store.transaction() as state:
            _require(state, resource_id).notes[f"{which}Key"] = secrets.token_hex(16)
        return 204, {}


def _inside(state: State, parent: str, key: str) -> list[dict[str, Any]]:
    if "/providers/" in parent:  # a subscription is no entry of its own
        _require(state, parent)
    inside = [item for item in state.inside(parent) if item.key == key]
    return [arm_resources.shown(item) for item in sorted(inside, key=lambda item: item.id)]


def _require(state: State, resource_id: str) -> Resource:
    found = state.get(resource_id)
    if found is None:
        raise ArmError(404, "ResourceNotFound", f"'{resource_id.rpartition('/')[2]}' could not be found.")
    return found


def serve(store: Store, port: int = 0, page: int = PAGE) -> ThreadingHTTPServer:
    """A server on loopback; the caller runs and closes it."""
    api = ArmApi(store, page)

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            url = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(url.query).items()}
            sent = self.rfile.read(int(self.headers["Content-Length"] or 0))
            status, body = api.answer(self.command, url.path, asked, json.loads(sent or b"{}"))
            content = b"" if status in (202, 204) else json.dumps(body).encode()
            self.send_response(status)
            if operation := body.get(ASYNC_HEADER):
                self.send_header(ASYNC_HEADER, f"http://{self.headers['Host']}{operation}?api-version=1")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = do_PUT = _respond  # noqa: N815 - the library's names

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing: paths name subscriptions."""

    return ThreadingHTTPServer((HOST, port), Handler)


def main(arguments: list[str] | None = None) -> int:
    """Run until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m simulator.azure.arm", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    server = serve(Store(from_environment().state), parser.parse_args(arguments).port)
    sys.stdout.write(f"simulated: export ARM_ENDPOINT=http://{HOST}:{server.server_address[1]}\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
