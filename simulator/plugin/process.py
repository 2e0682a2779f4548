"""The process of a Pulumi plugin written in Python: quick to start, prints its port, ends with its engine."""

import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from concurrent import futures
from importlib.util import find_spec
from typing import Any

from huddle import loopback

PARENT_CHECK_S = 1.0
LARGEST_MESSAGE_BYTES = 400 * 1024 * 1024  # what Pulumi's own plugins allow
THREADS = 32


def load_only_protobufs() -> None:
    """Make `pulumi.runtime.proto` importable without running the SDK's own imports: half a second less for each start.

    Call it before the first import from `pulumi`; this process can then use nothing else of the SDK. Its connections
    to the engine go past any proxy.
    """
    loopback.apply()
    spec = find_spec("pulumi")
    if spec is None or not spec.submodule_search_locations:
        msg = "the Python package 'pulumi' is not installed beside this plugin; run `make setup`"
        raise SystemExit(msg)
    folder = next(iter(spec.submodule_search_locations))
    for name, path in (("pulumi", folder), ("pulumi.runtime", f"{folder}/runtime")):
        hollow = types.ModuleType(name)
        hollow.__path__ = [path]
        sys.modules[name] = hollow


def engine_address() -> str:
    """The engine's address: the only argument that is no flag; empty when started by hand."""
    return next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")


def serve(register: Callable[[Any], None], on_end: Callable[[], None] = lambda: None) -> None:
    """Serve on a free loopback port, print it alone on the first line of stdout, stay until told or orphaned."""
    import grpc  # noqa: PLC0415 - after load_only_protobufs

    sizes = [(f"grpc.max_{way}_message_length", LARGEST_MESSAGE_BYTES) for way in ("receive", "send")]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=THREADS), options=sizes)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    parent = os.getppid()
    server.start()
    print(port, flush=True)
    while not stop.wait(PARENT_CHECK_S):
        if os.getppid() != parent:  # a process whose parent died is handed to another one
            break
    on_end()
    server.stop(grace=None)
