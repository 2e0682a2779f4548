"""`jupyter-lab` as its unit starts it: one address, one port, and an answer for those who have the token."""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Notebooks(BaseHTTPRequestHandler):
    """The server's API, as far as a probe asks it."""

    token = ""

    def do_GET(self) -> None:
        self.send_response(200 if self.headers["Authorization"] == f"token {self.token}" else 403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    """Serve until told to stop."""
    options = dict(word.partition("=")[::2] for word in sys.argv[1:])
    Notebooks.token = Path(os.environ["JUPYTER_TOKEN_FILE"]).read_text()  # as it is, with any line's end
    (Path.home() / "notebook").write_text("what a person writes is kept")
    address = options["--ServerApp.ip"], int(options["--ServerApp.port"])
    ThreadingHTTPServer(address, Notebooks).serve_forever()
