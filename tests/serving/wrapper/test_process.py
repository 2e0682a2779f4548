"""What can go wrong around the process: signals at bad moments, files that hang, logs that nobody can take, limits."""

import asyncio
import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from huddle.wrapper import open_files
from huddle.wrapper.config import ConfigError, WrapperConfig
from huddle.wrapper.observability.logs import LogWriter
from tools.deadlines import scaled

from .fake_engine import MODEL, fake_engine
from .test_lifecycle import CHAT, Program, expected, running, slow_stream

pytestmark = pytest.mark.anyio


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(scaled(30)):
        while not condition():
            await asyncio.sleep(0.02)


class TestSigtermIsNeverLost:
    async def test_beside_a_worker_s_death(self, tmp_path: Path) -> None:
        """F12: the dead worker was started again, and served on."""
        async with fake_engine() as engine, running(tmp_path, engine, workers=2) as program:
            children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children")
            os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
            await until(lambda: "restarting" in (tmp_path / "log").read_text())
            assert await program.stop() == 0

    async def test_nor_by_a_child_that_is_no_worker(self, tmp_path: Path) -> None:
        """A killed worker's own child comes to the supervisor where that is the first process of a container."""
        script = """
import os, signal, sys, time
from huddle.wrapper import workers
from huddle.wrapper.observability.notify import Notifier
if not os.fork():
    os._exit(0)
class Told(Notifier):
    def ready(self, text):
        os.kill(os.getpid(), signal.SIGTERM)
def serve(worker, listens):
    listens()
    time.sleep(600)
sys.exit(workers.supervise(2, serve, Told("")))
"""
        words = [sys.executable, "-c", script]
        done = subprocess.run(words, capture_output=True, text=True, timeout=scaled(60), check=False)
        assert (done.returncode, done.stderr) == (0, "")

    async def test_while_the_workers_start(self, tmp_path: Path) -> None:
        """A worker that was forked after the signal never heard of it."""
        script = """
import os, signal, sys, time
from huddle.wrapper import workers
from huddle.wrapper.observability.notify import Notifier
fork = os.fork
def fork_and_stop():
    pid = fork()
    if pid:
        os.kill(os.getpid(), signal.SIGTERM)  # arrives before anybody knows the child
    return pid
os.fork = fork_and_stop
def serve(worker, listens):
    listens()
    time.sleep(600)
sys.exit(workers.supervise(3, serve, Notifier("")))
"""
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=scaled(60), check=False
        )
        assert (done.returncode, done.stderr) == (0, "")

    async def test_a_sighup_while_a_worker_starts_does_not_end_it(self, tmp_path: Path) -> None:
        script = """
import os, signal, sys, threading, time
from huddle.wrapper import workers
from huddle.wrapper.observability.notify import Notifier
def serve(worker, listens):
    os.kill(os.getpid(), signal.SIGHUP)
    listens()
    time.sleep(600)
class Told(Notifier):
    def ready(self, status):
        print(status, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
sys.exit(workers.supervise(2, serve, Told("")))
"""
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=scaled(60), check=False
        )
        assert (done.returncode, done.stdout) == (0, "serving with 2 workers\n")


async def test_the_supervisor_of_workers_gives_signs_of_life(tmp_path: Path) -> None:
    """Its workers may not speak to systemd, whose watchdog would end them all."""
    async with fake_engine() as engine:
        program = Program(tmp_path, engine, workers=2)
        program.environment["WATCHDOG_USEC"] = "200000"
        await program.start()
        try:
            await program.until_notified("WATCHDOG=1")
        finally:
            assert await program.stop() == 0
            await program.http.aclose()
            program.listener.close()


class TestReload:
    async def test_a_fifo_as_prompt_is_refused_at_once_and_stops_no_stream(self, tmp_path: Path) -> None:
        """F24: every stream stood still until the watchdog ended the wrapper."""
        async with fake_engine() as engine, running(tmp_path, engine) as program:
            engine.script = slow_stream
            body = {**CHAT, "stream": True, "max_tokens": 20}
            stream = asyncio.create_task(program.http.post("/v1/chat/completions", json=body))
            await until(lambda: engine.completions)
            (tmp_path / "prompt.txt").unlink()
            os.mkfifo(tmp_path / "prompt.txt")
            program.process.send_signal(signal.SIGHUP)
            await until(lambda: any(line["event"] == "reload_refused" for line in program.log))
            said = next(line for line in program.log if line["event"] == "reload_refused")
            assert "not a regular file" in str(said["problems"])
            assert (await stream).content == expected(20)
            assert await program.stop() == 0

    async def test_a_file_system_that_hangs_is_given_up_and_does_not_keep_the_process(self, tmp_path: Path) -> None:
        """F24. The configuration itself is a FIFO at the second reading: it hangs as a dead NFS server would."""
        async with fake_engine() as engine:
            program = Program(tmp_path, engine)
            hang = "import huddle.wrapper.reload as r; r.Reloads.__init__.__defaults__ = (0.5,)"
            run = f"{hang}; import sys; sys.argv[0] = 'huddle'; from huddle.cli import main; main()"
            program.command = [sys.executable, "-c", run, *program.argv[1:]]
            await program.start()
            try:
                (tmp_path / "wrapper.yaml").unlink()
                os.mkfifo(tmp_path / "wrapper.yaml")
                program.process.send_signal(signal.SIGHUP)
                await until(lambda: any("took more than" in str(line.get("problems")) for line in program.log))
                assert (await program.http.post("/v1/chat/completions", json=CHAT)).status_code == 200
                program.process.send_signal(signal.SIGHUP)
                await until(lambda: any("earlier reload" in str(line.get("problems")) for line in program.log))
                assert await program.stop() == 0
            finally:
                with contextlib.suppress(ProcessLookupError):
                    program.process.kill()
                await program.http.aclose()
                program.listener.close()

    async def test_a_fifo_as_prompt_is_a_sentence_at_the_start(self, tmp_path: Path) -> None:
        async with fake_engine() as engine:
            program = Program(tmp_path, engine)
            (tmp_path / "prompt.txt").unlink()
            os.mkfifo(tmp_path / "prompt.txt")
            done = await asyncio.to_thread(
                subprocess.run, program.argv, capture_output=True, text=True, timeout=scaled(60), check=False
            )
        assert done.returncode == 2
        assert "cannot read the system prompt 'p' (not a regular file)" in done.stderr


class TestLogs:
    async def test_with_stderr_closed_it_serves_counts_and_ends_in_order(self, tmp_path: Path) -> None:
        """F25: the log's thread died, and the end was a SIGABRT."""
        async with fake_engine() as engine:
            program = Program(tmp_path, engine)
            program.command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *program.argv]
            await program.start()
            try:
                assert (await program.http.post("/v1/chat/completions", json=CHAT)).status_code == 200
                assert str(Path(f"/proc/{program.process.pid}/fd/2").readlink()) == "/dev/null"
                dropped = ""
                async with httpx.AsyncClient(timeout=scaled(10)) as http, asyncio.timeout(scaled(30)):
                    while "huddle_wrapper_log_lines_dropped_total 3.0" not in dropped:
                        dropped = (await http.get(f"http://127.0.0.1:{program.metrics_port}/metrics")).text
            finally:
                code = await program.stop()
                await program.http.aclose()
                program.listener.close()
        assert code == 0

    @pytest.mark.parametrize("room", [0, 1, 50, 500, 1_000, 10_000])
    async def test_every_lost_line_is_counted_on_a_full_disk(self, room: int) -> None:
        """F25: 4 of about 75 were counted. The next line that finds room begins at a line's begin."""
        disk, lost = Disk(room), []
        writer = LogWriter(disk, dropped=lambda: lost.append(1))
        for number in range(75):
            writer.info("request", number=number)
        await until(lambda: disk.refused or disk.written.count(b"\n") == 75)
        await until(lambda: not writer._lines)
        disk.room = 1_000_000
        writer.info("after")
        writer.close()
        whole = [line for line in disk.written.split(b"\n") if line.endswith(b"}")]
        events = [json.loads(line)["event"] for line in whole]
        assert events[-1] == "after"
        assert len(events) - 1 + len(lost) == 75

    async def test_a_line_that_cannot_be_written_down_ends_nothing(self) -> None:
        sink, lost = io.BytesIO(), []
        writer = LogWriter(sink, dropped=lambda: lost.append(1))
        loop: list[Any] = []
        loop.append(loop)
        writer.info("odd", value=loop)
        writer.info("good")
        writer.close()
        assert [json.loads(line)["event"] for line in sink.getvalue().splitlines()] == ["good"]
        assert len(lost) == 1


class Disk:
    """A file on a disk with `room` bytes left: it takes what fits, then says ENOSPC."""

    def __init__(self, room: int) -> None:
        self.room, self.written, self.refused = room, b"", 0

    def write(self, data: memoryview) -> int:
        fits = bytes(data[: self.room])
        if data and not fits:
            self.refused += 1
            raise OSError(28, "No space left on device")
        self.written += fits
        self.room -= len(fits)
        return len(fits)


class TestOpenFiles:
    @pytest.fixture
    def kernel(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
        """The limits (soft, hard) of this process, the last item."""
        limits: list[tuple[int, int]] = []
        monkeypatch.setattr(resource, "getrlimit", lambda _which: limits[-1])
        monkeypatch.setattr(resource, "setrlimit", lambda _which, pair: limits.append(pair))
        return limits

    config = WrapperConfig.model_validate({"models": {MODEL: {}}})

    async def test_enough_is_left_alone(self, kernel: list[tuple[int, int]]) -> None:
        kernel.append((65_536, 65_536))
        assert open_files.fit(self.config) == (self.config, None)
        assert len(kernel) == 1

    async def test_a_low_soft_limit_is_raised(self, kernel: list[tuple[int, int]]) -> None:
        kernel.append((1_024, 524_288))
        assert open_files.fit(self.config) == (self.config, None)
        assert kernel[-1] == (4_096 + 1_024 + 96, 524_288)

    async def test_each_engine_counts(self) -> None:
        two = self.config.model_copy(update={"upstream": ("http://127.0.0.1:5005", "http://127.0.0.1:5006")})
        assert open_files.wanted(two) == open_files.wanted(self.config) + 1_024

    async def test_a_low_hard_limit_lowers_the_limits_with_a_sentence(self, kernel: list[tuple[int, int]]) -> None:
        """F23: it was accepted silently, and then the engine was "not reachable"."""
        kernel.append((256, 608))
        fitted, sentence = open_files.fit(self.config)
        assert (fitted.limits.connections, fitted.limits.concurrency) == (409, 102)
        assert kernel[-1] == (608, 608)
        assert sentence is not None
        assert "limits.connections is now 409 in place of 4096" in sentence

    async def test_next_to_nothing_is_refused(self, kernel: list[tuple[int, int]]) -> None:
        kernel.append((100, 100))
        with pytest.raises(ConfigError, match=r"may open 100 files .* 128 is the least"):
            open_files.fit(self.config)

    async def test_the_program_does_so_at_its_start(self, tmp_path: Path) -> None:
        async with fake_engine() as engine:
            program = Program(tmp_path, engine)
            program.command = ["sh", "-c", 'ulimit -n 300; exec "$@"', "sh", *program.argv]
            await program.start()
            try:
                assert (await program.http.post("/v1/chat/completions", json=CHAT)).status_code == 200
                await until(lambda: any(line["event"] == "open_files" for line in program.log))
                warned = next(line for line in program.log if line["event"] == "open_files")
                assert "limits.connections is now 163 in place of 4096" in warned["problem"]
            finally:
                assert await program.stop() == 0
                await program.http.aclose()
                program.listener.close()


async def test_idle_connections_do_not_keep_a_scraper_out(tmp_path: Path) -> None:
    """F19: 32 idle connections blocked the metrics for ever."""
    async with fake_engine() as engine, running(tmp_path, engine) as program:
        held = [await asyncio.open_connection("127.0.0.1", program.metrics_port) for _ in range(40)]
        held[-1][1].write(b"GET /metrics HTTP/1.1\r\n")  # a head that never ends
        async with httpx.AsyncClient(timeout=scaled(10)) as http:
            answer = await http.get(f"http://127.0.0.1:{program.metrics_port}/metrics")
        assert answer.status_code == 200
        async with asyncio.timeout(scaled(30)):
            assert b" 408 " in await held[-1][0].read()
        for _, writer in held:
            writer.close()
