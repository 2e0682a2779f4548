"""Wrong values: each gives one plain sentence that names file, key, value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from huddle.errors import InputError
from huddle.yaml_source import dotted
from plan import stack_file
from tests.unit.stack_values import FILE, KEY, MODEL, REMOVED, changed, fault, faults

CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"nodez": {}}, "nodez", "is not a known key; did you mean nodes? allowed: access, environment, gateway,"),
    ({"nodes": {"cuont": 3}}, "nodes.cuont", "is not a known key; did you mean count? allowed: admin_username,"),
    (
        {"nodes": {"image": {"version": "1.2.3", "id": "x"}}},
        "nodes.image.id",
        "allowed: offer, publisher, security, sku, version",
    ),
    ({"serving": {"ports": {"wraper": 1}}}, "serving.ports.wraper", "did you mean wrapper?"),
    (
        {"serving": {"models": {MODEL: {"prompt": "x"}}}},
        f"serving.models.{MODEL}.prompt",
        "did you mean system_prompt? allowed: nodes, routes, system_prompt",
    ),
    (
        {"gateway": {"products": {"developers": {"display_name": "x", "rpm": 1}}}},
        "gateway.products.developers.rpm",
        "is not a known key; allowed: approval_required,",
    ),
    ({"access": {"bastion": {"sko": "none"}}}, "access.bastion.sko", "did you mean sku? allowed: sku, tunnel"),
    ({"environment": REMOVED}, "environment", "is required: `prod` protects data and gateway"),
    ({"nodes": {"image": REMOVED}}, "nodes.image", "is required: The VM image."),
    ({"nodes": {"image": {}}}, "nodes.image.version", "is required: Exact image version"),
    ({"target": "aws"}, "target", "'aws' is not allowed; allowed: azure"),
    ({"environment": "Prod"}, "environment", "'Prod' is not allowed; allowed: 'dev', 'test', 'prod'"),
    ({"nodes": {"priority": "low"}}, "nodes.priority", "'low' is not allowed; allowed: 'regular', 'spot'"),
    ({"model_store": {"sku": "Standard_LRS"}}, "model_store.sku", "'Standard_LRS' is not allowed; allowed: 'Premium_"),
    ({"gateway": {"inbound": "Internal"}}, "gateway.inbound", "allowed: 'public', 'private-endpoint', 'internal'"),
    ({"gateway": {"tier": "Consumption"}}, "gateway.tier", "can't work here: it cuts long-lived responses"),
    ({"gateway": {"tier": "BasicV2"}}, "gateway.tier", "allowed: Developer, Premium, StandardV2, PremiumV2"),
    ({"gateway": {"tier": "Gold"}}, "gateway.tier", "'Gold' is not allowed; allowed: 'Developer', 'Premium',"),
    ({"gateway": {"tier": None}}, "gateway.tier", "is empty; it is not allowed; allowed: 'Developer',"),
    ({"gateway": {"units": 0}}, "gateway.units", "0 must be 1 or more: Scale units."),
    (
        {"gateway": {"publisher_email": "me"}},
        "gateway.publisher_email",
        "'me' is not allowed; allowed: an e-mail address such as",
    ),
    (
        {"gateway": {"products": {"Bad Id": {"display_name": "x"}}}},
        "gateway.products.Bad Id",
        "allowed: 2 to 50 lower-case letters, digits and hyphens",
    ),
    ({"nodes": {"count": 0}}, "nodes.count", "0 must be 1 or more: Number of nodes."),
    ({"nodes": {"count": 65}}, "nodes.count", "65 must be 64 or less: Number of nodes."),
    ({"nodes": {"count": 2.5}}, "nodes.count", "2.5 must be a whole number: Number of nodes."),
    ({"nodes": {"count": "two"}}, "nodes.count", "'two' must be a whole number: Number of nodes."),
    ({"nodes": {"count": None}}, "nodes.count", "is empty; it must be a whole number: Number of nodes."),
    ({"nodes": {"count": True}}, "nodes.count", "true must be a number, not a switch"),
    ({"nodes": {"os_disk_gib": 128}}, "nodes.os_disk_gib", "128 must be 256 or more: OS disk size (GiB)"),
    ({"nodes": {"zone": 4}}, "nodes.zone", "'4' is not allowed; allowed: '1', '2', '3'"),
    ({"nodes": {"image": {"version": "latest"}}}, "nodes.image.version", "allowed: three numbers with dots"),
    ({"nodes": {"image": {"version": 24.04}}}, "nodes.image.version", "24.04 must be text (quote it in YAML)"),
    ({"nodes": {"auto_shutdown": {"time": 1900}}}, "nodes.auto_shutdown.time", "1900 must be text (quote it in YAML)"),
    (
        {"nodes": {"auto_shutdown": {"time": "2460"}}},
        "nodes.auto_shutdown.time",
        "'2460' is not allowed; allowed: four digits in quotes, '0000' to '2359'",
    ),
    ({"nodes": {"auto_shutdown": {"enabled": "si"}}}, "nodes.auto_shutdown.enabled", "'si' must be true or false"),
    ({"nodes": "two"}, "nodes", "'two' must be a mapping of settings: GPU VMs."),
    ({"monitoring": None}, "monitoring", "is empty; it must be a mapping of settings: Logs, metrics and alerts."),
    ({"monitoring": {"daily_cap_gb": float("inf")}}, "monitoring.daily_cap_gb", "inf must be a finite number"),
    ({"monitoring": {"daily_cap_gb": float("nan")}}, "monitoring.daily_cap_gb", "nan must be a finite number"),
    ({"monitoring": {"daily_cap_gb": 0}}, "monitoring.daily_cap_gb", "0 must be more than 0"),
    ({"monitoring": {"daily_cap_gb": True}}, "monitoring.daily_cap_gb", "true must be a number"),
    ({"model_store": {"iops": True}}, "model_store.iops", "true must be a number"),
    ({"serving": {"ports": {"wrapper": 80}}}, "serving.ports.wrapper", "80 must be 1024 or more"),
    ({"serving": {"ports": {"wrapper": 70000}}}, "serving.ports.wrapper", "70000 must be 65535 or less"),
    ({"serving": {"models": {MODEL: {"nodes": 1}}}}, f"serving.models.{MODEL}.nodes", "1 must be a list"),
    ({"serving": {"models": {MODEL: {"nodes": []}}}}, f"serving.models.{MODEL}.nodes", "must have 1 or more entries"),
    ({"serving": {"models": {MODEL: {"nodes": [True]}}}}, f"serving.models.{MODEL}.nodes[0]", "must be a whole number"),
    ({"serving": {"models": {MODEL: {"nodes": [0]}}}}, f"serving.models.{MODEL}.nodes[0]", "0 must be 1 or more"),
    ({"serving": {"models": [MODEL]}}, "serving.models", f"['{MODEL}'] must be a mapping"),
    ({"tags": {"owner": 5}}, "tags.owner", "5 must be text (quote it in YAML): Tags on every resource."),
    ({"tags": {"a/b": "x"}}, "tags.a/b", "'a/b' is not allowed; allowed: 1 to 512 characters, none of them"),
    ({"tags": {f"t{i}": "x" for i in range(40)}}, "tags", "must have at most 40 entries"),
    ({"access": {"ssh_public_keys": []}}, "access.ssh_public_keys", "must have 1 or more entries"),
    ({"access": {"ssh_public_keys": KEY}}, "access.ssh_public_keys", "must be a list"),
    ({"access": {"ssh_public_keys": [f"{KEY}\n"]}}, "access.ssh_public_keys[0]", "allowed: a public key on one line"),
    (
        {"access": {"operator_object_ids": ["me"]}},
        "access.operator_object_ids[0]",
        "'me' is not allowed; allowed: a GUID: 32 hexadecimal digits",
    ),
    ({"network": {"nodes_subnet": "10.0.0.1/24"}}, "network.nodes_subnet", "has host bits set"),
    ({"network": {"nodes_subnet": "fd00::/64"}}, "network.nodes_subnet", "must be an IPv4 network in CIDR form"),
    ({"network": {"nodes_subnet": 24}}, "network.nodes_subnet", "24 must be an IPv4 network in CIDR form"),
    ({"name_prefix": "Huddle"}, "name_prefix", "'Huddle' is not allowed; allowed: 2 to 12 lower-case letters"),
    (
        {"name_prefix": "thirteenchars"},
        "name_prefix",
        "'thirteenchars' is not allowed; allowed: 2 to 12 lower-case letters",
    ),
]


@pytest.mark.parametrize(
    ("changes", "key", "expected"), CASES, ids=[f"{key}-{i}" for i, (_, key, _) in enumerate(CASES)]
)
def test_a_wrong_value_gives_one_sentence(changes: dict[str, Any], key: str, expected: str) -> None:
    found = fault(**changes)
    assert (found.file, found.key) == (FILE, key)
    assert expected in found.message
    assert "\n" not in str(found)


def test_every_wrong_key_is_reported_at_once_and_each_on_its_own_line() -> None:
    found = faults(nodes={"count": 0, "zone": 9}, environment="x", gateway={"tier": "x"})
    assert [item.key for item in found] == ["environment", "gateway.tier", "nodes.count", "nodes.zone"]


def test_no_products_at_all() -> None:
    gateway = {**changed()["h100-inference:gateway"]}
    del gateway["products"]
    config = {**changed(), "h100-inference:gateway": gateway}
    assert "gateway.products: is required: Products by id." in _message(config)
    config["h100-inference:gateway"] = {**gateway, "products": {}}
    assert "gateway.products: {} must have 1 or more entries" in _message(config)


def _message(config: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        stack_file.from_values(config, "dev")
    return str(caught.value)


def test_a_long_value_is_cut_in_the_message() -> None:
    found = fault(gateway={"products": {"developers": {"display_name": "x", "system_prompt": "y" * 40_000}}})
    assert "must have at most 32768 characters" in found.message
    assert len(found.message) < 300


def test_a_wrong_item_is_reported_once_and_not_again_as_a_list_that_is_too_short() -> None:
    assert fault(access={"ssh_public_keys": ["ssh-rsa"]}).key == "access.ssh_public_keys[0]"


@pytest.mark.parametrize(
    ("location", "text"),
    [((), ""), (("a",), "a"), (("a", "b", 0), "a.b[0]"), (("a", 1, "b"), "a[1].b"), ((0, "a"), "[0].a")],
)
def test_paths_are_written_the_way_people_write_them(location: tuple[int | str, ...], text: str) -> None:
    assert dotted(location) == text
