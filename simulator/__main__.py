"""`pulumi-resource-azure-native`: serve on a free loopback port and print it, as the engine expects."""

from __future__ import annotations

import sys
import threading
import types
from concurrent import futures
from importlib.util import find_spec

from simulator.errors import SimulatorError

_MESSAGE_BYTES = 400 * 1024 * 1024  # the limit the Pulumi SDKs use


def _load_only_protobufs() -> None:
    """Import `pulumi.runtime.proto` without the rest of the SDK: the provider starts in a third of the time."""
    spec = find_spec("pulumi")
    if spec is None or not spec.submodule_search_locations:
        raise SimulatorError("the Python package 'pulumi' is not installed beside the simulator; run 'make setup'")
    root = next(iter(spec.submodule_search_locations))
    for name, path in (("pulumi", root), ("pulumi.runtime", f"{root}/runtime")):
        stub = types.ModuleType(name)
        stub.__path__ = [path]
        sys.modules[name] = stub


def main() -> int:
    """Serve until killed."""
    try:
        _load_only_protobufs()
        import grpc  # noqa: PLC0415 - after the stubs

        from simulator.cloud import Cloud  # noqa: PLC0415
        from simulator.protocol import register  # noqa: PLC0415
        from simulator.settings import from_environment  # noqa: PLC0415

        settings = from_environment()
    except SimulatorError as error:
        sys.stderr.write(f"simulated azure-native: {error}\n")
        return 2
    options = [("grpc.max_receive_message_length", _MESSAGE_BYTES), ("grpc.max_send_message_length", _MESSAGE_BYTES)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=64), options=options)
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    register(Cloud(settings), server, arguments[0] if arguments else "")
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
