"""`ray start --block` as the unit sees it: processes `gcs_server` and `raylet`, listeners on the ports it was given.

A worker stays while its head is there and ends 3 s after it has lost it (Ray: within a minute). Any process that ends
takes the others with it, with exit code 1, as `--block` does.
"""

import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

LOST_S = 3.0
LISTENERS = (
    "node-manager-port",
    "object-manager-port",
    "runtime-env-agent-port",
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "metrics-export-port",
)
PR_SET_NAME, PR_SET_PDEATHSIG = 15, 1


def options() -> dict[str, str]:
    """--name=value and --flag of the command line."""
    return dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[2:] if word.startswith("--"))


def token() -> str:
    """The cluster's token, from the file that the unit names."""
    return Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text().strip() if os.environ.get("RAY_AUTH_MODE") else ""


def child(name: str, body: Callable[[], None]) -> int:
    """Run a part under its own name."""
    pid = os.fork()
    if pid:
        return pid
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        body()
    finally:
        os._exit(1)


def listen(address: str, port: int) -> socket.socket:
    """A listening socket."""
    return socket.create_server((address, port), backlog=64, reuse_port=False)


def gcs(address: str, port: int) -> None:
    """The cluster's state: who has joined and still holds the connection."""
    secret = token()
    nodes: dict[socket.socket, str] = {}
    chooser = selectors.DefaultSelector()
    server = listen(address, port)
    chooser.register(server, selectors.EVENT_READ)
    while True:
        for key, _ in chooser.select():
            if key.fileobj is server:
                joined, _ = server.accept()
                chooser.register(joined, selectors.EVENT_READ, data=joined)
                continue
            caller: socket.socket = key.data
            try:
                words = caller.recv(4096).decode().split()
            except OSError:
                words = []
            if len(words) == 3 and words[0] == secret and words[1] == "join":
                nodes[caller] = words[2]
                caller.sendall(b"welcome\n")
                continue
            if len(words) == 2 and words == [secret, "list"]:
                caller.sendall(json.dumps(sorted(set(nodes.values()))).encode())
            nodes.pop(caller, None)
            chooser.unregister(caller)
            caller.close()


def raylet(asked: dict[str, str], head: tuple[str, int]) -> None:
    """A node: its listeners, and a connection to the head for as long as there is one."""
    own = asked["node-ip-address"]
    ports = [int(asked[name]) for name in LISTENERS]
    ports += [int(asked["ray-client-server-port"])] if "head" in asked else []
    ports += [int(os.environ["DASHBOARD_METRIC_PORT"])] if "head" in asked else []
    kept = [listen(own, port) for port in ports]
    kept += [listen("127.0.0.1", int(asked["dashboard-port"]))] if "head" in asked else []
    lost_since = time.monotonic()
    while time.monotonic() - lost_since < LOST_S:
        try:
            with socket.create_connection(head, timeout=5) as joined:
                joined.sendall(f"{token()} join {own}\n".encode())
                joined.settimeout(None)
                # A head that lost its power says nothing; Ray asks it, too.
                joined.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 6)):
                    joined.setsockopt(socket.IPPROTO_TCP, option, value)
                while joined.recv(64):
                    print("ray (lab): joined", flush=True)
                lost_since = time.monotonic()
        except OSError:
            pass
        time.sleep(0.5)
    print("ray (lab): the head is lost", flush=True)


def main() -> None:
    """`ray start`."""
    asked = options()
    if sys.argv[1:2] != ["start"] or "block" not in asked:
        sys.exit("ray (lab): only `ray start --block` is here")
    Path(asked["temp-dir"]).mkdir(parents=True, exist_ok=True)
    if "head" in asked:
        head = (asked["node-ip-address"], int(asked["port"]))
        children = [child("gcs_server", lambda: gcs(*head))]
    else:
        address, _, port = asked["address"].rpartition(":")
        head, children = (address, int(port)), []
    children.append(child("raylet", lambda: raylet(asked, head)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ended, _ = os.wait()
    print(f"ray (lab): a part ended (pid {ended}); ending the others", flush=True)
    for pid in children:
        if pid != ended:
            os.kill(pid, signal.SIGKILL)
    sys.exit(1)


if __name__ == "__main__":
    main()
