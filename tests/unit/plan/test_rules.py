"""Rules that span fields: quota, disk sharing, tiers, models, ports, tags, lists. One sentence for each broken rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_init.huddle_apply.machine import commands
from cloud_init.templating import TEMPLATES
from plan import ports
from plan.azure_facts import VM_SIZES, max_shares
from plan.rules.service import Known, models_on_nodes
from plan.vocabulary import SERVICE_USER, DiskSku, Topology
from tests.unit.stack_values import FILES, KEY, MODEL, OTHER_MODEL, bases, fault, faults, plan, settings

V2 = {"sku": "PremiumV2_LRS"}
GUID = "8f0ac4f6-1c0e-4d4e-9f5b-0d3f5f2f0a01"
CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"target": "slurm"}, "target", "'slurm' is not allowed; allowed: azure"),
    (
        {"nodes": {"size": "Standard_NC40ads_H100_v6"}},
        "nodes.size",
        "'Standard_NC40ads_H100_v6' is not a size this program knows; allowed: Standard_NC40ads_H100_v5,",
    ),
    ({"nodes": {"size": "Standard_D8s_v5"}}, "nodes.size", "'Standard_D8s_v5' is not a size"),
    (
        {"nodes": {"count": 3}},
        "nodes.count",
        "3 x Standard_NC40ads_H100_v5 needs 120 vCPUs of StandardNCadsH100v5Family, nodes.quota_vcpus is 80; "
        "allowed: at most 2, or raise the quota",
    ),
    ({"nodes": {"count": 1, "quota_vcpus": 0}}, "nodes.count", "nodes.quota_vcpus is 0; allowed: at most 0"),
    ({"nodes": {"count": 3, "priority": "spot"}}, "nodes.count", "needs 120 vCPUs of lowPriorityCores,"),
    (
        {"nodes": {"count": 6, "quota_vcpus": 240}},
        "nodes.count",
        "6 nodes can't share one 1024 GiB Premium_LRS disk; allowed: at most 5 (or `model_store.sku: PremiumV2_LRS` "
        "for 15, or `model_store.kind: azure-files`)",
    ),
    ({"nodes": {"count": 4, "quota_vcpus": 160}, "model_store": {"size_gib": 512}}, "nodes.count", "at most 3"),
    (
        {"nodes": {"count": 16, "quota_vcpus": 640, "zone": 1}, "model_store": V2},
        "nodes.count",
        "16 nodes can't share one 1024 GiB PremiumV2_LRS disk; allowed: at most 15",
    ),
    (
        {"model_store": V2},
        "model_store.sku",
        "'PremiumV2_LRS' disks live in one zone; set nodes.zone (allowed: 1, 2, 3) or another sku",
    ),
    ({"model_store": {"size_gib": 32_768}}, "model_store.size_gib", "32768 is too large for Premium_LRS"),
    ({"model_store": {"iops": 3000}}, "model_store.iops", "3000 can't be set for Premium_LRS, whose performance"),
    ({"model_store": {"mbps": 200}}, "model_store.mbps", "allowed with: PremiumV2_LRS, UltraSSD_LRS"),
    (
        {"nodes": {"zone": 1}, "model_store": {**V2, "mbps": 1000}},
        "model_store.mbps",
        "1000 needs at least 4000 IOPS (0.25 MB/s for each), model_store.iops is 3000",
    ),
    ({"nodes": {"zone": 1}, "model_store": {**V2, "iops": 90_000}}, "model_store.iops", "allowed: up to 80000"),
    (
        {"nodes": {"zone": 1}, "model_store": {**V2, "iops": 80_000, "mbps": 2001}},
        "model_store.mbps",
        "2001 is too much for 1024 GiB of PremiumV2_LRS; allowed: up to 2000",
    ),
    (
        {"nodes": {"zone": 1}, "model_store": {**V2, "size_gib": 100, "iops": 80_000}},
        "model_store.iops",
        "80000 is too much for 100 GiB of PremiumV2_LRS; allowed: up to 50000",
    ),
    ({"model_store": {**FILES, "iops": 3000}}, "model_store.iops", "'3000' applies to `kind: shared-disk` only"),
    ({"model_store": {"kind": "azure-files"}}, "model_store.sku", "'Premium_LRS' applies to `kind: shared-disk` only"),
    (
        {"gateway": {"inbound": "internal"}},
        "gateway.inbound",
        "'internal' is not offered by tier StandardV2; allowed: public, private-endpoint",
    ),
    ({"gateway": {"tier": "Premium", "inbound": "private-endpoint"}}, "gateway.inbound", "allowed: public, internal"),
    ({"gateway": {"units": 11}}, "gateway.units", "11 is too many for tier StandardV2; allowed: 1-10"),
    ({"gateway": {"tier": "Developer", "units": 2}}, "gateway.units", "2 is too many for tier Developer; allowed: 1-1"),
    (
        {"network": {"gateway_subnet": "10.0.1.0/28"}},
        "network.gateway_subnet",
        "10.0.1.0/28 is too small for gateway tier StandardV2; allowed: /27 or larger",
    ),
    (
        {"gateway": {"public_access": "disabled"}},
        "gateway.public_access",
        "'disabled' needs `gateway.inbound: private-endpoint`, or nobody could reach it",
    ),
    (
        {"gateway": {"products": {"trial": {"display_name": "T", "models": ["gpt-oss-20b"]}}}},
        "gateway.products.trial.models",
        f"'gpt-oss-20b' is not served by this stack; allowed: hl, {MODEL}",
    ),
    (
        {"gateway": {"products": {"trial": {"display_name": "T", "subscriptions": ["app", "app"]}}}},
        "gateway.products.trial.subscriptions",
        "'app' occurs 2 times; list it once",
    ),
    (
        {"gateway": {"products": {"trial": {"display_name": "T", "models": ["hl", "hl"]}}}},
        "gateway.products.trial.models",
        "'hl' occurs 2 times; list it once",
    ),
    (
        {"serving": {"models": {"llama-3.2-3b-instruct": {}, "hl": {}}}},
        "serving.models.llama-3.2-3b-instruct",
        f"is not in the model registry; did you mean {MODEL}? allowed: gpt-oss-120b,",
    ),
    ({"serving": {"topology": "distributed"}, "nodes": {"count": 1}}, "serving.topology", "at least two nodes"),
    ({"serving": {"ports": {"wrapper": 5005}}}, "serving.ports.vllm", "5005 is already serving.ports.wrapper"),
    (
        {"nodes": {"size": "Standard_NC80adis_H100_v5", "count": 1}, "serving": {"ports": {"ray_gcs": 5006}}},
        "serving.ports.ray_gcs",
        "5006 is already serving.ports.vllm (5005-5006)",
    ),
    (
        {"nodes": {"size": "Standard_NC80adis_H100_v5", "count": 1}, "serving": {"ports": {"vllm": 6386}}},
        "serving.ports.vllm",
        "6386-6387 is taken by Ray's dashboard metrics (6386)",
    ),
    (
        {"nodes": {"size": "Standard_NC80adis_H100_v5", "count": 1}, "serving": {"ports": {"vllm": 65_535}}},
        "serving.ports.vllm",
        "65535 leaves no port for each of 2 engines; allowed: up to 65534",
    ),
    ({"jupyter": {"enabled": True, "port": 8000}}, "jupyter.port", "8000 is already serving.ports.wrapper"),
    ({"serving": {"ports": {"vllm": 20_500}}}, "serving.ports.vllm", "20500 is taken by Ray's workers (20000-20999)"),
    ({"serving": {"ports": {"vllm": 6384}}}, "serving.ports.vllm", "6384 is taken by Ray's metrics (6384)"),
    (
        {"access": {"bastion": {"sku": "Basic", "tunnel": True}}},
        "access.bastion.sku",
        "'Basic' can't tunnel; allowed with `tunnel: true`: Standard, Premium",
    ),
    ({"access": {"bastion": {"tunnel": True}}}, "access.bastion.sku", "'none' can't tunnel"),
    ({"access": {"ssh_public_keys": [KEY, KEY]}}, "access.ssh_public_keys", "occurs 2 times; list it once"),
    (
        {"access": {"operator_object_ids": [GUID, GUID.upper()]}},
        "access.operator_object_ids",
        f"'{GUID}' occurs 2 times; list it once",
    ),
    ({"nodes": {"admin_username": "root"}}, "nodes.admin_username", "'root' is a login name that Azure refuses"),
    ({"nodes": {"admin_username": "sshd"}}, "nodes.admin_username", "'sshd' is a user that the image has already"),
    ({"nodes": {"admin_username": "systemd-network"}}, "nodes.admin_username", "is a user that the image has already"),
    (
        {"nodes": {"admin_username": "huddle"}},
        "nodes.admin_username",
        "'huddle' is the user that services run as; choose another",
    ),
    (
        {"access": {"ssh_public_keys": [KEY, "ssh-ed25519 AAAA me"]}},
        "access.ssh_public_keys[1]",
        "is cut or damaged; copy the whole line of the .pub file",
    ),
    ({"tags": {"Project": "x"}}, "tags.Project", "is set by this program on every resource"),
    ({"tags": {"environment": "x"}}, "tags.environment", "is set by this program on every resource"),
    ({"tags": {"Owner": "x"}}, "tags.Owner", "is the same tag as owner (names are compared without case)"),
    ({"tags": {"Azure-team": "x"}}, "tags.Azure-team", "must not start with azure, microsoft, windows"),
]


@pytest.mark.parametrize(
    ("changes", "key", "expected"), CASES, ids=[f"{key}-{i}" for i, (_, key, _) in enumerate(CASES)]
)
def test_a_broken_rule_gives_one_sentence(changes: dict[str, Any], key: str, expected: str) -> None:
    found = fault(**changes)
    assert found.key == key
    assert expected in found.message
    assert "\n" not in found.message


def test_the_services_user_is_the_one_that_day_zero_makes_and_the_bundle_uses() -> None:
    assert commands.SERVICE_USER == SERVICE_USER
    users = (TEMPLATES / "user-data" / "user-data.yaml.j2").read_text(encoding="utf-8")
    assert f"  - name: {SERVICE_USER}\n" in users


@pytest.mark.parametrize(
    ("tier", "inbound", "smallest"),
    [
        ("Developer", "internal", 29),
        ("Premium", "internal", 27),
        ("StandardV2", "public", 27),
        ("PremiumV2", "internal", 27),
    ],
)
def test_each_tier_has_its_smallest_subnet(tier: str, inbound: str, smallest: int) -> None:
    gateway = {"tier": tier, "inbound": inbound}
    plan(gateway=gateway, network={"gateway_subnet": f"10.0.1.0/{smallest}"})
    found = faults(gateway=gateway, network={"gateway_subnet": f"10.0.1.0/{smallest + 1}"})
    assert f"allowed: /{smallest}" in found[-1].message


def only(models: dict[str, Any], count: int = 2) -> list[str]:
    """The sentences about a stack that serves exactly these models."""
    own = settings(nodes={"count": count})
    serving = own.serving.model_validate({"models": models})
    changed = own.model_copy(update={"serving": serving})
    return [f"{key}: {sentence}" for key, sentence in models_on_nodes(changed, Known(bases(), changed.nodes.numbers))]


def test_each_node_runs_exactly_one_base_model() -> None:
    assert only({MODEL: {}}) == []
    assert only({MODEL: {}, "hl": {}}) == []  # an alias of the same base
    assert only({MODEL: {"nodes": [1]}, OTHER_MODEL: {"nodes": [2]}}) == []
    assert only({MODEL: {}, OTHER_MODEL: {"nodes": [2]}}) == [
        f"serving.models: node 2 has 2 models ({OTHER_MODEL}, {MODEL}); allowed: exactly one base model on each node"
    ]
    assert only({MODEL: {"nodes": [1]}}) == [
        "serving.models: node 2 has no model; allowed: exactly one base model on each node"
    ]
    assert only({MODEL: {"nodes": [1, 2, 3]}}) == [f"serving.models.{MODEL}.nodes: 3 is not a node; allowed: 1-2"]


def test_two_base_models_cannot_be_distributed() -> None:
    models = {MODEL: {"nodes": [1]}, OTHER_MODEL: {"nodes": [2]}, "hl": {"nodes": [1]}}
    found = fault(serving={"topology": "distributed", "models": models})
    assert found.message == (
        "'distributed' spreads one model over at least two nodes; this stack has 2 models and 2 nodes; use `replicas`"
    )


def test_several_broken_rules_are_all_reported() -> None:
    found = faults(nodes={"count": 6}, gateway={"inbound": "internal"}, tags={"stack": "x"})
    assert [item.key for item in found] == ["gateway.inbound", "nodes.count", "nodes.count", "tags.stack"]


@given(size=st.sampled_from(sorted(VM_SIZES)), count=st.integers(1, 20), quota=st.integers(0, 2000))
def test_quota_arithmetic(size: str, count: int, quota: int) -> None:
    nodes = {"size": size, "count": count, "quota_vcpus": quota}
    fits = count * VM_SIZES[size].vcpus <= quota
    if fits:
        plan(nodes=nodes, model_store=FILES)
    else:
        most = quota // VM_SIZES[size].vcpus
        assert f"allowed: at most {most}, or raise the quota" in fault(nodes=nodes, model_store=FILES).message
        assert most < count


@given(
    sku=st.sampled_from(DiskSku),
    size_gib=st.integers(100, 32_767),
    count=st.integers(1, 20),
)
def test_nodes_fit_on_the_disk_exactly_up_to_max_shares(sku: DiskSku, size_gib: int, count: int) -> None:
    changes = {
        "nodes": {"count": count, "quota_vcpus": 800, "zone": 1},
        "model_store": {"sku": sku.value, "size_gib": size_gib},
    }
    if count <= max_shares(sku, size_gib):
        assert plan(**changes).store.max_shares == max_shares(sku, size_gib)
    else:
        assert f"allowed: at most {max_shares(sku, size_gib)} " in fault(**changes).message


@given(size_gib=st.integers(100, 400), iops=st.integers(3000, 100_000))
def test_premium_v2_iops_follow_its_size(size_gib: int, iops: int) -> None:
    changes = {"nodes": {"zone": 1, "count": 1}, "model_store": {**V2, "size_gib": size_gib, "iops": iops}}
    if iops <= min(80_000, 500 * size_gib):
        assert plan(**changes).store.iops == iops
    else:
        assert fault(**changes).key == "model_store.iops"


@given(iops=st.none() | st.integers(3000, 80_000), mbps=st.none() | st.integers(125, 2000))
def test_premium_v2_throughput_follows_its_iops(iops: int | None, mbps: int | None) -> None:
    changes = {"nodes": {"zone": 1}, "model_store": {**V2, "iops": iops, "mbps": mbps}}
    if (mbps or 125) <= 0.25 * (iops or 3000):
        plan(**changes)
    else:
        assert fault(**changes).key == "model_store.mbps"


@given(port=st.integers(1024, 65_535))
def test_a_port_is_free_exactly_when_nothing_fixed_has_it(port: int) -> None:
    others = {6379, 10_001, 8265, 8000}
    fixed = any(first <= port <= last for _, first, last in ports.FIXED_PORTS)
    if port in others or fixed:
        assert fault(serving={"ports": {"vllm": port}}).key.startswith("serving.ports.")
    else:
        assert plan(serving={"ports": {"vllm": port}}).serving.vllm_port == port


def test_fixed_ports_are_those_of_the_port_table() -> None:
    """A listener with a port that no setting moves must be known to the settings check."""
    movable = {"wrapper", "vllm", "ray-gcs", "ray-client", "ray-dashboard", "jupyterlab", "ssh", "engine-processes"}
    listed = {(first, last) for _, first, last in ports.FIXED_PORTS}
    table = {
        span
        for topology in Topology
        for flow in plan(serving={"topology": topology.value}, jupyter={"enabled": True}).flows
        if flow.listener.value == "nodes" and flow.name not in movable
        for span in flow.ports
    }
    assert listed <= table
    assert [span for span in table if not any(low <= span[0] and span[1] <= high for low, high in listed)] == []


def test_an_explicitly_empty_speed_is_no_speed() -> None:
    assert plan(model_store={"iops": None, "mbps": None}).store == plan().store
