"""Serve until the engine goes."""

import sys

from simulator.plugin.process import engine_address, load_only_protobufs, serve


def main() -> int:
    """Started by the engine, with its address as argument."""
    load_only_protobufs()
    from pulumi.runtime.proto import provider_pb2_grpc  # noqa: PLC0415 - after load_only_protobufs

    from simulator.command_provider.service import CommandProvider  # noqa: PLC0415

    provider = CommandProvider(engine_address())
    serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server))
    return 0


if __name__ == "__main__":
    sys.exit(main())
