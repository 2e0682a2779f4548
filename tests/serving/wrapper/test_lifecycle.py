"""The program as systemd runs it: start, drain under load, reload, workers, notices, and what it says when wrong."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from huddle.wrapper import server
from tools.deadlines import scaled
from tools.ports import reserve_port

from .conftest import BACKEND_KEY
from .fake_engine import DONE, MODEL, FakeEngine, Received, Reply, fake_engine, token
from .kept import handed_over

pytestmark = pytest.mark.anyio

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
HUDDLE = str(Path(sys.executable).with_name("huddle"))


class Program:
    """A `huddle wrapper` process."""

    def __init__(self, directory: Path, engine: FakeEngine, **config: Any) -> None:
        self.directory = directory
        self.port, self.metrics_port = reserve_port(), reserve_port()
        (directory / "keys").write_text(BACKEND_KEY)
        (directory / "prompt.txt").write_text("First prompt.")
        self.config: dict[str, Any] = {
            "listen": f"127.0.0.1:{self.port}",
            "metrics_listen": f"127.0.0.1:{self.metrics_port}",
            "upstream": f"http://127.0.0.1:{engine.port}",
            "backend_keys_file": str(directory / "keys"),
            "models": {MODEL: {"system_prompt_file": str(directory / "prompt.txt"), "prompt_id": "p"}},
            **config,
        }
        self.write()
        self.command = self.argv
        self.environment = os.environ | {"NOTIFY_SOCKET": str(directory / "notify")}
        self.notified: list[str] = []
        self.process: asyncio.subprocess.Process
        self.http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}", headers={"x-backend-key": BACKEND_KEY}, timeout=scaled(60)
        )

    def write(self) -> None:
        (self.directory / "wrapper.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False))

    @property
    def argv(self) -> list[str]:
        return [HUDDLE, "wrapper", "--config", str(self.directory / "wrapper.yaml")]

    @property
    def log(self) -> list[dict[str, Any]]:
        lines = (self.directory / "log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    async def start(self, kept: socket.socket | None = None, *, close: bool = False) -> None:
        """`kept`: the socket that systemd kept for it; `close`: systemd no longer does."""
        (self.directory / "notify").unlink(missing_ok=True)
        self.notified.clear()  # an earlier process's READY=1 is not this one's
        command = self.command if kept is None else handed_over(self.command, kept)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.listener.bind(str(self.directory / "notify"))
        self.listener.setblocking(False)
        with (self.directory / "log").open("w") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, env=self.environment, stderr=log, stdout=log,
                pass_fds=() if kept is None else (kept.fileno(),),
            )  # fmt: skip
        if kept is not None and close:
            kept.close()
        await self.until_notified("READY=1")

    async def until_notified(self, word: str) -> None:
        async with asyncio.timeout(scaled(60)):
            while word not in "\n".join(self.notified):
                self.notified.append((await asyncio.get_running_loop().sock_recv(self.listener, 4096)).decode())

    async def close(self) -> None:
        await self.http.aclose()
        self.listener.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), scaled(60))


@contextlib.asynccontextmanager
async def running(directory: Path, engine: FakeEngine, **config: Any) -> AsyncIterator[Program]:
    program = Program(directory, engine, **config)
    await program.start()
    try:
        yield program
    finally:
        await program.close()


async def slow_stream(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    for i in range(request.json["max_tokens"]):
        await reply.chunk(token(f"t{i} "))
        await asyncio.sleep(0.05)
    await reply.chunk(DONE)
    await reply.end()


def expected(count: int) -> bytes:
    return b"".join(token(f"t{i} ") for i in range(count)) + DONE


async def test_sigterm_under_200_streams_truncates_none(tmp_path: Path) -> None:
    async with fake_engine() as engine, running(tmp_path, engine) as program:
        engine.script = slow_stream
        limits = httpx.Limits(max_connections=None)
        headers = {"x-backend-key": BACKEND_KEY}
        async with httpx.AsyncClient(
            base_url=program.http.base_url, headers=headers, limits=limits, timeout=scaled(60)
        ) as http:
            body = {**CHAT, "stream": True, "max_tokens": 40}
            streams = [asyncio.create_task(http.post("/v1/chat/completions", json=body)) for _ in range(200)]
            async with asyncio.timeout(scaled(60)):
                while len(engine.completions) < 200:
                    await asyncio.sleep(0.01)
            program.process.send_signal(signal.SIGTERM)
            await program.until_notified("STOPPING=1")
            async with httpx.AsyncClient(timeout=scaled(30), headers=headers) as other:  # refused, and told so
                for _ in range(3):
                    answer = await other.post(f"http://127.0.0.1:{program.port}/v1/chat/completions", json=CHAT)
                    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "going_away")
                    assert (answer.headers["retry-after"], answer.headers["connection"]) == ("30", "close")
            assert program.process.returncode is None
            answers = await asyncio.gather(*streams)
        assert [answer.content for answer in answers] == [expected(40)] * 200
        assert await asyncio.wait_for(program.process.wait(), scaled(60)) == 0
        ends = [line["end"] for line in program.log if line["event"] == "request"]
        assert ends.count("done") == 200


async def test_a_socket_that_systemd_keeps_serves_the_next_process(tmp_path: Path) -> None:
    """A connection between two processes waits for the next; without that it is refused."""
    async with fake_engine() as engine:
        program = Program(tmp_path, engine)
        with server.listen(f"127.0.0.1:{program.port}", shared=False) as kept:
            await program.start(kept)
            assert (await program.http.post("/v1/chat/completions", json=CHAT)).status_code == 200
            assert await program.stop() == 0
            assert not [said for said in program.notified if "FDSTORE" in said], "it is kept already"
            early = asyncio.create_task(program.http.post("/v1/chat/completions", json=CHAT))
            await asyncio.sleep(0.2)
            assert not early.done()
            await program.start(kept)
            assert (await early).status_code in {200, 503}, "503 while it has not seen the engine"
            await program.close()


async def test_systemd_is_given_the_socket_and_takes_back_one_of_another_address(tmp_path: Path) -> None:
    async with fake_engine() as engine:
        program = Program(tmp_path, engine)
        await program.start()
        await program.until_notified("FDSTORE=1\nFDNAME=listen")
        assert not [said for said in program.notified if "FDSTOREREMOVE" in said]
        assert await program.stop() == 0
        with server.listen("127.0.0.1:0", shared=False) as other:
            await program.start(other)
            await program.until_notified("FDSTOREREMOVE=1\nFDNAME=listen")
            assert (await program.http.get("/health")).status_code == 200
        await program.close()


async def test_workers_share_the_port_that_a_single_process_had_kept(tmp_path: Path) -> None:
    async with fake_engine() as engine:
        program = Program(tmp_path, engine, workers=2)
        with server.listen(f"127.0.0.1:{program.port}", shared=False) as kept:
            await program.start(kept, close=True)
            await program.until_notified("FDSTOREREMOVE=1\nFDNAME=listen")
            assert (await program.http.get("/health")).status_code == 200
        await program.close()


async def test_the_notice_time_keeps_serving_but_not_ready(tmp_path: Path) -> None:
    async with fake_engine() as engine, running(tmp_path, engine, timeouts={"drain_notice_s": 3}) as program:
        async with asyncio.timeout(scaled(30)):
            while (await program.http.get("/ready")).status_code != 200:
                await asyncio.sleep(0.05)
        program.process.send_signal(signal.SIGTERM)
        await program.until_notified("STOPPING=1")
        answer = await program.http.get("/ready")
        assert (answer.status_code, answer.json()["reason"]) == (503, "draining")
        served = await program.http.post("/v1/chat/completions", json=CHAT)
        assert (served.status_code, served.headers["connection"]) == (200, "close")
        assert await asyncio.wait_for(program.process.wait(), scaled(60)) == 0


async def test_a_second_sigterm_ends_at_once(tmp_path: Path) -> None:
    async with fake_engine() as engine, running(tmp_path, engine) as program:
        engine.script = slow_stream
        body = {**CHAT, "stream": True, "max_tokens": 2000}
        stream = asyncio.create_task(program.http.post("/v1/chat/completions", json=body))
        async with asyncio.timeout(scaled(30)):
            while not engine.completions:
                await asyncio.sleep(0.01)
        program.process.send_signal(signal.SIGTERM)
        await program.until_notified("STOPPING=1")
        program.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(program.process.wait(), scaled(60)) == 0
        with pytest.raises(httpx.TransportError):
            await stream


async def test_sighup_reloads_without_dropping_a_stream(tmp_path: Path) -> None:
    async with fake_engine() as engine, running(tmp_path, engine) as program:
        engine.script = slow_stream
        body = {**CHAT, "stream": True, "max_tokens": 60}
        stream = asyncio.create_task(program.http.post("/v1/chat/completions", json=body))
        async with asyncio.timeout(scaled(30)):
            while not engine.completions:
                await asyncio.sleep(0.01)
        (tmp_path / "prompt.txt").write_text("Second prompt.")
        (tmp_path / "keys").write_text("another-key-0123456789\n" + BACKEND_KEY)
        program.config["models"]["second"] = {}
        program.write()
        program.notified.clear()
        program.process.send_signal(signal.SIGHUP)
        await program.until_notified("RELOADING=1")
        await program.until_notified("READY=1")
        answer = await program.http.post(
            "/v1/chat/completions", json={**CHAT, "max_tokens": 1}, headers={"x-backend-key": "another-key-0123456789"}
        )
        assert answer.status_code == 200
        assert engine.completions[-1].json["messages"][0]["content"] == "Second prompt."
        assert [card["id"] for card in (await program.http.get("/v1/models")).json()["data"]] == [MODEL, "second"]
        assert (await stream).content == expected(60)
        assert engine.completions[0].json["messages"][0]["content"] == "First prompt."
        # A reload that cannot be used changes nothing.
        (tmp_path / "prompt.txt").write_text("")
        program.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(scaled(30)):
            while not any(line["event"] == "reload_refused" for line in program.log):
                await asyncio.sleep(0.05)
        await program.http.post("/v1/chat/completions", json={**CHAT, "max_tokens": 1})
        assert engine.completions[-1].json["messages"][0]["content"] == "Second prompt."


async def test_metrics_have_an_address_of_their_own(tmp_path: Path) -> None:
    async with fake_engine() as engine, running(tmp_path, engine) as program:
        assert (await program.http.post("/v1/chat/completions", json=CHAT)).status_code == 200
        async with httpx.AsyncClient(timeout=scaled(10)) as http, asyncio.timeout(scaled(30)):
            text = ""
            while "huddle_wrapper_overhead_seconds_count 1.0" not in text:  # ended requests are booked a moment later
                text = (await http.get(f"http://127.0.0.1:{program.metrics_port}/metrics")).text
            other = await http.get(f"http://127.0.0.1:{program.metrics_port}/v1/models")
        assert other.status_code == 404
        assert (await program.http.get("/metrics")).status_code == 404
        for line in (
            'huddle_wrapper_requests_total{product="",route="/v1/chat/completions",status="200"} 1.0',
            f'huddle_wrapper_tokens_total{{kind="completion",model="{MODEL}",product=""}} 5.0',
            "huddle_wrapper_in_flight 0.0",
            "huddle_wrapper_overhead_seconds_count 1.0",
            "process_resident_memory_bytes",
        ):
            assert line in text


async def test_workers_share_the_port_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    async with fake_engine() as engine, running(tmp_path, engine, workers=2) as program:
        children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children")
        before = children.read_text().split()
        assert len(before) == 2
        assert (await program.http.post("/v1/chat/completions", json=CHAT)).status_code == 200
        os.kill(int(before[0]), signal.SIGKILL)
        async with asyncio.timeout(scaled(30)):
            while len(children.read_text().split()) < 2 or before[0] in children.read_text().split():
                await asyncio.sleep(0.05)
        async with asyncio.timeout(scaled(30)):
            while not await answers(f"http://127.0.0.1:{program.metrics_port}/metrics"):  # worker 0's own
                await asyncio.sleep(0.05)
        for _ in range(10):
            async with httpx.AsyncClient(headers={"x-backend-key": BACKEND_KEY}, timeout=scaled(10)) as http:
                answer = await http.post(f"http://127.0.0.1:{program.port}/v1/chat/completions", json=CHAT)
                assert answer.status_code == 200
        assert await program.stop() == 0


async def test_workers_share_several_engines(tmp_path: Path) -> None:
    async with (
        fake_engine() as one,
        fake_engine() as other,
        running(tmp_path, one, workers=2, upstream=[one.url, other.url]) as program,
        httpx.AsyncClient(
            base_url=program.http.base_url,
            headers={"x-backend-key": BACKEND_KEY},
            limits=httpx.Limits(max_keepalive_connections=0),  # each connection may reach either worker
            timeout=scaled(60),
        ) as http,
    ):
        one.script = other.script = slow_stream
        for worker in range(2):
            await until_up(f"http://127.0.0.1:{program.metrics_port + worker}/metrics", one.url, other.url)
        body = {**CHAT, "stream": True, "max_tokens": 5}
        asked = [http.post("/v1/chat/completions", json=body) for _ in range(20)]
        assert [answer.content for answer in await asyncio.gather(*asked)] == [expected(5)] * 20
        assert abs(len(one.completions) - len(other.completions)) <= 2  # a worker knows of its own requests only
        await one.stop()
        asked = [http.post("/v1/chat/completions", json=body) for _ in range(20)]
        assert [answer.content for answer in await asyncio.gather(*asked)] == [expected(5)] * 20
        assert await program.stop() == 0


async def until_up(metrics: str, *engines: str) -> None:
    """Wait until a worker has seen the engines."""
    async with httpx.AsyncClient(timeout=scaled(10)) as http, asyncio.timeout(scaled(30)):
        while True:
            text = (await http.get(metrics)).text
            if all(f'huddle_wrapper_engine_up{{engine="{engine}"}} 1.0' in text for engine in engines):
                return
            await asyncio.sleep(0.05)


async def answers(url: str) -> bool:
    async with httpx.AsyncClient(timeout=scaled(10)) as http:
        try:
            return (await http.get(url)).status_code == 200
        except httpx.TransportError:
            return False


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HUDDLE, "wrapper", *argv], capture_output=True, text=True, timeout=scaled(60), check=False)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_taken_port_is_a_sentence_that_says_who_has_it(tmp_path: Path, workers: str) -> None:
    async with fake_engine() as engine:
        program = Program(tmp_path, engine)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", program.port))
            taken.listen()
            done = run("--config", str(tmp_path / "wrapper.yaml"), "--workers", workers)
        assert done.returncode == (2 if workers == "1" else 1)
        assert f"cannot listen on 127.0.0.1:{program.port}: Address already in use" in done.stderr
        assert f"pid {os.getpid()}" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_wrong_file_is_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "wrapper.yaml").write_text("models:\n  tiny: {prompt: x}\n")
    done = run("--config", str(tmp_path / "wrapper.yaml"))
    assert done.returncode == 2
    assert "wrapper.yaml:2: models.tiny.prompt: is not a known key" in done.stderr


async def test_check_and_key(tmp_path: Path) -> None:
    async with fake_engine() as engine:
        program = Program(tmp_path, engine)
        done = run("--config", str(tmp_path / "wrapper.yaml"), "check")
        assert done.returncode == 0
        assert f"{MODEL} → {MODEL}, prompt p " in done.stdout
        as_json = json.loads(run("check", "--config", str(tmp_path / "wrapper.yaml"), "--json").stdout)
        assert as_json["config"]["upstream"] == program.config["upstream"]
        several = ["--upstream", "http://127.0.0.1:1", "--upstream", "unix:/run/engine.sock"]
        done = run("--config", str(tmp_path / "wrapper.yaml"), *several, "check")
        assert "asks http://127.0.0.1:1, unix:/run/engine.sock\n" in done.stdout
        made = run("key")
        assert "hk-" in made.stdout
        assert len(made.stdout.split("sha256: ")[1].strip()) == 64
