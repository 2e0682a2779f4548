"""Two stacks in one landing zone: one VNet, one private DNS zone, one API Management. Neither touches the other's."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.operations import failures, private_zones
from infra.operations.arm import Arm
from infra.rehearsal import existing
from infra.rehearsal.record import Change, Record
from plan import stack_file
from simulator.azure.arm import serve
from simulator.azure.settings import STATE_VARIABLE
from simulator.azure.state.store import Store
from tests.engine.life import Life

HUB = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/hub/providers"
ZONE = f"{HUB}/Microsoft.Network/privateDnsZones/privatelink.vaultcore.azure.net"
SERVICE = f"{HUB}/Microsoft.ApiManagement/service/contoso-apis"
Edit = Callable[[dict[str, Any]], None]
OpenLife = Callable[..., Life]


def landing_zone(name: str, number: int) -> dict[str, Any]:
    """A stack in the hub's VNet and service, with ranges and a path of its own."""
    document = yaml.safe_load((stack_file.ROOT / "tests/stacks/Pulumi.landing-zone.yaml").read_text(encoding="utf-8"))
    config = {key.removeprefix("h100-inference:"): value for key, value in copy.deepcopy(document["config"]).items()}
    config["nodes"] |= {"count": 1, "quota_vcpus": 200}
    del config["network"]["private_dns"]
    config["network"] |= {
        "private_dns_zones": [ZONE],
        "nodes_subnet": f"10.50.{number}.0/25",
        "endpoints_subnet": f"10.50.{number}.128/27",
    }
    config["gateway"]["api_path"] = f"{name}/v1"
    return config


class LandingZone:
    """Stacks that share one simulated subscription."""

    def __init__(self, root: Path, open_life: OpenLife) -> None:
        self._root, self._open, self._count, self._state = root, open_life, 0, root / "azure.json"
        (root / "stacks").mkdir(parents=True)

    def stack(self, name: str, edit: Edit = lambda _: None) -> Life:
        config = landing_zone(name, self._count)
        edit(config)
        self._count += 1
        own = {key if ":" in key else f"h100-inference:{key}": value for key, value in config.items()}
        file = self._root / "stacks" / f"Pulumi.{name}.yaml"
        file.write_text(yaml.safe_dump({"config": own}), encoding="utf-8")
        life = self._open(name, root=self._root)
        workspace = life.sandbox.stack.workspace
        workspace.env_vars = {**workspace.env_vars, STATE_VARIABLE: str(self._state)}
        existing.put(life.plan(), self._state)
        return life

    def ids(self) -> set[str]:
        return {resource.id for resource in Store(self._state).read().resources.values()}

    def entities(self) -> set[str]:
        """What stacks made in the service: kind and id of each."""
        inside = {each.removeprefix(f"{SERVICE}/") for each in self.ids() if each.startswith(f"{SERVICE}/")}
        return {"/".join(each.split("/")[:2]) for each in inside if not each.startswith("groups/")}

    @contextmanager
    def azure(self) -> Iterator[Arm]:
        server = serve(Store(self._state))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            with Arm(f"http://127.0.0.1:{server.server_address[1]}", None) as arm:
                yield arm
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, open_life: OpenLife) -> LandingZone:
    return LandingZone(tmp_path_factory.mktemp("landing") / "root", open_life)


@pytest.fixture(scope="module")
def before(place: LandingZone) -> set[str]:
    """What the hub is before anybody comes."""
    return place.ids()


@pytest.fixture(scope="module")
def blue(place: LandingZone) -> Life:
    life = place.stack("blue")
    life.up()
    return life


def changes(record: Record) -> dict[str, Change]:
    return record.touched()


def refused(life: Life) -> failures.Failure:
    text, _ = life.fail(life.sandbox.stack.up)
    known = failures.explain(text, life.plan())
    assert known is not None, f"nobody explains: {text[-800:]}"
    return known


def test_both_come_up_and_neither_destroys_the_others(place: LandingZone, blue: Life) -> None:
    hub = {SERVICE, ZONE, f"{ZONE}/virtualNetworkLinks/hub", f"{HUB}/Microsoft.Network/virtualNetworks/hub"}
    of_blue, in_blue = place.ids(), place.entities()
    green = place.stack("green")
    green.up()
    of_both = place.ids()
    assert {each.split("/")[1].partition("-")[0] for each in place.entities() - in_blue} == {"green"}
    assert {each.split("/")[1].partition("-")[0] for each in in_blue} == {"blue"}
    assert of_blue < of_both
    assert len([each for each in of_both if each.startswith(f"{ZONE}/A/")]) == 2, "a record of each vault"
    for life in (blue, green):
        assert changes(life.preview()) == {}, "the other one changed something of it"
        life.refresh()
        assert changes(life.preview()) == {}

    green.destroy()
    assert place.ids() == of_blue
    blue.refresh()
    assert changes(blue.preview()) == {}
    assert hub <= of_blue


def test_a_second_zone_of_a_name_is_told_before_and_explained_after(place: LandingZone, blue: Life) -> None:
    def own_zone(config: dict[str, Any]) -> None:
        del config["network"]["private_dns_zones"]

    red = place.stack("red", own_zone)
    with place.azure() as arm:
        (sentence,) = private_zones.in_the_way(arm, red.plan())
        assert list(private_zones.in_the_way(arm, blue.plan())) == [], "it uses that zone itself"
    assert ZONE in sentence
    assert "network.private_dns_zones" in sentence
    failure = refused(red)
    assert "resolves privatelink.vaultcore.azure.net in another private DNS zone" in failure.what
    assert "network.private_dns_zones" in failure.next_step

    red.edit(lambda settings: settings["network"].update(private_dns_zones=[ZONE]))
    red.up()
    red.destroy()


@pytest.mark.parametrize(
    ("name", "gateway", "what", "next_step"),
    [
        (
            "cyan",
            {"prefix": "blue"},
            "API Management has contoso-apis/backends/blue-node-1 already",
            "gateway.existing.prefix",
        ),
        ("pink", {"api_path": "blue/v1"}, "has the path blue/v1 already", "another gateway.api_path, such as pink/v1"),
    ],
)
def test_what_another_stack_has_is_said(
    place: LandingZone, blue: Life, name: str, gateway: dict[str, str], what: str, next_step: str
) -> None:
    def clash(config: dict[str, Any]) -> None:
        if "prefix" in gateway:
            config["gateway"]["existing"] |= gateway
        else:
            config["gateway"] |= gateway

    there = place.entities()
    life = place.stack(name, clash)
    failure = refused(life)
    assert what in failure.what
    assert next_step in failure.next_step
    life.destroy()
    assert place.entities() == there
    assert changes(blue.preview()) == {}


def test_a_stack_from_before_keeps_its_ids_or_gets_new_ones_in_a_safe_order(place: LandingZone) -> None:
    """An API under a new id wants the path of the old one, so the old one goes first; everything else goes last."""

    def without(config: dict[str, Any]) -> None:
        config["gateway"]["existing"]["prefix"] = ""
        config["gateway"] |= {"azure_openai_api": True, "bearer_api": True}

    there = place.entities()
    old = place.stack("old", without)
    old.up()
    assert {"backends/node-1", "products/apps", "apis/openai", "namedValues/backend-key"} <= place.entities()
    assert changes(old.preview()) == {}
    old.edit(lambda settings: settings["gateway"]["existing"].pop("prefix"))
    shown = changes(old.preview())
    assert shown["gateway-api-api"] is Change.REPLACE
    assert set(shown.values()) <= {Change.REPLACE, Change.UPDATE}
    old.up()
    assert {each.split("/")[1].partition("-")[0] for each in place.entities() - there} == {"old"}
    assert changes(old.preview()) == {}
    old.destroy()
    assert place.entities() == there
