"""Stand-in for what a VM finds in Azure: the identity endpoint and a key vault. Secrets: /etc/lab/secrets.json."""

import ctypes
import json
import os
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

TOKEN = "lab-canary-access-token"
SECRETS = Path("/etc/lab/secrets.json")
STA_UNSYNC, ADJ_MAXERROR, ADJ_STATUS = 0x0040, 0x0004, 0x0010


class Handler(BaseHTTPRequestHandler):
    """Answers JSON and logs nothing that could hold a secret."""

    def answer(self, status: int, body: dict[str, str]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Identity(Handler):
    """The instance metadata service, as far as `huddle-apply` asks it."""

    def do_GET(self) -> None:
        asked = parse_qs(urlparse(self.path).query)
        if self.headers["Metadata"] != "true" or "client_id" not in asked:
            return self.answer(400, {"error": "invalid_request"})
        return self.answer(200, {"access_token": TOKEN, "resource": asked["resource"][0]})


class Vault(Handler):
    """A key vault that knows one token."""

    def do_GET(self) -> None:
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.answer(401, {"error": "Unauthorized"})
        value = json.loads(SECRETS.read_text()).get(urlparse(self.path).path.rpartition("/")[2])
        return self.answer(404, {"error": "SecretNotFound"}) if value is None else self.answer(200, {"value": value})


class Timex(ctypes.Structure):
    """The kernel's `struct timex`, as far as it is needed here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def clock_is_synchronised() -> None:
    """What a time service does when it has found the time: `timedatectl` asks the kernel for this."""
    timex = Timex(modes=ADJ_MAXERROR | ADJ_STATUS, maxerror=0, status=0)
    ctypes.CDLL("libc.so.6").adjtimex(ctypes.byref(timex))


def ready() -> None:
    """Tell systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect(os.environ["NOTIFY_SOCKET"])
        notify.sendall(b"READY=1")


def main() -> None:
    """Serve both for ever."""
    clock_is_synchronised()
    identity = ThreadingHTTPServer(("169.254.169.254", 80), Identity)
    vault = ThreadingHTTPServer(("169.254.169.253", 443), Vault)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("/etc/lab/vault.crt", "/etc/lab/vault.key")
    vault.socket = context.wrap_socket(vault.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=identity.serve_forever, daemon=True).start()
    ready()
    vault.serve_forever()


if __name__ == "__main__":
    main()
