"""What is looked at while an engine runs behind the wrapper. Each returns figures; none judges."""

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httptools
import httpx

from huddle.headers import OVERHEAD_HEADER
from tools.h100 import load, service
from tools.h100.load import Load, Target
from tools.h100.service import Program, Programs

RUNNING = "vllm:num_requests_running"
GENERATED = "vllm:generation_tokens_total"


class Tap:
    """Stands between a wrapper and the engine, in a thread of its own, and keeps the last request and answer."""

    def __init__(self, engine: int) -> None:
        self.request = self.answer = b""
        self._engine = engine
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        ready.wait(10)

    async def _serve(self, ready: threading.Event) -> None:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await server.serve_forever()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._engine)
        asked = httptools.HttpRequestParser(_Bodies(lambda body: setattr(self, "request", body) if body else None))
        answered = httptools.HttpResponseParser(_Bodies(lambda body: setattr(self, "answer", body)))

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, parser: Any) -> None:
            try:
                while data := await source.read(65_536):
                    parser.feed_data(data)
                    sink.write(data)
                    await sink.drain()
            except ConnectionError:
                pass
            sink.close()

        await asyncio.gather(copy(reader, back, asked), copy(there, writer, answered))


class _Bodies:
    """Tells every whole body."""

    def __init__(self, tell: Callable[[bytes], None]) -> None:
        self._tell, self._parts = tell, list[bytes]()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self._tell(b"".join(self._parts))
        self._parts.clear()


def relay(tap: Tap, wrapper: Target, engine: int) -> dict[str, Any]:
    """Whether a stream's body passes unchanged, and whether the engine says the same when asked directly."""
    headers = dict(wrapper.headers)
    body = json.loads(wrapper.request(7).partition(b"\r\n\r\n")[2]) | {"max_tokens": 64}
    results = []
    for _ in range(3):
        asked = httpx.post(
            f"http://127.0.0.1:{wrapper.port}/v1/chat/completions", json=body, headers=headers, timeout=60
        )
        through, passed, written = asked.content, tap.answer, tap.request
        url = f"http://127.0.0.1:{engine}/v1/chat/completions"
        direct = httpx.post(url, content=written, headers={"content-type": "application/json"}, timeout=60)
        results.append(
            {
                "status": asked.status_code,
                "bytes": len(through),
                "body_unchanged": through == passed,
                "same_text_as_direct": _text(through) == _text(direct.content),
                "text_characters": len(_text(through)),
                "overhead_ms": asked.headers.get(OVERHEAD_HEADER),
                "prompt_first": json.loads(written)["messages"][0]["role"] == "system",
            }
        )
    return {"turns": results}


def _text(stream: bytes) -> str:
    """What a stream says; how the engine cuts it into events is its own affair."""
    events = [line[6:] for line in stream.decode().splitlines() if line.startswith("data: {")]
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def routes(target: Target) -> dict[str, Any]:
    """The other routes, once each."""
    url, headers = f"http://127.0.0.1:{target.port}", dict(target.headers)
    user = [{"role": "user", "content": "Hello"}]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    asked: dict[str, tuple[str, dict[str, Any] | None]] = {
        "models": ("/v1/models", None),
        "chat": ("/v1/chat/completions", {"messages": user, "max_tokens": 8}),
        "chat with tools": ("/v1/chat/completions", {"messages": user, "max_tokens": 8, "tools": [tool]}),
        "completions": ("/v1/completions", {"prompt": "Hello", "max_tokens": 8}),
        "responses": ("/v1/responses", {"input": "Hello", "max_output_tokens": 16}),
        "embeddings": ("/v1/embeddings", {"input": "Hello"}),
        "engine metrics": ("/metrics", None),
    }
    answers: dict[str, Any] = {}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        for name, (path, body) in asked.items():
            answer = client.get(path) if body is None else client.post(path, json={"model": target.model, **body})
            answers[name] = {"status": answer.status_code, "body": answer.text[:200]}
    with httpx.Client(base_url=url, timeout=60) as stranger:
        answers["chat without a key"] = {"status": stranger.post("/v1/chat/completions", json={}).status_code}
    return answers


def compare(direct: Target, wrapped: Target, streams: int, requests: int, generator: Load) -> dict[str, Any]:
    """Direct, wrapper, wrapper, direct: the mean of each pair, and their ratio."""
    runs: dict[str, list[dict[str, Any]]] = {"direct": [], "wrapper": []}
    for name, target in (("direct", direct), ("wrapper", wrapped), ("wrapper", wrapped), ("direct", direct)):
        runs[name].append(load.summary(generator.run(target, streams, requests)))
    rates = {name: sum(run.get("output_tokens_per_s", 0) for run in of) / len(of) for name, of in runs.items()}
    ratio = rates["wrapper"] / rates["direct"] if rates["direct"] else None
    return {"streams": streams, **runs, "tokens_per_s": rates, "wrapper_to_direct": ratio}


def leave(target: Target, engine: int, streams: int) -> dict[str, Any]:
    """Clients that close their connections in the middle of a stream: how long the engine goes on."""
    long = replace(target, max_tokens=3000)
    sockets = [socket.create_connection(("127.0.0.1", target.port)) for _ in range(streams)]
    for number, client in enumerate(sockets):
        client.sendall(long.request(1_000_000 + number))
    for client in sockets:
        got = b""
        while got.count(b"data: ") < 20:
            got += client.recv(65_536)
    running = wait(lambda: service.metric(engine, RUNNING) >= streams, 5)
    for client in sockets:
        client.close()
    left = time.monotonic()
    tokens, last_rise = service.metric(engine, GENERATED), 0.0
    idle: float | None = None
    while time.monotonic() - left < 5:
        now, gauge = service.metric(engine, GENERATED), service.metric(engine, RUNNING)
        elapsed = time.monotonic() - left
        if now > tokens:
            tokens, last_rise = now, elapsed
        if idle is None and gauge == 0:
            idle = elapsed
        if idle is not None and elapsed > last_rise + 1:
            break
    return {
        "streams": streams,
        "seen_running_after_s": running,
        "gauge_zero_after_s": None if idle is None else round(idle, 3),
        "last_token_counted_after_s": round(last_rise, 3),
    }


def drain(program: Program, target: Target, engine: int, streams: int, tokens: int) -> dict[str, Any]:
    """SIGTERM to the launcher while streams run: do they end whole, what is left."""
    samples: list[load.Sample] = []
    asking = threading.Thread(
        target=lambda: samples.extend(Load(4).run(replace(target, max_tokens=tokens), streams, streams))
    )
    asking.start()
    wait(lambda: service.metric(engine, RUNNING) >= streams, 20)
    before = service.gpu_used_mib()
    began, began_wall = time.monotonic(), time.time()
    program.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    try:
        url = f"http://127.0.0.1:{target.port}/v1/models"
        during: Any = httpx.get(url, headers=dict(target.headers), timeout=5).status_code
    except httpx.HTTPError as error:
        during = type(error).__name__
    code = program.process.wait(180)
    took = time.monotonic() - began
    asking.join(60)
    return {
        "streams": streams,
        "tokens_of_each": tokens,
        "whole_answers": sum(not sample.error for sample in samples),
        "first_errors": [sample.error[:200] for sample in samples if sample.error][:3],
        "last_answer_after_s": round(max((s.ended for s in samples), default=began_wall) - began_wall, 2),
        "models_route_during": during,
        "exit_code": code,
        "seconds": round(took, 2),
        "left_processes": service.titles(service.marked(program.log.parent)),
        "gpu_mib_before": before,
        "gpu_mib_after": memory_back(),
        "said": program.said("huddle launch:")[-6:],
    }


def memory_back(most_s: float = 10) -> dict[str, Any]:
    """GPU memory once it no longer falls."""
    began = time.monotonic()
    while time.monotonic() - began < most_s and any(used > 100 for used in service.gpu_used_mib()):
        time.sleep(0.1)
    return {"mib": service.gpu_used_mib(), "after_s": round(time.monotonic() - began, 2)}


def kill_engine_core(program: Program, engine: int) -> dict[str, Any]:
    """SIGKILL to the engine's core process: what the launcher does."""
    service.descendant(program, "EngineCore").kill()
    began = time.monotonic()
    health: list[tuple[float, Any]] = []
    while program.process.poll() is None and time.monotonic() - began < 60:
        try:
            said: Any = httpx.get(f"http://127.0.0.1:{engine}/health", timeout=2).status_code
        except httpx.HTTPError as error:
            said = type(error).__name__
        if not health or health[-1][1] != said:
            health.append((round(time.monotonic() - began, 2), said))
        time.sleep(0.05)
    return {
        "exit_code": program.process.poll(),
        "seconds": round(time.monotonic() - began, 2),
        "health": health,
        "left_processes": [
            t for t in service.titles(service.marked(program.log.parent)) if str(program.process.pid) in t
        ],
        "said": program.said("huddle launch:")[-5:],
    }


def refusal(programs: Programs, *arguments: str, env: dict[str, str]) -> dict[str, Any]:
    """A launch that must be refused: its code and its sentence."""
    code, said, seconds = programs.ask(*arguments, env=env)
    return {"exit_code": code, "said": said[-700:], "seconds": seconds}


def until_ready(port: int) -> float | None:
    """Seconds until a wrapper calls itself ready."""
    return wait(lambda: httpx.get(f"http://127.0.0.1:{port}/ready", timeout=5).status_code == 200, 30)


def wait(condition: Callable[[], bool], timeout_s: float) -> float | None:
    """Seconds until it holds, or None."""
    began = time.monotonic()
    while time.monotonic() - began < timeout_s:
        if condition():
            return round(time.monotonic() - began, 3)
        time.sleep(0.02)
    return None
