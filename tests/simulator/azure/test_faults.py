"""Fault injection: each kind, what it applies to, how often; and what a wrong fault file says."""

import time

import pytest

from simulator.azure.errors import SimulatorError
from simulator.azure.faults import load
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import PartialError, RefusedError


def faults(*entries):
    return {"faults": list(entries)}


def test_quota(azure):
    b.group(azure)
    nic = b.nic(azure, b.vnet(azure))
    azure.set_faults(faults({"kind": "quota", "times": 1}))
    with pytest.raises(RefusedError) as caught:
        b.vm(azure, nic)
    assert (
        "exceeding approved StandardNCadsH100v5Family Cores quota. Additional details - Deployment Model: Resource "
        "Manager, Location: eastus, Current Limit: 0, Current Usage: 0, Additional Required: 40, (Minimum) New Limit "
        "Required: 40."
    ) in str(caught.value)
    assert b.vm(azure, nic).id


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "SkuNotAvailable",
            "Following SKUs have failed for Capacity Restrictions: Standard_NC40ads_H100_v5' is currently",
        ),
        ("AllocationFailed", "sufficient capacity for the requested VM size in this region"),
        ("ZonalAllocationFailed", "sufficient capacity for the requested VM size in zone '2'"),
        ("OverconstrainedAllocationRequest", "too restrictive: VM Size. Please"),
        ("OverconstrainedZonalAllocationRequest", "too restrictive: VM Size, Availability Zone. Please"),
    ],
)
def test_capacity(azure, code, words):
    b.group(azure)
    nic = b.nic(azure, b.vnet(azure))
    azure.set_faults(faults({"kind": "capacity", "code": code}))
    with pytest.raises(RefusedError) as caught:
        b.vm(azure, nic, zones=["2"])
    assert f'Code="{code}"' in str(caught.value) and words in str(caught.value)
    assert azure.state.of_type("compute:VirtualMachine") == []


def test_conflict_strikes_by_type_and_name(azure):
    azure.set_faults(faults({"kind": "conflict", "match": {"type": "compute:disk", "name": "mod*"}}))
    b.group(azure)
    assert b.disk(azure, "other").id
    with pytest.raises(RefusedError, match=r'Status=409 Code="AnotherOperationInProgress"'):
        b.disk(azure)


def test_conflict_on_delete(azure):
    b.group(azure)
    disk = b.disk(azure)
    azure.set_faults(faults({"kind": "conflict", "operations": ["delete"], "times": 4}))
    with pytest.raises(RefusedError, match=r"AnotherOperationInProgress"):
        azure.delete(disk)
    azure.delete(disk)


@pytest.mark.parametrize("kind", ["conflict", "throttle"])
def test_what_passes_by_itself_is_tried_three_more_times(azure, kind):
    b.group(azure)
    azure.set_faults(faults({"kind": kind, "times": 3}))
    assert b.disk(azure).id
    assert [record.status for record in azure.state.operations[1:]] == ["failed"] * 3 + ["succeeded"]
    azure.set_faults(faults({"kind": kind, "times": 4}))
    with pytest.raises(RefusedError):
        b.disk(azure, "another")


def test_azure_is_asked_again_after_twenty_sixty_and_a_hundred_and_twenty_seconds(azure, monkeypatch):
    waits = []
    monkeypatch.setattr(azure.cloud, "wait", waits.append)
    azure.set_faults(faults({"kind": "conflict"}))
    with pytest.raises(RefusedError):
        b.group(azure)
    azure.set_faults(faults({"kind": "throttle", "retry_after_s": 7, "times": 1}))
    b.group(azure)
    assert waits == [20, 60, 120, 7]


def test_what_does_not_pass_by_itself_is_final(azure):
    b.group(azure)
    azure.set_faults(faults({"kind": "capacity", "match": {"type": "compute:Disk"}}))
    with pytest.raises(RefusedError):
        b.disk(azure)
    azure.set_faults(faults({"kind": "throttle", "retry_after_s": 121}))
    with pytest.raises(RefusedError):
        b.disk(azure)
    assert [record.status for record in azure.state.operations[1:]] == ["failed"] * 2


def test_a_wait_ends_with_the_operation(azure):
    azure.cloud.cancel()
    azure.set_faults(faults({"kind": "conflict"}))
    with pytest.raises(RefusedError, match="operation cancelled"):
        b.group(azure)


def test_an_interface_stays_reserved_for_the_vm_that_could_not_be_made(azure):
    b.group(azure)
    nic = b.nic(azure, b.vnet(azure))
    azure.set_faults(faults({"kind": "capacity", "times": 1}, {"kind": "interface_held", "seconds": 60}))
    with pytest.raises(RefusedError, match="SkuNotAvailable"):
        b.vm(azure, nic)
    with pytest.raises(RefusedError, match=r'400 Code="NicReservedForAnotherVm"'):
        azure.delete(nic)
    with pytest.raises(RefusedError, match="NicReservedForAnotherVm"):
        b.vm(azure, nic, name="other")
    vm = b.vm(azure, nic)
    azure.delete(vm)
    with pytest.raises(RefusedError, match="NicReservedForAnotherVm"):
        azure.delete(nic)


def test_an_interface_is_free_again_after_a_while(azure):
    b.group(azure)
    nic = b.nic(azure, b.vnet(azure))
    azure.set_faults(faults({"kind": "interface_held", "seconds": 0.01}))
    azure.delete(b.vm(azure, nic))
    time.sleep(0.02)
    azure.delete(nic)


def test_throttle(azure):
    azure.set_faults(faults({"kind": "throttle", "retry_after_s": 7}))
    with pytest.raises(RefusedError, match=r'Status=429 Code="TooManyRequests".*7 seconds'):
        b.group(azure)


def test_an_image_without_the_mark_refuses_trusted_launch_and_takes_a_standard_vm(azure):
    b.group(azure)
    network = b.vnet(azure)
    azure.set_faults(faults({"kind": "trusted_launch"}))
    with pytest.raises(RefusedError, match=r'400 Code="BadRequest" Message="Use of TrustedLaunch setting is not'):
        b.vm(azure, b.nic(azure, network), securityProfile={"securityType": "TrustedLaunch"})
    assert b.vm(azure, b.nic(azure, network, "other"), "node-2").id


NOT_REGISTERED = r"MissingSubscriptionRegistration.*not registered to use namespace 'Microsoft\.{}'"


def test_nobody_registers_the_provider_that_a_subnet_is_lent_to(azure):
    azure.set_faults({"subscription": {"unregistered": ["Microsoft.Web", "Microsoft.Compute"]}})
    b.group(azure)
    lent = b.subnet("gateway", "10.0.1.0/24", delegations=[{"name": "g", "serviceName": "Microsoft.Web/serverFarms"}])
    with pytest.raises(RefusedError, match=NOT_REGISTERED.format("Web")):
        b.vnet(azure, lent)
    assert b.disk(azure).id, "the provider registers what it calls itself"


def test_who_may_not_register_gets_nothing_of_a_provider(azure):
    azure.set_faults({"subscription": {"unregistered": ["Microsoft.Compute"], "may_register": False}})
    b.group(azure)
    with pytest.raises(RefusedError, match=NOT_REGISTERED.format("Compute")):
        b.disk(azure)
    assert b.vnet(azure).id


def test_who_may_not_assign_roles_is_told_which_right_is_missing(azure):
    b.group(azure)
    vault = b.vault(azure)
    role = {
        "scope": vault.id,
        "principalId": "aaaaaaaa-0000-4000-8000-000000000001",
        "roleDefinitionId": "/providers/Microsoft.Authorization/roleDefinitions/4633458b-17de-408a-b874-0445c86b69e6",
    }
    azure.set_faults({"subscription": {"may_assign_roles": False}})
    words = r"AuthorizationFailed.*perform action 'Microsoft.Authorization/roleAssignments/write' over scope"
    with pytest.raises(RefusedError, match=words):
        azure.create("authorization:RoleAssignment", "reader", role)
    azure.set_faults({})
    made = azure.create("authorization:RoleAssignment", "reader", role)
    azure.set_faults({"subscription": {"may_assign_roles": False}})
    with pytest.raises(RefusedError, match=r"roleAssignments/delete"):
        azure.delete(made)


def test_a_role_counts_later_than_it_is_assigned(azure):
    b.group(azure)
    vault = b.vault(azure)
    uri = b.secret(azure).outputs["properties"]["secretUri"]
    service = b.gateway(azure, identity={"type": "SystemAssigned"})
    role = {
        "scope": vault.id,
        "principalId": service.outputs["identity"]["principalId"],
        "roleDefinitionId": "/providers/Microsoft.Authorization/roleDefinitions/4633458b-17de-408a-b874-0445c86b69e6",
    }
    azure.create("authorization:RoleAssignment", "reader", role)
    body = b.in_gateway(namedValueId="key", displayName="key", secret=True, keyVault={"secretIdentifier": uri})
    azure.set_faults({"subscription": {"role_delay_s": 600}})
    with pytest.raises(RefusedError, match=r"may not get secrets"):
        azure.create("apimanagement:NamedValue", "key", body)
    azure.set_faults({})
    assert azure.create("apimanagement:NamedValue", "key", body).id


def test_partial_and_own_message(azure):
    azure.set_faults(faults({"kind": "partial", "code": "Boom", "message": "The rack is on fire."}))
    with pytest.raises(PartialError, match=r'Code="Boom" Message="The rack is on fire."'):
        b.group(azure)


def test_slow_is_seen_in_the_log(azure):
    azure.set_faults(faults({"kind": "slow", "delay_s": 0.2, "match": {"name": "models"}}))
    b.group(azure)
    b.disk(azure)
    record = azure.state.operations[-1]
    assert record.end - record.start >= 0.2


def test_times_counts_across_a_restart_and_anew_after_an_edit(azure):
    once = {"kind": "capacity", "match": {"type": "compute:Disk"}, "times": 1}
    azure.set_faults(faults(once))
    b.group(azure)
    with pytest.raises(RefusedError):
        b.disk(azure)
    azure.cloud.store = type(azure.cloud.store)(azure.cloud.store.path)
    disk = b.disk(azure)
    azure.delete(disk)
    azure.set_faults(faults({**once, "message": "again"}))
    with pytest.raises(RefusedError, match=r"again"):
        b.disk(azure)


def test_faults_inline_in_the_environment(azure, monkeypatch):
    monkeypatch.setenv("AZURE_SIMULATOR_FAULTS", "{faults: [{kind: throttle}]}")
    with pytest.raises(RefusedError, match=r"TooManyRequests"):
        b.group(azure)


def test_a_wrong_file_stops_every_operation_with_its_sentence(azure):
    azure.set_faults("faults: [{kind: quotaa}]")
    with pytest.raises(
        RefusedError,
        match=r"\[simulated\] .*faults.yaml: faults\[0\]\.kind: 'quotaa' is not allowed; allowed: 'quota',",
    ):
        b.group(azure)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("faults: [{}]", "faults[0].kind: is required; allowed: 'quota', 'capacity', 'conflict', 'slow'"),
        ("faults: [{kind: slow, delay_s: -1}]", "faults[0].delay_s: -1 must be more than 0: Seconds of real time."),
        (
            "faults: [{kind: slow, delay_s: 1, dely: 2}]",
            "faults[0].dely: is not a known key; did you mean delay_s? allowed: delay_s, kind, match",
        ),
        ("faults: [{kind: capacity, code: Full}]", "faults[0].code: 'Full' is not allowed; allowed: 'SkuNotAvailable'"),
        ("subscription: {may_assign_rolls: false}", "subscription.may_assign_rolls: is not a known key; did you mean"),
        ("quota: {cores: -5}", "quota.cores: -5 must be 0 or more: vCPU limits"),
        ("[1, 2]\n", "a fault file is a mapping with the keys 'faults', 'quota' and 'subscription'"),
        ("faults: [\n", "line 2 is not YAML"),
        ("/nowhere/faults.yaml", "/nowhere/faults.yaml: the fault file cannot be read (No such file or directory)"),
    ],
)
def test_one_clear_sentence(text, sentence):
    with pytest.raises(SimulatorError) as caught:
        load(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_is_no_fault():
    assert load("").faults == () and load("{}").quota == {}
