"""Stands in for vllm where flags are tuned: how fast it answers follows from its flags, so the best ones are known.

Best: --max-num-batched-tokens 16384 with --api-server-count 2. An fp8 cache does not start, nor does what BROKEN names.
What SHORT names loses a token of every answer.
"""

import asyncio
import json
import os
import signal
import sys

BASE_S, EVENTS = 0.12, 4
words = sys.argv[1:]


def flag(name: str) -> str | None:
    return words[words.index(name) + 1] if name in words else None


def note(text: str) -> None:
    descriptor = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


note(f"pid {os.getpid()}")
note("argv " + " ".join(words))
if flag("--kv-cache-dtype") == "fp8" or os.environ.get("BROKEN", "no such flag") in words:
    sys.exit("INFO starting\nValueError: this GPU has no fp8 cache\nRuntimeError: Engine core initialization failed.")
pace = {"2048": 1.5, "4096": 1.2, "16384": 0.25}.get(flag("--max-num-batched-tokens") or "", 1.0)
pace *= {"2": 0.4}.get(flag("--api-server-count") or "", 1.0)
pace *= 2.0 if "--dtype" not in words else 1.0  # plain


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next((line for line in head.lower().splitlines() if line.startswith("content-length")), ": 0")
            body = await reader.readexactly(int(length.partition(":")[2]))
            await answer(head.split()[1], json.loads(body or "{}"), writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def answer(path: str, body: dict, writer: asyncio.StreamWriter) -> None:
    lost = os.environ.get("SHORT", "no such flag") in words
    usage = {"completion_tokens": body.get("max_tokens", 0) - lost, "prompt_tokens": 0}
    if path.startswith("/v1/chat"):
        usage["prompt_tokens"] = 10 + len(body["messages"][0]["content"]) // 4
    if not body.get("stream"):
        text = json.dumps({"usage": usage}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))
        return
    if body["max_tokens"] > 16:
        note(f"asked {usage['prompt_tokens']} {body['messages'][0]['content'][:40]}")
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    event(writer, {"choices": [{"delta": {"role": "assistant"}}]})
    for _ in range(EVENTS):
        await asyncio.sleep(BASE_S * pace)
        event(writer, {"choices": [{"delta": {"content": "x"}}]})
    event(writer, {"choices": [], "usage": usage})
    writer.write(b"0\r\n\r\n")


def event(writer: asyncio.StreamWriter, value: dict) -> None:
    data = b"data: " + json.dumps(value).encode() + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


async def serve() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await asyncio.start_server(handle, "127.0.0.1", int(flag("--port")))
    await stopped.wait()
    note("stopping")
    await asyncio.sleep(float(os.environ.get("STOPS_S", "0")))
    note("stopped")


asyncio.run(serve())
os._exit(0)
