"""The recorder itself: a helper that cannot fail would make every test that uses it worthless."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pytest
from pulumi_azure_native import network

from simulator.plugin.values import UNKNOWN, Secret
from tests.unit.recording import CANARY, Recording, assert_no_canary_outside_secrets, run_program


def _address(**more: Any) -> network.PublicIPAddress:
    return network.PublicIPAddress(
        "address", resource_group_name="group", public_ip_address_name="address", location="eastus2", **more
    )


def test_options_inputs_ids_and_exports_are_recorded(preview: bool) -> None:
    def program() -> Mapping[str, Any]:
        first = _address(
            tags={"a": "b"},
            opts=pulumi.ResourceOptions(
                protect=True,
                replace_on_changes=["sku"],
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create="7m"),
            ),
        )
        second = network.PublicIPPrefix(
            "prefix",
            resource_group_name="group",
            public_ip_prefix_name="prefix",
            opts=pulumi.ResourceOptions(depends_on=[first], retain_on_delete=True, deleted_with=first),
        )
        return {"address": first.ip_address, "id": first.id, "hidden": pulumi.Output.secret("x"), "name": second.name}

    recording = run_program(program, preview=preview)
    address, prefix = recording.one("network:PublicIPAddress"), recording.one("network:PublicIPPrefix")
    assert address["tags.a"] == "b"
    assert address.protect
    assert not prefix.protect
    assert address.delete_before_replace is True
    assert prefix.delete_before_replace is None
    assert address.replace_on_changes == ("sku",)
    assert address.timeouts == {"create": "7m"}
    assert prefix.retain_on_delete
    assert prefix.deleted_with == address.urn
    assert address.aliases == ()
    assert recording.waits_for(prefix, address)
    assert not recording.waits_for(address, prefix)
    assert recording.exports["hidden"] == Secret("x")
    assert recording.exports["name"] == "prefix"
    if preview:
        assert recording.exports["address"] is UNKNOWN
        assert recording.exports["id"] is UNKNOWN
    else:
        assert recording.exports["address"] == "203.0.113.10"
        assert recording.exports["id"].endswith("/providers/Microsoft.Network/publicIPAddresses/address")


def test_an_undeclared_output_is_refused() -> None:
    with pytest.raises(AssertionError, match="etag"):
        run_program(lambda: {"etag": _address().etag})


@pytest.mark.parametrize("form", ["https://{0}/", "{0}-x", "x-{0}"])
def test_an_output_without_a_value_in_a_text_is_refused(form: str) -> None:
    with pytest.raises(AssertionError, match="no value"):
        run_program(lambda: {"text": pulumi.Output.format(form, _address().dns_settings)})


def test_an_undeclared_call_is_refused() -> None:
    with pytest.raises(Exception, match="getVirtualNetwork"):
        run_program(
            lambda: {
                "id": network.get_virtual_network_output(resource_group_name="group", virtual_network_name="vnet").id
            }
        )


def test_inputs_that_the_sdk_does_not_know_are_refused(preview: bool) -> None:
    with pytest.raises(Exception, match="wrongKey"):
        run_program(lambda: {"id": _address(dns_settings={"wrongKey": "x"}).id}, preview=preview)


def test_an_output_in_an_f_string_is_refused(preview: bool) -> None:
    with pytest.raises(Exception, match="__str__"):
        run_program(lambda: {"text": f"{_address().id}"}, preview=preview)


def test_a_failing_program_fails_the_run(preview: bool) -> None:
    def program() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_program(program, preview=preview)


def test_a_failing_apply_fails_the_run() -> None:
    with pytest.raises(ZeroDivisionError):
        run_program(lambda: {"text": _address().name.apply(lambda _: 1 // 0)})


@pytest.mark.parametrize(
    "leak",
    [f"{CANARY}-x", *(base64.b64encode(b"a" * n + f"{CANARY}-x".encode()).decode() for n in range(3))],
    ids=["plain", "base64-0", "base64-1", "base64-2"],
)
def test_a_leaked_secret_is_found_and_a_marked_one_is_not(leak: str) -> None:
    def run(mark: Callable[[str], pulumi.Input[str]]) -> Recording:
        return run_program(lambda: {"id": _address(tags={"key": mark(leak)}).id})

    assert_no_canary_outside_secrets(run(pulumi.Output.secret))
    with pytest.raises(AssertionError, match="plain text"):
        assert_no_canary_outside_secrets(run(str))
    with pytest.raises(AssertionError, match="plain text"):
        assert_no_canary_outside_secrets(run_program(lambda: {"out": leak}))


def test_config_is_the_stack_files_with_canaries() -> None:
    def program() -> Mapping[str, Any]:
        config = pulumi.Config("h100-inference")
        return {"key": config.require_secret("backend_key"), "nodes": config.require_object("nodes")["count"]}

    assert run_program(program).exports == {"key": Secret(f"{CANARY}-backend_key"), "nodes": 2}
