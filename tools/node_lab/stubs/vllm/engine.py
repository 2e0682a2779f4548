"""`vllm serve` as the wrapper and the operator see it: health, models, completions, token counters. It says "hello".

How it behaves comes from the variable LAB_ENGINE (of a bundle's environment file) or the file /etc/lab/engine, word by
word: `slow-start=SECONDS`, `never-ready`, `dies` (at once, with exit code 0, as on H100s), `slow-stop=SECONDS`.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COUNTERS = {"prompt_tokens": 0, "generation_tokens": 0}
RUNNING = 0
LOCK = threading.Lock()
TOKEN_S = 0.02


def behaviour() -> dict[str, str]:
    """The words that say how to behave."""
    path = Path("/etc/lab/engine")
    said = os.environ.get("LAB_ENGINE") or (path.read_text() if path.is_file() else "")
    return {name: value for name, _, value in (word.partition("=") for word in said.split())}


class Engine(BaseHTTPRequestHandler):
    """The engine's HTTP side."""

    protocol_version = "HTTP/1.1"
    names: tuple[str, ...] = ()

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(200, {})
        elif self.path == "/v1/models":
            cards = [{"id": name, "object": "model", "max_model_len": 4096} for name in self.names]
            self.answer(200, {"object": "list", "data": cards})
        elif self.path == "/metrics":
            lines = [f'vllm:{name}_total{{model_name="{self.names[0]}"}} {value}.0' for name, value in COUNTERS.items()]
            lines.append(f'vllm:num_requests_running{{model_name="{self.names[0]}"}} {RUNNING}.0')
            self.send("text/plain", "\n".join([*lines, ""]).encode())
        else:
            self.answer(404, {"error": {"message": "not found"}})

    def do_POST(self) -> None:
        global RUNNING
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("model") not in self.names:
            self.answer(404, {"error": {"message": f"no model {asked.get('model')}"}})
            return
        with LOCK:
            RUNNING += 1
        try:
            self.complete(asked)
        except OSError:
            self.close_connection = True
        finally:
            with LOCK:
                RUNNING -= 1

    def complete(self, asked: dict[str, Any]) -> None:
        """A completion, in one piece or as a stream. It names the first of its names, as vLLM does."""
        count = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 5)
        prompt = sum(
            len(str(message.get("content"))) for message in asked.get("messages", [{"content": asked.get("prompt")}])
        )
        usage = {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}
        common = {"id": "lab", "created": int(time.time()), "model": self.names[0]}
        COUNTERS["prompt_tokens"] += prompt
        if not asked.get("stream"):
            for _ in range(count):
                self.token()
            message = {"role": "assistant", "content": "hello " * count}
            choice = {"index": 0, "message": message, "finish_reason": "length"}
            self.answer(200, {**common, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(count):
            self.token()
            self.event({**common, "choices": [{"index": 0, "delta": {"content": "hello "}}]})
        if (asked.get("stream_options") or {}).get("include_usage"):
            self.event({**common, "choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def token(self) -> None:
        time.sleep(TOKEN_S)
        COUNTERS["generation_tokens"] += 1

    def event(self, value: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def answer(self, status: int, body: dict[str, Any]) -> None:
        self.send("application/json", json.dumps(body).encode(), status)

    def send(self, kind: str, content: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def option(words: list[str], name: str) -> list[str]:
    """The values that follow an option."""
    values = []
    for word in words[words.index(name) + 1 :]:
        if word.startswith("--"):
            break
        values.append(word)
    return values


def main() -> None:
    """Serve until told to stop."""
    words, told = sys.argv[1:], behaviour()
    if words[:1] != ["serve"]:
        sys.exit("vllm (lab): only `vllm serve` is here")
    if "dies" in told:
        print("lab engine: dying with exit code 0", flush=True)
        sys.exit(0)
    Engine.names = tuple(option(words, "--served-model-name"))
    address = option(words, "--host")[0], int(option(words, "--port")[0])
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if "never-ready" in told:
        print("lab engine: never getting ready", flush=True)
        threading.Event().wait()
    time.sleep(float(told.get("slow-start", 0)))  # vLLM listens when it is ready, not before
    server = ThreadingHTTPServer(address, Engine)
    server.daemon_threads = True

    def stop(*_: object) -> None:
        print("lab engine: stopping", flush=True)
        threading.Thread(target=finish, daemon=True).start()

    def finish() -> None:
        time.sleep(float(told.get("slow-stop", 0)))
        while RUNNING:
            time.sleep(0.05)
        server.shutdown()

    signal.signal(signal.SIGTERM, stop)
    print(f"lab engine: serving {', '.join(Engine.names)} on {address}", flush=True)

    everywhere = ("::", int(os.environ["VLLM_PORT"]))  # as torch binds its store
    with socket.create_server(everywhere, family=socket.AF_INET6, dualstack_ipv6=True):
        server.serve_forever(poll_interval=0.1)
    os._exit(0)


if __name__ == "__main__":
    main()
