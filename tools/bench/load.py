"""Ask an OpenAI-compatible endpoint for streams over keep-alive connections, and print times as JSON.

Every answer is counted: it must hold exactly as many events as the backend sends, or it is an error.
"""

import argparse
import asyncio
import json
import time
from typing import cast

import uvloop


class Client(asyncio.Protocol):
    """One connection that asks `rounds` times, one after the other."""

    def __init__(self, request: bytes, rounds: int, events: int, results: "Results") -> None:
        self._request = request
        self._left = rounds
        self._events = events
        self._results = results
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.WriteTransport, transport)

    def ask(self) -> None:
        """Send the next request."""
        self._left -= 1
        self._begun = time.perf_counter()
        self._first: float | None = None
        self._status = b""
        self._seen = 0
        self._tail = b""
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        if not self._status:
            self._status = data[9:12]
        joined = self._tail + data
        self._seen += joined.count(b"data: ")
        if self._first is None and self._seen:
            self._first = time.perf_counter()
        # What is kept is shorter than the word counted, so that no word is counted twice.
        self._tail = joined[-5:]
        if joined.endswith(b"0\r\n\r\n"):
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        """Closed; an error unless all is done."""
        if not self.done.done():
            self._results.errors += self._left + 1
            self.done.set_result(None)

    def _finish(self) -> None:
        now = time.perf_counter()
        miscounted = self._events > 0 and self._seen != self._events
        if self._status != b"200" or miscounted or self._first is None:
            self._results.errors += 1
        else:
            self._results.first_s.append(self._first - self._begun)
            self._results.total_s.append(now - self._begun)
        if self._left:
            self.ask()
        else:
            self.done.set_result(None)
            self._transport.close()


class Results:
    """What was measured."""

    def __init__(self) -> None:
        self.first_s: list[float] = []
        self.total_s: list[float] = []
        self.errors = 0


def percentile(values: list[float], percent: float) -> float:
    """Nearest-rank percentile; nan when there is nothing."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


async def _main(asked: argparse.Namespace) -> dict[str, object]:
    messages = [{"role": "user", "content": "Tell me a story about a river, in about fifty words, please."}]
    fields = {"model": asked.model, "messages": messages, "stream": True, "max_tokens": asked.max_tokens}
    if asked.events == 0:
        fields["ignore_eos"] = True  # a real engine: answers of one length
    body = json.dumps(fields)
    request = (
        f"POST {asked.path} HTTP/1.1\r\nHost: 127.0.0.1:{asked.port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {asked.key}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
    loop = asyncio.get_running_loop()
    results = Results()
    clients = []
    for _ in range(asked.connections):
        _, client = await loop.create_connection(
            lambda: Client(request, asked.rounds, asked.events, results), "127.0.0.1", asked.port
        )
        clients.append(client)
    begun = time.perf_counter()
    for client in clients:
        client.ask()
    _, unfinished = await asyncio.wait([client.done for client in clients], timeout=asked.timeout_s)
    results.errors += len(unfinished)
    took = time.perf_counter() - begun
    return {
        "requests": len(results.total_s),
        "errors": results.errors,
        "seconds": took,
        "requests_per_s": len(results.total_s) / took,
        "ttfb_p50_ms": percentile(results.first_s, 50) * 1000,
        "ttfb_p99_ms": percentile(results.first_s, 99) * 1000,
        "total_p50_ms": percentile(results.total_s, 50) * 1000,
        "total_p99_ms": percentile(results.total_s, 99) * 1000,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/v1/chat/completions")
    parser.add_argument("--model", default="bench")
    parser.add_argument("--key", default="backend-key-of-the-bench", help="sent as a bearer token")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=51, help="events of one answer, [DONE] included; 0: any")
    parser.add_argument("--max-tokens", type=int, default=50)
    parser.add_argument("--timeout-s", type=float, default=120)
    print(json.dumps(uvloop.run(_main(parser.parse_args()))))


if __name__ == "__main__":
    main()
