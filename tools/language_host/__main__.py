"""Serve on a free loopback port, print it alone on the first line of stdout, stay until the engine goes."""

import os
import signal
import sys
import threading
from concurrent import futures

import grpc
from pulumi.runtime.proto import language_pb2_grpc

from tools.language_host.program import parent_is_gone
from tools.language_host.service import LanguageHost

PARENT_CHECK_S = 1.0
LARGEST_MESSAGE_BYTES = 400 * 1024 * 1024  # what Pulumi's own hosts allow


def main() -> int:
    """The engine's address is the last argument."""
    host = LanguageHost(engine=sys.argv[-1] if len(sys.argv) > 1 else "")
    sizes = [("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), options=sizes)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    parent = os.getppid()
    while not stop.wait(PARENT_CHECK_S):
        if parent_is_gone(parent):
            break
    host.Cancel(None, None)
    server.stop(grace=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
