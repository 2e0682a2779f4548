"""The timeline: when each resource's turn comes, which chain decides the total, and how it is drawn."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from infra import graph
from infra.program import load_plan
from infra.reports import durations, resource_graph, timeline
from infra.reports.durations import ASSUMPTION, Durations, Operation, Row
from infra.reports.timeline import Timeline
from tests.unit.stack_values import FILES, plan

VM = "azure-native:compute:VirtualMachine"


@dataclass(frozen=True)
class Resource:
    """What the timeline needs to know, with its own name for a URN."""

    name: str
    depends_on: tuple[str, ...] = ()
    parent: str = ""
    type: str = "test:x:Second"
    custom: bool = True

    @property
    def urn(self) -> str:
        return self.name


def component(name: str, parent: str = "", depends_on: tuple[str, ...] = ()) -> Resource:
    return Resource(name, depends_on, parent, "h100:x:Component", custom=False)


ROW = {"create": 1, "update": 1, "delete": 1}
TABLE = Durations.model_validate(
    {
        "default": ROW,
        "resources": {
            **{f"test:x:S{seconds}": dict.fromkeys(ROW, seconds) for seconds in range(1, 10)},
            "test:x:Second": ROW,
            "test:x:Slow": {
                "create": 10,
                "update": 20,
                "delete": 30,
                "sources": {"create": "measured"},
                "variants": {"Big": {"create": 100, "sources": {"create": "read"}}},
            },
        },
    }
)


def schedule(*resources: Resource, operation: Operation = Operation.CREATE, **more: Any) -> Timeline:
    return timeline.critical_path(resources, operation, durations=TABLE, **more)


def starts(result: Timeline) -> dict[str, float]:
    return {span.name: span.start_s for span in result.spans}


def path(result: Timeline) -> list[str]:
    return [span.name for span in result.critical_path]


def test_independent_resources_run_at_the_same_time() -> None:
    result = schedule(Resource("a"), Resource("b", type="test:x:S5"), Resource("c"))
    assert starts(result) == {"a": 0, "b": 0, "c": 0}
    assert (result.total_s, path(result)) == (5, ["b"])


def test_a_resource_waits_for_the_slowest_thing_it_depends_on() -> None:
    result = schedule(Resource("a", type="test:x:S2"), Resource("b", type="test:x:S7"), Resource("c", ("a", "b")))
    assert starts(result)["c"] == 7
    assert (result.total_s, path(result)) == (8, ["b", "c"])


def test_deletion_runs_backwards() -> None:
    resources = (Resource("vnet", type="test:x:S4"), Resource("nic", ("vnet",), type="test:x:S2"), Resource("lone"))
    result = schedule(*resources, operation=Operation.DELETE)
    assert starts(result) == {"nic": 0, "lone": 0, "vnet": 2}
    assert path(result) == ["nic", "vnet"]


def test_a_child_waits_for_its_parent_and_components_cost_nothing() -> None:
    resources = (
        Resource("group", type="test:x:S3"),
        component("network", depends_on=("group",)),
        Resource("vnet", parent="network"),
    )
    result = schedule(*resources)
    assert starts(result) == {"group": 0, "vnet": 3}
    assert path(result) == ["group", "vnet"]


def test_to_depend_on_a_component_is_to_wait_for_all_it_holds() -> None:
    resources = (
        component("outer"),
        component("inner", parent="outer"),
        Resource("deep", parent="inner", type="test:x:S6"),
        Resource("after", ("outer",)),
    )
    assert starts(schedule(*resources))["after"] == 6


def test_a_child_that_names_its_own_component_does_not_wait_for_its_siblings() -> None:
    resources = (
        component("whole"),
        Resource("slow", parent="whole", type="test:x:S9"),
        Resource("child", ("whole",), "whole"),
    )
    assert starts(schedule(*resources)) == {"slow": 0, "child": 0}


def test_what_is_not_there_is_not_waited_for() -> None:
    assert starts(schedule(Resource("a", ("provider", "gone"), parent="stack"))) == {"a": 0}


def test_a_circle_is_an_error() -> None:
    with pytest.raises(CycleError):
        schedule(Resource("a", ("b",)), Resource("b", ("a",)))


def test_nothing_takes_no_time() -> None:
    result = schedule()
    assert (result.total_s, result.spans, result.critical_path) == (0, (), ())
    assert "0 s" in drawn(result, 80)


def test_types_without_a_duration_are_named_and_get_the_default() -> None:
    result = schedule(Resource("odd", type="test:y:Unknown"), Resource("a"))
    assert result.unknown_types == ("test:y:Unknown",)
    assert "No duration is known for: test:y:Unknown." in drawn(result, 100)


@pytest.mark.parametrize(
    ("resource_type", "operation", "variant", "expected"),
    [
        ("test:x:Slow", Operation.CREATE, None, (10, "measured")),
        ("test:x:Slow", Operation.DELETE, None, (30, ASSUMPTION)),
        ("test:x:Slow", Operation.CREATE, "Big", (100, "read")),
        ("test:x:Slow", Operation.UPDATE, "Big", (20, ASSUMPTION)),
        ("test:x:Slow", Operation.CREATE, "Other", (10, "measured")),
        ("test:x/v20240501:Slow", Operation.CREATE, None, (10, "measured")),
        ("test:x/v20240501preview:Slow", Operation.CREATE, None, (10, "measured")),
        ("test:y:Unknown", Operation.CREATE, None, (1, ASSUMPTION)),
    ],
)
def test_durations_are_found_by_type_operation_and_sku(
    resource_type: str, operation: Operation, variant: str | None, expected: tuple[float, str]
) -> None:
    assert TABLE.lookup(resource_type, operation, variant) == expected


@st.composite
def graphs(draw: st.DrawFn) -> list[Resource]:
    """Resources that depend only on earlier ones, some inside components."""
    resources: list[Resource] = [component("c0"), component("c1", parent="c0")]
    for index in range(draw(st.integers(1, 12))):
        earlier = [resource.name for resource in resources if resource.custom]
        wanted = st.lists(st.sampled_from(earlier), unique=True, max_size=3) if earlier else st.just([])
        resources.append(
            Resource(
                f"r{index}",
                tuple(draw(wanted)),
                draw(st.sampled_from(["", "c0", "c1"])),
                f"test:x:S{draw(st.integers(1, 9))}",
            )
        )
    return resources


@given(resources=graphs(), operation=st.sampled_from(Operation))
def test_the_schedule_is_as_early_as_possible_and_its_path_adds_up(
    resources: list[Resource], operation: Operation
) -> None:
    result = schedule(*resources, operation=operation)
    spans = {span.name: span for span in result.spans}
    assert set(spans) == {resource.name for resource in resources if resource.custom}
    waits: dict[str, set[str]] = {name: set() for name in spans}
    for resource in resources:
        for other in resource.depends_on:
            first, then = (other, resource.name) if operation is not Operation.DELETE else (resource.name, other)
            waits[then].add(first)
    for name, span in spans.items():
        assert span.start_s == max((spans[other].end_s for other in waits[name]), default=0)
    chain = result.critical_path
    assert sum(span.duration_s for span in chain) == result.total_s == max(span.end_s for span in result.spans)
    assert chain[0].start_s == 0
    for before, after in pairwise(chain):
        assert before.end_s == after.start_s
        assert before.name in waits[after.name]


@given(resources=graphs(), order=st.randoms(use_true_random=False))
def test_the_order_of_the_list_changes_nothing(resources: list[Resource], order: Any) -> None:
    shuffled = list(resources)
    order.shuffle(shuffled)
    assert schedule(*shuffled) == schedule(*resources)


# Real stacks


@cache
def real(stack: str) -> tuple[tuple[resource_graph.Registered, ...], dict[str, str]]:
    """A stack's resources and the SKUs that matter, registered once."""
    built = load_plan(stack)
    return graph.registered(built), timeline.variants_of(built)


@pytest.mark.parametrize("stack", ["dev", "prod"])
@pytest.mark.parametrize("operation", Operation)
def test_real_stacks_have_a_duration_for_every_type(stack: str, operation: Operation) -> None:
    resources, variants = real(stack)
    result = timeline.critical_path(resources, operation, variants=variants)
    assert result.unknown_types == ()
    assert sum(span.duration_s for span in result.critical_path) == pytest.approx(result.total_s)


def test_nodes_that_share_a_disk_come_one_after_the_other_and_others_do_not() -> None:
    def vm_starts(resources: Iterable[resource_graph.Registered]) -> set[float]:
        return {span.start_s for span in timeline.critical_path(resources).spans if span.type == VM}

    assert len(vm_starts(real("dev")[0])) == 2
    assert len(vm_starts(graph.registered(plan(model_store=FILES)))) == 1


def test_to_bring_a_part_of_the_bundle_takes_less_than_to_make_a_node_serve() -> None:
    kind = timeline.RUN_COMMAND_TYPE
    commands = [Resource(f"node-1-{name}", type=kind) for name in ("package", "prepare", "apply")]
    spans = {span.name: span.duration_s for span in timeline.critical_path(commands).spans}
    assert 0 < spans["node-1-package"] < spans["node-1-apply"] < spans["node-1-prepare"]


def test_a_classic_gateway_decides_how_long_a_stack_takes() -> None:
    built = plan(gateway={"tier": "Developer", "inbound": "internal"})
    resources = graph.registered(built)
    classic = timeline.critical_path(resources, variants=timeline.variants_of(built))
    assert "gateway-service" in path(classic)
    assert classic.total_s > timeline.critical_path(resources).total_s > 600


def test_every_duration_is_positive_and_every_source_is_for_an_operation() -> None:
    table = durations.load()
    for name, row in {**table.resources, "default": table.default}.items():
        assert isinstance(row, Row)
        for operation in Operation:
            for variant in (None, *row.variants):
                seconds, source = table.lookup(name, operation, variant)
                assert seconds > 0
                assert source


# Drawing


def drawn(result: Timeline, width: int) -> str:
    console = Console(width=width, force_terminal=False, highlight=False)
    with console.capture() as captured:
        console.print(timeline.render(result, width=width))
    return captured.get()


@pytest.mark.parametrize("stack", ["dev", "prod"])
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_chart_fits_and_shows_the_critical_path(stack: str, width: int) -> None:
    resources, variants = real(stack)
    result = timeline.critical_path(resources, variants=variants)
    lines = drawn(result, width).splitlines()
    assert max(len(line) for line in lines) <= width
    heavy = [line for line in lines if "━" in line]
    assert len(heavy) == len(result.critical_path)
    assert len([line for line in lines if line.rstrip().endswith(("━", "─"))]) < len(result.spans)
    assert "\x1b" not in "".join(lines)


def test_bars_stand_where_their_time_is() -> None:
    result = schedule(
        Resource("a", type="test:x:S5"), Resource("b", ("a",), type="test:x:S5"), Resource("c", type="test:x:S4")
    )
    other, first, last = (line for line in drawn(result, 60).splitlines() if line[:3] in ("a  ", "b  ", "c  "))
    assert (first.index("━"), first.rindex("━") + 1) == (last.index("━") - first.count("━"), last.index("━"))
    assert abs(first.count("━") - last.count("━")) <= 1
    assert other.startswith("c  00:00  00:04")
    assert 0 < other.count("─") < first.count("━")


def test_short_work_beside_the_path_is_only_counted() -> None:
    chain = [Resource("long", type="test:x:S9")]
    for index in range(14):
        chain.append(Resource(f"n{index}", (chain[-1].name,), type="test:x:S9"))
    text = drawn(schedule(*chain, Resource("aside")), 80)
    assert "aside" not in text
    assert "1 shorter ones beside the critical path are not drawn." in text


def test_the_timeline_as_json() -> None:
    made = json.loads(json.dumps(timeline.to_json(schedule(Resource("a"), Resource("b", ("a",), type="test:x:Slow")))))
    assert (made["operation"], made["total_s"], made["critical_path"]) == ("create", 11, ["a", "b"])
    assert made["resources"][1] == {
        "name": "b",
        "type": "test:x:Slow",
        "start_s": 1,
        "end_s": 11,
        "critical": True,
        "source": "measured",
    }


@pytest.mark.parametrize(
    ("seconds", "clock", "spoken"),
    [
        (0, "00:00", "0 s"),
        (59.4, "00:59", "59 s"),
        (59.6, "01:00", "1 min"),
        (909, "15:09", "15 min"),
        (7500, "125:00", "2 h 5 min"),
    ],
)
def test_times_are_written_for_people(seconds: float, clock: str, spoken: str) -> None:
    assert (timeline.clock(seconds), timeline.spoken(seconds)) == (clock, spoken)
