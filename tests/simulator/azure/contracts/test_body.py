"""From the SDK's inputs to ARM's bodies: every input of every type has its place."""

from collections.abc import Iterator

import pytest

from simulator.azure.contracts import body, faults, shapes
from simulator.azure.contracts.shapes import Contract, ObjectShape, Shape
from simulator.azure.sdk import schema
from simulator.azure.sdk.paths import path_of
from simulator.azure.sdk.schema import Arr, Obj, Properties, TypeExpr

WITHOUT_A_PLACE = {
    "apimanagement:Subscription.appType",  # these three stand in the request's query
    "apimanagement:Subscription.notify",
    "storage:FileShare.expand",
    "network:NetworkInterface.ipConfigurations.subnet.ipamPoolPrefixAllocations.id",  # two levels away; not in use
    "network:NetworkInterface.ipConfigurations.subnet.serviceGateway",  # of a newer API version
}


def homeless() -> Iterator[str]:
    seen: set[tuple[str, str, str]] = set()

    def objects(contract: Contract, shape: ObjectShape, properties: Properties, where: str) -> Iterator[str]:
        for name, one in properties.items():
            place = body.place_of(contract, shape, name)
            if place is None:
                yield f"{where}.{name}"
            else:
                yield from values(contract, place.shape, one.type, f"{where}.{name}")

    def values(contract: Contract, shape: Shape, kind: TypeExpr, where: str) -> Iterator[str]:
        if isinstance(kind, Arr) and shape.of:
            yield from values(contract, shape.of, kind.item, where)
        if isinstance(kind, Obj) and shape.kind == "object":
            pair = (kind.module, kind.name, shape.name)
            if pair not in seen:
                seen.add(pair)
                yield from objects(contract, contract.shapes[shape.name], schema.object_properties(kind), where)

    for key in shapes.arm_types():
        kind = schema.resource(f"azure-native:{key}")
        contract = shapes.contract(key, kind.api_version)
        assert contract
        sent = {name: one for name, one in kind.inputs.items() if name not in path_of(kind).params}
        yield from objects(contract, contract.body, sent, key)


def test_every_input_has_its_place() -> None:
    assert set(homeless()) == WITHOUT_A_PLACE


def body_of(key: str, **inputs: object) -> dict[str, object]:
    contract = shapes.contract(key, schema.resource(f"azure-native:{key}").api_version)
    assert contract
    return body.body_of(contract, inputs)


def test_what_arm_keeps_in_properties_goes_there_at_every_depth() -> None:
    assert body_of(
        "network:VirtualNetwork",
        tags={"a": "b"},
        subnets=[{"name": "nodes", "addressPrefix": "10.0.0.0/24", "delegations": [{"name": "d", "serviceName": "s"}]}],
    ) == {
        "tags": {"a": "b"},
        "properties": {
            "subnets": [
                {
                    "name": "nodes",
                    "properties": {
                        "addressPrefix": "10.0.0.0/24",
                        "delegations": [{"name": "d", "properties": {"serviceName": "s"}}],
                    },
                }
            ]
        },
    }


def test_properties_that_the_sdk_leaves_alone_stay() -> None:
    assert body_of("keyvault:Vault", properties={"tenantId": "t"}) == {"properties": {"tenantId": "t"}}


def test_names_become_arms_own() -> None:
    assert body_of("applicationinsights:Component", kind="web", applicationType="web") == {
        "kind": "web",
        "properties": {"Application_Type": "web"},
    }
    assert body_of("apimanagement:Api", apiType="http", soapApiType="soap") == {
        "properties": {"type": "http", "apiType": "soap"}
    }


def test_a_set_of_ids_becomes_a_mapping() -> None:
    identity = {"type": "UserAssigned", "userAssignedIdentities": ["/id"]}
    assert body_of("compute:VirtualMachine", identity=identity) == {
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {"/id": {}}}
    }


def test_what_has_no_place_stays_to_be_refused() -> None:
    assert body_of("compute:Disk", color="red") == {"color": "red"}


def metric_alert(**criterion: object) -> dict[str, object]:
    one = {"criterionType": "StaticThresholdCriterion", "name": "a", "metricName": "m", "timeAggregation": "Average"}
    several = "Microsoft.Azure.Monitor.MultipleResourceMultipleMetricCriteria"
    return body_of(
        "monitor:MetricAlert",
        location="global",
        enabled=True,
        severity=1,
        scopes=[],
        evaluationFrequency="PT1M",
        windowSize="PT5M",
        criteria={"odataType": several, "allOf": [{**one, "operator": "LessThan", "threshold": 1, **criterion}]},
    )


@pytest.mark.parametrize(
    ("criterion", "says"),
    [
        ({}, None),
        ({"operator": "Below"}, "'properties.criteria.allOf[0].operator' has the value 'Below'"),
        ({"threshold": "1"}, "'properties.criteria.allOf[0].threshold' must be a number"),
        ({"limit": 1}, "'properties.criteria.allOf[0].limit' does not exist"),
        ({"criterionType": "Guess"}, "'properties.criteria.allOf[0].criterionType' has the value 'Guess'; allowed: "),
        ({"criterionType": "DynamicThresholdCriterion"}, "'properties.criteria.allOf[0].alertSensitivity' is required"),
    ],
)
def test_one_of_several_objects_is_judged_as_the_one_that_it_says_it_is(
    criterion: dict[str, object], says: str | None
) -> None:
    contract = shapes.contract("monitor:MetricAlert", "2018-03-01")
    assert contract
    found = [str(fault) for fault in faults.faults(contract, "a", metric_alert(**criterion))]
    assert found == [] if says is None else any(one.startswith(says) for one in found)


def test_an_object_that_does_not_say_which_one_it_is_is_refused() -> None:
    contract = shapes.contract("monitor:MetricAlert", "2018-03-01")
    assert contract
    whole = {**metric_alert(), "properties": {"criteria": {"allOf": []}}}
    found = [str(fault) for fault in faults.faults(contract, "a", whole)]
    assert "'properties.criteria.odata.type' is required and missing" in found
