"""A proxy as offices have them: it notes what it is asked for and refuses it. What is for loopback must not come."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy")
LISTS = ("no_proxy", "NO_PROXY", "no_grpc_proxy")


class RefusingProxy:
    """`asked` holds the request lines that it got."""

    def __init__(self, url: str) -> None:
        self.url, self.asked = url, list[str]()

    def environment(self, base: dict[str, str], no_proxy: str | None = None) -> dict[str, str]:
        """*base* in such an office; by default nothing says what must not go through the proxy."""
        kept = {name: value for name, value in base.items() if name not in LISTS}
        lists = {} if no_proxy is None else {"no_proxy": no_proxy}
        return kept | dict.fromkeys(VARIABLES, self.url) | lists


@contextmanager
def refusing_proxy() -> Iterator[RefusingProxy]:
    """The proxy, on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def _refuse(self) -> None:
            proxy.asked.append(self.requestline)
            self.send_error(403)

        do_GET = do_POST = do_CONNECT = do_HEAD = _refuse  # noqa: N815 - the library's names

        def log_message(self, format: str, *arguments: object) -> None:
            """The list says it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy = RefusingProxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
