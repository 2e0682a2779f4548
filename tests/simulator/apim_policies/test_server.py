"""The lab as a server: HTTP's ways of sending a body, connections that are kept or left, and the command line."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from simulator.apim_policies.server import serving
from tests.serving.wrapper.fake_engine import fake_engine
from tools.deadlines import scaled
from tools.ports import reserve_port

from .lab import KEY, Lab, answer, service

pytestmark = pytest.mark.anyio
HEAD = f"Host: x\r\nOcp-Apim-Subscription-Key: {KEY}\r\nContent-Type: application/json\r\n".encode()
CHAT = b'{"messages": [{"role": "user", "content": "%s"}]}'
SERVICE = service()


@asynccontextmanager
async def connected(lab: Lab) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with serving(lab.gateway) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.close()


async def answered(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), scaled(30))).decode()
    length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length"))
    return int(head.split(" ")[1]), await reader.readexactly(length)


def chunked(body: bytes, size: int) -> bytes:
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


async def test_a_body_in_chunks_is_limited_like_any_other() -> None:
    lab = Lab(SERVICE)
    async with connected(lab) as (reader, writer):
        for prompt, status in ((b"x" * 400, 200), (b"x" * 4_000, 429)):
            body = CHAT % prompt
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HEAD + b"\r\n")
            writer.write(chunked(body, 100))
            got, _ = await answered(reader)
            assert got == status
    (sent,) = [request for _, request, _ in lab.sent]
    assert sent.body == CHAT % (b"x" * 400)
    assert "Transfer-Encoding" not in sent.headers


async def test_a_connection_is_kept_and_pipelined_requests_are_answered_in_turn() -> None:
    lab = Lab(SERVICE)
    lab.replies = [answer(200, b"first"), answer(200, b"second")]
    async with connected(lab) as (reader, writer):
        writer.write((b"GET /v1/models HTTP/1.1\r\n" + HEAD + b"\r\n") * 2)
        assert await answered(reader) == (200, b"first")
        assert await answered(reader) == (200, b"second")
        writer.write(b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"\r\n")
        assert (await answered(reader))[0] == 200
        assert await asyncio.wait_for(reader.read(), scaled(30)) == b""


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    lab = Lab(SERVICE)
    body = CHAT % b"hi"
    async with connected(lab) as (reader, writer):
        expect = b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(body)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\n" + expect + HEAD + b"\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), scaled(30))).startswith(b"HTTP/1.1 100")
        writer.write(body)
        assert (await answered(reader))[0] == 200
    assert lab.last.body == body


async def test_what_is_no_request_ends_the_connection() -> None:
    async with connected(Lab(SERVICE)) as (reader, writer):
        writer.write(b"nonsense\r\n\r\n")
        assert await asyncio.wait_for(reader.read(), scaled(30)) == b""


async def test_the_command_line_serves_a_stack(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("backend-key-0123456789abcdef\n")
    keys, port = tmp_path / "keys.json", reserve_port()
    async with fake_engine() as engine:
        argv = ["--backend-key-file", str(tmp_path / "key"), "--keys", str(keys), "--port", str(port)]
        wrapper = ["--wrapper", f"http://127.0.0.1:{engine.port}"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "infra.cli.policy_server", *argv, *wrapper), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=scaled(30)) as http:
                async with asyncio.timeout(scaled(60)):
                    while not await _up(http):
                        await asyncio.sleep(0.05)
                assert stat.S_IMODE(keys.stat().st_mode) == 0o600
                (key,) = json.loads(keys.read_text()).values()
                assert (await http.get("/v1/models", params={"subscription-key": key})).status_code == 200
                assert engine.requests[-1].headers["x-backend-key"] == "backend-key-0123456789abcdef"
                output = b""
                async with asyncio.timeout(scaled(30)):  # a line is written once its answer is out
                    while b'"url": "/v1/models?subscription-key=***"' not in output:
                        output += await process.stdout.readline()
        finally:
            process.terminate()
            rest, _ = await asyncio.wait_for(process.communicate(), scaled(30))
    assert key not in (output + rest).decode()


async def _up(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/v1/models")).status_code == 401
    except httpx.TransportError:
        return False


async def test_a_wrong_stack_is_one_sentence(tmp_path: Path) -> None:
    argv = ["-s", "nowhere", "--wrapper", "http://x", "--backend-key-file", "none", "--keys", str(tmp_path / "keys")]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "infra.cli.policy_server", *argv), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), scaled(60))
    assert process.returncode == 2
    assert errors.decode().startswith("error: ")
    assert not (tmp_path / "keys").exists()
