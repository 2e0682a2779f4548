"""Secrets: marked on the way back, absent from the state file, the logs and the errors."""

import grpc
import hypothesis
import pytest
from hypothesis import strategies as st

from simulator.azure.state import redaction
from simulator.plugin.values import UNKNOWN, Secret, from_wire, reveal, to_wire
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import PartialError, RefusedError

CANARY = "CANARY-4f1c-do-not-leak"


def test_the_provider_accepts_secrets(azure):
    response = azure.configure()
    assert response.acceptSecrets and response.supportsPreview and response.supports_autonaming_configuration


def test_a_secret_input_is_a_secret_output(azure):
    b.group(azure)
    disk = b.disk(azure, tags={"open": "yes", "hidden": Secret(CANARY)})
    assert disk.outputs["tags"] == {"open": "yes", "hidden": Secret(CANARY)}
    assert CANARY not in azure.cloud.store.path.read_text()


def test_a_secret_text_is_recognised_elsewhere(azure):
    b.group(azure)
    b.gateway(azure)
    value = azure.create(
        "apimanagement:NamedValue",
        "v",
        b.in_gateway(namedValueId="v", displayName="v", secret=True, value=Secret(CANARY)),
    )
    assert "value" not in value.outputs
    policy = f"<policies><inbound><set-header name='a'><value>{CANARY}</value></set-header></inbound></policies>"
    body = b.in_gateway(policyId="policy", format="rawxml", value=Secret(policy))
    made = azure.create("apimanagement:Policy", "policy", body)
    assert isinstance(made.outputs["value"], Secret) and CANARY in made.plain["value"]
    assert CANARY not in azure.cloud.store.path.read_text()


def test_a_refresh_gives_the_secret_back_and_changes_nothing(azure):
    b.group(azure)
    disk = b.disk(azure, tags={"hidden": Secret(CANARY)})
    fresh = azure.refresh(disk)
    assert fresh.outputs["tags"] == {"hidden": Secret(CANARY)}
    assert not azure.diff(fresh, disk.inputs).changes


def test_a_secret_changed_outside_is_drift(azure):
    b.group(azure)
    disk = b.disk(azure, tags={"hidden": Secret(CANARY)})
    with azure.cloud.store.transaction() as state:
        state.get(disk.id).properties["tags"] = {"hidden": {"$secret": "0" * 64}}
    fresh = azure.refresh(disk)
    assert isinstance(fresh.inputs["tags"]["hidden"], Secret)
    assert azure.diff(fresh, disk.inputs).diffs == ["tags"]


def test_write_only_properties_are_not_read_back(azure):
    made = b.node(azure)
    assert "customData" not in made.outputs["osProfile"]
    b.vault(azure)
    value = b.secret(azure, value=CANARY)
    assert "value" not in reveal(value.outputs)["properties"]
    assert CANARY not in azure.cloud.store.path.read_text()


def test_what_azure_adds_to_a_secret_property_stays_readable(azure):
    """The SDK marks the whole `properties` of a Key Vault secret."""
    b.group(azure)
    b.vault(azure)
    body = b.in_group(
        vaultName="kv-test", secretName="token", properties=Secret({"value": CANARY, "contentType": "text"})
    )
    made = azure.create("keyvault:Secret", "token", body)
    assert isinstance(made.outputs["properties"], Secret)
    assert made.plain["properties"]["secretUri"] == "https://kv-test.vault.azure.net/secrets/token"
    fresh = azure.refresh(made)
    assert fresh.outputs == made.outputs and not azure.diff(fresh, made.inputs).changes
    assert CANARY not in azure.cloud.store.path.read_text()


def test_an_update_is_judged_although_the_profile_is_secret(azure):
    b.group(azure)
    nic = b.nic(azure, b.vnet(azure))
    inputs = b.vm_inputs(nic.id)
    inputs["osProfile"] = Secret(inputs["osProfile"])
    made = azure.create("compute:VirtualMachine", "node", inputs)
    assert azure.change(made, tags={"a": "b"}).outputs["tags"] == {"a": "b"}
    other = {**reveal(inputs["osProfile"]), "computerName": "renamed"}
    with pytest.raises(RefusedError, match=r"Changing property 'osProfile.computerName'"):
        azure.change(made, osProfile=Secret(other))


def test_errors_and_the_log_hold_no_secret(azure):
    b.group(azure)
    with pytest.raises(RefusedError) as caught:
        azure.create("compute:Disk", "models", b.disk_inputs(networkAccessPolicy=Secret(CANARY)))
    assert CANARY not in str(caught.value) and "[secret]" in str(caught.value)
    assert CANARY not in azure.cloud.store.path.read_text()


def test_a_partial_failure_holds_no_secret_text(azure):
    azure.set_faults({"faults": [{"kind": "run_command", "log_tail": [f"token {CANARY} refused"]}]})
    b.node(azure)
    body = b.run_command_inputs(source={"script": Secret(f"export TOKEN={CANARY}")}, parameters=[])
    body["protectedParameters"] = [{"name": "token", "value": Secret(CANARY)}]
    with pytest.raises(PartialError) as caught:
        azure.create("compute:VirtualMachineRunCommandByVirtualMachine", "apply", body)
    assert CANARY not in str(caught.value)
    assert CANARY not in azure.cloud.store.path.read_text()


def test_a_fault_of_the_simulator_tells_its_place_and_no_value(azure, monkeypatch):
    monkeypatch.setattr("simulator.azure.protocol.diff", lambda *_: {}[CANARY])
    b.group(azure)
    disk = b.disk(azure)
    with pytest.raises(grpc.RpcError) as caught:
        azure.diff(disk, disk.inputs)
    assert "simulator fault: KeyError at test_secrets.py" in caught.value.details()
    assert CANARY not in caught.value.details()


LEAVES = st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5) | st.just(UNKNOWN)
TREES = st.recursive(
    LEAVES | LEAVES.map(Secret),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
)


@hypothesis.given(st.dictionaries(st.text("xyz", min_size=1), TREES))
def test_values_survive_the_wire(tree):
    assert from_wire(to_wire(tree)) == tree


@hypothesis.given(st.dictionaries(st.text("xyz", min_size=1), TREES.filter(lambda tree: tree is not UNKNOWN)))
def test_redaction_is_undone_by_whoever_knows_the_secrets(tree):
    plain = {key: value for key, value in tree.items() if "<unknown>" not in repr(reveal(value))}
    stored = redaction.redact(reveal(plain), plain, "salt")
    restored = redaction.restore(stored, "salt", plain)
    assert reveal(restored) == reveal(plain)
    assert redaction.mark(reveal(restored), plain, redaction.secret_texts(plain)) == redaction.mark(
        reveal(plain), plain, redaction.secret_texts(plain)
    )
