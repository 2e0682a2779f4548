"""Engines that follow each other on one port: what gRPC knew of the first one must not be held against the second."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
from pulumi.runtime import _grpc_settings, settings

from infra.rehearsal import sandbox
from tools.ports import reserve_port


def asked(channel: grpc.Channel) -> str:
    """How a question ends that no server here knows."""
    try:
        channel.unary_unary("/no/such")(b"", timeout=10)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "answered"


def test_an_engine_at_the_port_of_one_that_is_gone_is_reached() -> None:
    sandbox.connect_afresh()
    address, options = f"127.0.0.1:{reserve_port()}", _grpc_settings._GRPC_CHANNEL_OPTIONS

    def engine() -> grpc.Server:
        server = grpc.server(ThreadPoolExecutor(1))
        server.add_insecure_port(address)
        server.start()
        return server

    first = engine()
    with grpc.insecure_channel(address, options=options) as old:
        assert asked(old) == "UNIMPLEMENTED"
        first.stop(0).wait()
        assert asked(old) == "UNAVAILABLE"
        second = engine()
        with grpc.insecure_channel(address, options=options) as new:
            assert asked(new) == "UNIMPLEMENTED"
        second.stop(0).wait()


def test_the_sdk_takes_these_options_and_gets_them_once() -> None:
    sandbox.connect_afresh()
    sandbox.connect_afresh()
    assert settings._GRPC_CHANNEL_OPTIONS.count(sandbox.OWN_CONNECTIONS) == 1  # type: ignore[attr-defined]
