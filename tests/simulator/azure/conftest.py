"""The provider over real gRPC, in this process; a client that behaves like the engine."""

from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from simulator.azure.cloud.subscription import Cloud
from simulator.azure.protocol import register
from simulator.azure.settings import Settings
from tests.simulator.azure import builders
from tests.simulator.azure.engine import Azure


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty fault file that the provider reads."""
    path = tmp_path / "faults.yaml"
    path.write_text("{}")
    monkeypatch.setenv("AZURE_SIMULATOR_FAULTS", str(path))
    return path


@pytest.fixture
def azure(tmp_path: Path, faults: Path) -> Iterator[Azure]:
    """A fresh simulated subscription behind gRPC."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    cloud = Cloud(Settings(state=tmp_path / "azure.json", time_scale=0.0, hold_s=0.0))
    register(cloud, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        client = Azure(channel, cloud, faults)
        client.configure()
        yield client
    server.stop(0)


@pytest.fixture
def ground(azure: Azure) -> Azure:
    """A subscription with the resource group."""
    builders.group(azure)
    return azure


@pytest.fixture
def service(ground: Azure) -> Azure:
    """A subscription with a gateway."""
    builders.gateway(ground)
    return ground
