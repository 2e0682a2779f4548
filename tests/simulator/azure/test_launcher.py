"""The executable as the engine starts it: port on the first line, settings from the environment, nothing else."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from simulator.azure.errors import SimulatorError
from simulator.azure.sdk import schema
from simulator.azure.settings import from_environment
from simulator.azure.state.store import Store
from simulator.plugin.values import from_wire, to_wire
from tests.simulator.azure import builders as b

LAUNCHER = Path(__file__).parents[3] / "simulator" / "azure" / "bin" / "pulumi-resource-azure-native"


@contextmanager
def provider(tmp_path: Path, **environment: str) -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    variables = {**os.environ, "AZURE_SIMULATOR_STATE": str(tmp_path / "azure.json"), **environment}
    process = subprocess.Popen([str(LAUNCHER)], stdout=subprocess.PIPE, env=variables, text=True, cwd=tmp_path)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield provider_pb2_grpc.ResourceProviderStub(channel)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_it_serves_on_the_port_it_prints(tmp_path):
    with provider(tmp_path) as stub:
        assert stub.GetPluginInfo(empty_pb2.Empty()).version == schema.sdk_version()
        assert stub.Handshake(provider_pb2.ProviderHandshakeRequest(engine_address="")).accept_secrets
        stub.Configure(provider_pb2.ConfigureRequest(variables={"azure-native:config:location": "eastus"}))
        urn = "urn:pulumi:dev::p::azure-native:resources:ResourceGroup::rg"
        news = to_wire({"resourceGroupName": b.GROUP, "location": "eastus"})
        made = stub.Create(provider_pb2.CreateRequest(urn=urn, properties=news))
        assert made.id.endswith("/resourceGroups/rg-test")
        assert from_wire(made.properties)["name"] == b.GROUP
    assert Store(tmp_path / "azure.json").read().get(made.id)


def test_another_interpreter_can_be_named(tmp_path):
    with provider(tmp_path, SIMULATOR_PYTHON=sys.executable) as stub:
        assert stub.GetPluginInfo(empty_pb2.Empty()).version


def test_it_works_through_a_link_from_elsewhere(tmp_path):
    link = tmp_path / "pulumi-resource-azure-native"
    link.symlink_to(LAUNCHER)
    result = subprocess.run(
        [str(link)],
        env={**os.environ, "AZURE_SIMULATOR_TIME_SCALE": "fast"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr == (
        "simulated azure-native: AZURE_SIMULATOR_TIME_SCALE: 'fast' is not allowed; give a number from 0 to 1\n"
    )
    assert result.stdout == ""


def test_two_providers_share_the_state(tmp_path):
    urn = "urn:pulumi:dev::p::azure-native:resources:ResourceGroup::rg"
    news = to_wire({"resourceGroupName": b.GROUP, "location": "eastus"})
    with provider(tmp_path) as one, provider(tmp_path) as two:
        made = one.Create(provider_pb2.CreateRequest(urn=urn, properties=news))
        assert two.Read(provider_pb2.ReadRequest(urn=urn, id=made.id)).id == made.id
        with pytest.raises(grpc.RpcError, match=r"already existing resource"):
            two.Create(provider_pb2.CreateRequest(urn=urn, properties=news))


@pytest.mark.parametrize(("variable", "value"), [("AZURE_SIMULATOR_TIME_SCALE", "2"), ("AZURE_SIMULATOR_HOLD_S", "-1")])
def test_settings_are_checked(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(SimulatorError, match=rf"{variable}: '{value}' is not allowed; give a number from 0 to"):
        from_environment()


def test_settings_have_defaults(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AZURE_SIMULATOR_STATE", raising=False)
    settings = from_environment()
    assert settings.state == tmp_path / "azure-simulator.json"
    assert settings.time_scale == 0.0 and settings.hold_s > 0
