"""Reports are pure views of a plan: cost, ports and the plan itself, for scripts and for a terminal."""

from __future__ import annotations

import json
from datetime import date
from ipaddress import IPv4Network
from pathlib import PurePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cloud_init.bundle import shipped_registry
from infra import program
from infra.operations import failures
from infra.program import load_plan
from infra.reports import azure_summary, cost, picture, plan_json, ports_view, resource_graph, shapes, tree_view
from plan import engines, stack_file
from plan.azure.model import AzurePlan
from plan.vocabulary import GatewayTier, Segment
from tests.unit import stack_values
from tests.unit.stack_values import FILES, legal_changes, plan

PRICES = cost.load_prices()


def screen(show: Any, value: Any, width: int) -> str:
    """What a terminal of this width shows."""
    console = Console(width=width, force_terminal=False, highlight=False)
    with console.capture() as captured:
        show(value, console)
    return captured.get()


def price(result: cost.Estimate, name: str) -> float | None:
    (item,) = (item for item in result.items if item.name == name)
    return item.usd_per_month


# Cost


def test_of_alert_rules_each_node_and_product_that_is_told_by_itself_counts() -> None:
    (rules,) = (item for item in cost.estimate(load_plan("dev")).items if item.name == "Alert rules")
    assert (rules.usd_per_month, rules.basis) == (
        None,
        "no verified price; each VM, node and product that is told by itself counts",
    )


def test_two_h100_nodes_in_east_us_2_cost_what_the_price_list_says() -> None:
    result = cost.estimate(load_plan("dev"))
    assert price(result, "Nodes") == 10_190.80  # 2 x 6.98 USD/h x 730 h
    assert price(result, "NAT gateway") == 32.85
    assert price(result, "Private endpoints") == 7.30
    assert result.total_usd_per_month == 10_230.95
    assert cost.headline(result) == "at least $10,230.95 a month"


@given(changes=legal_changes())
def test_the_total_is_the_sum_of_the_priced_items_and_is_called_a_floor_while_any_is_missing(
    changes: dict[str, Any],
) -> None:
    result = cost.estimate(plan(**changes))
    assert result.total_usd_per_month == round(sum(item.usd_per_month or 0 for item in result.items), 2)
    assert {*result.priced, *result.unpriced} == set(result.items)
    assert all(item.basis for item in result.items)
    assert cost.headline(result).startswith("at least ") == bool(result.unpriced)


@given(count=st.integers(1, 15), size=st.sampled_from(sorted(PRICES.vm_usd_per_hour)))
def test_nodes_are_billed_by_the_hour_and_the_region(count: int, size: str) -> None:
    for region in ("eastus2", "swedencentral", "brazilsouth"):
        nodes = {"count": count, "size": size, "quota_vcpus": 10_000}
        result = cost.estimate(plan(nodes=nodes, model_store=FILES, **{"azure-native:location": region}))
        hourly = PRICES.vm_usd_per_hour[size].get(region)
        assert price(result, "Nodes") == (None if hourly is None else round(count * hourly * 730, 2))


def test_a_region_without_a_price_is_named() -> None:
    result = cost.estimate(plan(**{"azure-native:location": "brazilsouth"}))
    (item,) = (item for item in result.unpriced if item.name == "Nodes")
    assert item.basis == "no verified price for this size in brazilsouth"


def test_spot_nodes_have_no_price() -> None:
    result = cost.estimate(plan(nodes={"priority": "spot"}))
    assert price(result, "Nodes") is None
    assert result.total_usd_per_month < 100


def test_auto_shutdown_is_a_note_and_changes_no_figure() -> None:
    off = cost.estimate(plan(nodes={"auto_shutdown": {"enabled": False}}))
    on = cost.estimate(plan(nodes={"auto_shutdown": {"enabled": True, "time": "0730", "timezone": "UTC"}}))
    assert on.items == off.items
    (note,) = set(on.notes) - set(off.notes)
    assert "at 07:30 UTC" in note


@pytest.mark.parametrize(
    ("tier", "units", "expected"),
    [("Developer", 1, 48.03), ("Premium", 2, 5590.34), ("StandardV2", 2, None), ("PremiumV2", 1, None)],
)
def test_gateway_units(tier: str, units: int, expected: float | None) -> None:
    result = cost.estimate(plan(gateway={"tier": tier, "units": units, "inbound": "public"}))
    assert price(result, "API Management") == expected
    assert (GatewayTier(tier) in PRICES.gateway_usd_per_unit_month) == (expected is not None)


@pytest.mark.parametrize(
    ("changes", "endpoints", "addresses"),
    [
        ({}, 1, 0),
        ({"model_store": FILES}, 2, 0),
        ({"gateway": {"inbound": "private-endpoint"}}, 2, 0),
        ({"gateway": {"tier": "Developer", "inbound": "internal"}}, 1, 1),
        ({"gateway": {"tier": "PremiumV2", "inbound": "internal"}}, 1, 0),
        ({"access": {"bastion": {"sku": "Basic"}}}, 1, 1),
        ({"access": {"bastion": {"sku": "Developer"}}}, 1, 0),
    ],
)
def test_endpoints_and_addresses_are_counted(changes: dict[str, Any], endpoints: int, addresses: int) -> None:
    result = cost.estimate(plan(**changes))
    assert price(result, "Private endpoints") == round(7.30 * endpoints, 2)
    found = [item.usd_per_month for item in result.items if item.name == "Public addresses"]
    assert found == ([round(3.65 * addresses, 2)] if addresses else [])


@pytest.mark.parametrize(("sku", "expected"), [("Basic", 138.70), ("Developer", 0.0), ("Standard", None)])
def test_bastion(sku: str, expected: float | None) -> None:
    assert price(cost.estimate(plan(access={"bastion": {"sku": sku}})), "Bastion") == expected


def test_model_stores() -> None:
    assert price(cost.estimate(plan(model_store={**FILES, "size_gib": 2000})), "Model store") == 360.0
    disk = cost.estimate(plan(model_store={"sku": "StandardSSD_LRS"}))
    assert price(disk, "Model disk") == 76.80
    assert price(disk, "Shared mounts") is None
    assert price(cost.estimate(plan()), "Model disk") is None
    alone = cost.estimate(plan(nodes={"count": 1}))
    assert "Shared mounts" not in {item.name for item in alone.items}


def test_prices_of_another_region_are_admitted() -> None:
    assert any("are those of eastus" in note for note in cost.estimate(plan()).notes)
    here = cost.estimate(plan(**{"azure-native:location": "eastus"}))
    assert not any("are those of" in note for note in here.notes)


def test_cost_as_json_adds_up_and_names_what_is_missing() -> None:
    made = json.loads(json.dumps(cost.to_json(cost.estimate(load_plan("prod")))))
    assert made["total_usd_per_month"] == round(sum(item["usd_per_month"] for item in made["items"]), 2)
    assert made["complete"] is False
    missing = {item["name"]: item for item in made["not_priced"]}
    assert missing["API Management"]["detail"] == "2 x StandardV2 unit"
    assert all(item["why"] for item in missing.values())
    assert made["prices_as_of"] == "2026-06-18"


@pytest.mark.parametrize("width", [80, 140])
def test_cost_on_a_terminal(width: int) -> None:
    text = screen(cost.show, cost.estimate(load_plan("dev")), width)
    assert "at least $10,230.95 a month" in text
    assert "Total, at least" in text
    assert max(len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text


# Ports


def test_ports_as_json_say_who_may_call() -> None:
    rows = {row["name"]: row for row in json.loads(json.dumps(ports_view.to_json(load_plan("prod"))))}
    assert rows["wrapper"] == {
        "name": "wrapper",
        "listener": "nodes",
        "protocol": "tcp",
        "ports": ["8000"],
        "process": "huddleai_api.service",
        "purpose": "OpenAI-compatible API; backend key required",
        "callers": ["gateway"],
        "nsg_priorities": {"gateway": 1000},
    }
    assert (rows["vllm"]["callers"], rows["vllm"]["nsg_priorities"]) == (["loopback"], {})


@given(changes=legal_changes())
def test_every_flow_is_on_the_screen(changes: dict[str, Any]) -> None:
    built = plan(**changes)
    text = screen(ports_view.show, built, 120)
    for flow in built.flows:
        assert flow.name in text
        assert flow.process in text
        for span in flow.port_ranges:
            assert span in text


@pytest.mark.parametrize("stack", stack_file.names())
@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_port_table_fits_the_terminal(stack: str, width: int) -> None:
    text = screen(ports_view.show, load_plan(stack), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    assert text.count("ray-dashboard-agent-grpc") == 1


def test_what_stays_on_the_machine_is_dimmed_on_a_colour_terminal() -> None:
    console = Console(width=120, force_terminal=True, color_system="standard", highlight=False)
    with console.capture() as captured:
        ports_view.show(load_plan("dev"), console)
    lines = {line.split()[0].removeprefix("\x1b[2m"): line for line in captured.get().splitlines() if line.split()}
    assert "\x1b[2m" in lines["vllm"]
    assert "\x1b[2m" not in lines["wrapper"]


# The plan


@pytest.mark.parametrize("stack", stack_file.names())
def test_the_plan_as_json_is_plain_sorted_and_stable(stack: str) -> None:
    made = plan_json.to_json(load_plan(stack))
    text = json.dumps(made)
    assert json.dumps(json.loads(text), sort_keys=True) == text
    assert text == json.dumps(plan_json.to_json(load_plan(stack)))


def test_the_plan_as_json_says_everything() -> None:
    made = plan_json.to_json(load_plan("dev"))
    assert made["addresses"]["node_addresses"] == ["10.0.0.4", "10.0.0.5"]
    assert made["nodes"][0]["role"] == "head"
    assert made["names"]["key_vault"] == load_plan("dev").names.key_vault
    assert made["security_rules"]["nodes"][-1]["priority"] == 4096
    assert made["gateway"]["facts"]["tier"] == "StandardV2"
    assert made["compute"]["size"]["gpus"] == 1
    assert made["store"]["max_shares"] == 5
    assert made["monitoring"]["retention_days"] == 30


@given(one=legal_changes(), other=legal_changes())
def test_plans_have_equal_json_exactly_when_they_are_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = plan(**one), plan(**other)
    assert (plan_json.to_json(first) == plan_json.to_json(second)) == (first == second)


def test_a_value_without_a_json_form_is_an_error_and_no_guess() -> None:
    with pytest.raises(TypeError, match="no JSON form for PurePosixPath"):
        plan_json.jsonable({"path": PurePath("x")})
    assert plan_json.jsonable({Segment.NODES: {IPv4Network("10.0.0.0/8")}, "d": date(2026, 1, 2)}) == {
        "d": "2026-01-02",
        "nodes": ["10.0.0.0/8"],
    }


@pytest.mark.parametrize("stack", stack_file.names())
@pytest.mark.parametrize("width", [80, 120])
def test_the_plan_on_a_terminal(stack: str, width: int) -> None:
    built = load_plan(stack)
    summary = azure_summary.summary(built)
    text = screen(lambda plan, console: plan_json.show(plan, summary, console), built, width)
    assert max(len(line) for line in text.splitlines()) <= width
    for node in built.nodes:
        assert node.name in text
        assert str(node.address) in text
    assert built.names.gateway in text
    assert cost.headline(cost.estimate(built)) in text


def test_a_stack_without_gpu_does_not_speak_of_gpus() -> None:
    proof = load_plan("proof")
    assert ("Nodes", "1 x Standard_L8s_v3 (no GPU), regular") in azure_summary.summary(proof)
    assert "8 vCPUs, no GPU" in picture.render(proof)


def test_a_spot_stack_names_the_quota_that_it_uses() -> None:
    spot = plan(nodes={"priority": "spot"})
    assert dict(azure_summary.summary(spot))["vCPUs"] == "80 needed of 80 granted (lowPriorityCores)"
    failure = failures.explain("exceeding approved LowPriorityCores quota. Current Limit: 0", spot)
    assert failure is not None
    assert failure.what.startswith("The vCPU quota for lowPriorityCores in eastus2 is used up (the limit is 0): 2 x")


def test_what_protects_a_stack_is_said() -> None:
    assert dict(azure_summary.summary(load_plan("prod")))["Deletion"] == "data and gateway are protected"
    assert dict(azure_summary.summary(load_plan("dev")))["Deletion"] == "everything is destroyable"


# Cutting text


@given(text=st.text(max_size=40), room=st.integers(3, 50))
def test_cut_text_fits_and_uncut_text_is_left_alone(text: str, room: int) -> None:
    for cut in (shapes.at_end(text, room), shapes.in_middle(text, room)):
        assert len(cut) <= room
        assert (cut == text) == (len(text) <= room) or shapes.ELLIPSIS in text


def test_names_keep_their_ends() -> None:
    assert shapes.in_middle("huddleai-h100-node-2-apply", 16) == "huddl…de-2-apply"
    assert shapes.at_end("huddleai-h100-node-2-apply", 9) == "huddleai…"


def test_the_tree_has_one_order_whoever_says_what_there_is() -> None:
    resources = [
        resource_graph.Registered(f"urn:{name}", "azure-native:network:Subnet", name, parent, (), True)
        for name, parent in (("b", ""), ("a", ""), ("z", "urn:a"), ("y", "urn:a"))
    ]
    trees = [tree_view.render(given, "dev") for given in (resources, resources[::-1])]
    first, second = (screen(lambda tree, console: console.print(tree), tree, 80) for tree in trees)
    assert first == second and "z" in first


def test_the_summary_says_who_serves_during_an_update() -> None:
    def updates(of: AzurePlan) -> str:
        return dict(azure_summary.summary(of))["Updates"]

    assert updates(load_plan("dev")) == "1 node away at a time (drain, engine's start), the others serve"
    alone = updates(engines.with_engines(plan(nodes={"count": 1}), shipped_registry.load(), "dev"))
    assert alone.startswith("there is one node: nobody is served for a drain of up to 120 s and the engine's start of")
    assert int(alone.split()[-2]) > 30
    assert updates(load_plan("proof")).endswith("and the engine's start"), "the planner knows GPUs only"


def test_the_summary_shows_who_uses_the_gpus() -> None:
    def of(**changes: Any) -> str:
        return dict(azure_summary.summary(program.plan_of(stack_values.settings(**changes), "dev")))["Engines"]

    eight = {"size": "Standard_ND96isr_H100_v5", "count": 1, "quota_vcpus": 96}
    assert of() == "llama-3.2-3b: one engine"
    assert of(nodes=eight) == "llama-3.2-3b: 8 engines"
    large = {"models": {"llama-3.1-70b": {}}}
    assert of(nodes=eight, serving=large) == "llama-3.1-70b: 2 engines (TP 4 × PP 1)"


def test_the_picture_shows_each_engine_of_a_node() -> None:
    eight = {"size": "Standard_ND96isr_H100_v5", "count": 1, "quota_vcpus": 96}
    drawn = picture.render(program.plan_of(stack_values.settings(nodes=eight), "dev"))
    assert "8 x llama-3.2-3b" in drawn
    assert "1 x llama" not in picture.render(load_plan("dev"))
