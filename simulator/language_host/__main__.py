"""Serve until the engine goes; then end what still runs."""

import sys

from simulator.plugin.process import engine_address, load_only_protobufs, serve


def main() -> int:
    """Started by the engine, with its address as argument."""
    load_only_protobufs()
    from pulumi.runtime.proto import language_pb2_grpc  # noqa: PLC0415 - after load_only_protobufs

    from simulator.language_host.program import ProgramRunner  # noqa: PLC0415
    from simulator.language_host.service import LanguageHost  # noqa: PLC0415

    runner = ProgramRunner(engine_address())
    serve(
        lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(LanguageHost(runner), server),
        on_end=runner.cancel,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
