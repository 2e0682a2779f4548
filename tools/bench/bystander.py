"""Another tenant while somebody abuses the wrapper: streams that should not stand still, and small requests.

Prints JSON when its standard input ends: the longest times between two events of any stream, and what small chats and
`/ready` were answered.
"""

import asyncio
import collections
import json
import sys
import time

import httpx
import uvloop

STREAMS = 8


async def _stream(port: int, request: bytes, gaps: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    await reader.readuntil(b"data: ")
    last = time.perf_counter()
    try:
        while await reader.read(65_536):
            now = time.perf_counter()
            gaps.append(now - last)
            last = now
        gaps.append(float("inf"))
    finally:
        writer.close()


async def _ask(port: int, key: str, answers: collections.Counter[str], slowest: list[float]) -> None:
    """A small chat of a newcomer, and a balancer's look: each on a connection of its own."""
    base = f"http://127.0.0.1:{port}"
    body = {"messages": [{"role": "user", "content": "abuse:plain"}]}
    while True:
        for name in ("chat", "ready"):
            begun = time.perf_counter()
            try:
                async with httpx.AsyncClient(base_url=base, timeout=10) as client:
                    if name == "chat":
                        headers = {"authorization": f"Bearer {key}"}
                        answer = await client.post("/v1/chat/completions", json=body, headers=headers)
                    else:
                        answer = await client.get("/ready")
                said = str(answer.status_code)
            except httpx.HTTPError as error:
                said = type(error).__name__
            slowest.append(time.perf_counter() - begun)
            answers[f"{name} {said}"] += 1
        await asyncio.sleep(0.2)


async def _main(port: int, key: str) -> None:
    body = b'{"stream":true,"messages":[{"role":"user","content":"hi"}]}'
    request = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    gaps: list[float] = []
    slowest: list[float] = [0.0]
    answers: collections.Counter[str] = collections.Counter()
    running = [asyncio.create_task(_stream(port, request, gaps)) for _ in range(STREAMS)]
    running.append(asyncio.create_task(_ask(port, key, answers, slowest)))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in running:
        task.cancel()
    gaps.sort()
    print(
        json.dumps(
            {
                "max_gap_ms": gaps[-1] * 1000,
                "p99_gap_ms": gaps[int(len(gaps) * 0.99)] * 1000,
                "answers": dict(answers),
                "slowest_small_ms": max(slowest) * 1000,
            }
        )
    )


if __name__ == "__main__":
    uvloop.run(_main(int(sys.argv[1]), sys.argv[2]))
