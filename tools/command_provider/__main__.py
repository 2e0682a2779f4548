"""Serve on a free loopback port and print it, as the engine expects of a plugin; stay until killed."""

import sys
import threading
from concurrent import futures

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from tools.command_provider.service import CommandProvider

LARGEST_MESSAGE_BYTES = 400 * 1024 * 1024  # what Pulumi's own plugins allow


def main() -> int:
    """The engine's address is the only argument that is no flag."""
    address = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    sizes = [(f"grpc.max_{way}_message_length", LARGEST_MESSAGE_BYTES) for way in ("receive", "send")]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32), options=sizes)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(CommandProvider(address), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
