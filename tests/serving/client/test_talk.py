"""`huddle chat` and `huddle ask` against the real wrapper: streams, history, commands, refusals."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import threading

import pytest

from tests.refusing_proxy import refusing_proxy
from tests.serving.wrapper.fake_engine import MODEL, Received, Reply, polite, token
from tools.deadlines import scaled

from .conftest import ALIAS, HUDDLE, PROMPT, Endpoint, Shell, until

ANSWER = "t0 t1 t2 t3 t4 "  # what the polite engine streams


class Terminal:
    """`huddle` on a pseudo-terminal."""

    def __init__(self, shell: Shell, *words: str) -> None:
        self._master, slave = pty.openpty()
        env = shell.env | {"TERM": "xterm"}
        ends = {"stdin": slave, "stdout": slave, "stderr": slave}
        line = [*HUDDLE, *words]
        self.process = subprocess.Popen(line, cwd=shell.directory, env=env, start_new_session=True, **ends)
        os.close(slave)
        os.set_blocking(self._master, False)
        self.seen = ""

    def wait_for(self, text: str) -> None:
        def there() -> bool:
            with contextlib.suppress(BlockingIOError, OSError):
                self.seen += os.read(self._master, 65536).decode()
            return text in self.seen

        until(there, f"{text!r} in {self.seen!r}")
        self.seen = self.seen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        code = self.process.wait(scaled(30))
        os.close(self._master)
        return code


def test_chat_on_a_terminal_streams_while_the_engine_still_works(shell: Shell, endpoint: Endpoint) -> None:
    goes_on = threading.Event()

    async def slow(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(token("first\x1b[31m "))
        while not goes_on.is_set():
            await asyncio.sleep(0.01)
        await reply.chunk(token("second"))
        await reply.chunk(b"data: [DONE]\n\n")
        await reply.end()

    endpoint.engine.script = slow
    terminal = Terminal(shell, "chat")
    terminal.wait_for(f"{MODEL} at {endpoint.url}")
    terminal.wait_for("> ")
    terminal.type("hello\n")
    terminal.wait_for("first[31m ")  # here before the engine has finished, and without the escape
    goes_on.set()
    terminal.wait_for("second")
    terminal.wait_for("> ")
    terminal.type("/nonsense\n")
    terminal.wait_for("there is no /nonsense")
    terminal.wait_for("> ")
    terminal.type("/quit\n")
    assert terminal.end() == 0


def test_ctrl_c_stops_the_answer_and_frees_the_engine_and_the_conversation_goes_on(
    shell: Shell, endpoint: Endpoint
) -> None:
    gone = []

    async def endless(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(token("partial"))
        await reply.closed_by_peer()
        gone.append(request)

    endpoint.engine.script = endless
    terminal = Terminal(shell, "chat")
    terminal.wait_for("> ")
    terminal.type("hello\n")
    terminal.wait_for("partial")
    terminal.process.send_signal(signal.SIGINT)
    until(lambda: gone, "the engine's request is closed")
    terminal.wait_for("> ")
    endpoint.engine.script = polite
    terminal.type("again\n")
    terminal.wait_for("t4")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert [m["content"] for m in endpoint.bodies[1]["messages"]] == [PROMPT, "hello", "partial", "again"]


def test_chat_sends_the_whole_conversation(shell: Shell, endpoint: Endpoint) -> None:
    lines = "one\n\ntwo\n/system Be kind.\n/model tiny-alias\nthree\n/save kept.json\n/reset\n//four\n/quit\nnever\n"
    done = shell.run("chat", text=lines)
    assert (done.returncode, done.stdout) == (0, f"{ANSWER}\n" * 4)
    roles = [[m["role"] for m in body["messages"]] for body in endpoint.bodies]
    assert roles[1] == ["system", "user", "assistant", "user"]
    contents = [[m["content"] for m in body["messages"]] for body in endpoint.bodies]
    assert contents[:2] == [[PROMPT, "one"], [PROMPT, "one", ANSWER, "two"]]
    assert contents[2] == ["Be kind.", "one", ANSWER, "two", ANSWER, "three"]  # the alias has no prompt of its own
    assert contents[3] == ["Be kind.", "/four"]
    saved = shell.directory / "kept.json"
    assert saved.stat().st_mode & 0o777 == 0o600
    assert json.loads(saved.read_text())["messages"][1:3] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": ANSWER},
    ]


def test_a_scripted_chat_ends_at_the_first_failure(shell: Shell, endpoint: Endpoint) -> None:
    async def dies(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(token("half"))
        reply.reset()

    endpoint.engine.script = dies
    done = shell.run("chat", text="one\ntwo\n")
    assert done.returncode == 1
    assert done.stdout == "half\n"
    assert "broke off" in done.stderr
    assert len(endpoint.bodies) == 1


def test_ask_takes_words_and_stdin(shell: Shell, endpoint: Endpoint) -> None:
    assert shell.run("ask", "What", "is", "it?").stdout == f"{ANSWER}\n"
    assert shell.run("ask", text="from stdin\n").returncode == 0
    assert shell.run("ask", "--system", "Be brief.", "Review:", "-", text="diff\n").returncode == 0
    contents = [[m["content"] for m in body["messages"]] for body in endpoint.bodies]
    assert contents == [
        [PROMPT, "What is it?"],
        [PROMPT, "from stdin"],
        [f"{PROMPT}\n\nBe brief.", "Review: \n\ndiff"],
    ]


def test_ask_json_has_answer_and_counts(shell: Shell) -> None:
    answer = json.loads(shell.run("ask", "--json", "--max-tokens", "7", "hi").stdout)
    assert answer["answer"] == "hi"
    assert answer["usage"]["total_tokens"] == 16


@pytest.mark.parametrize("command", [["ask", "hi"], ["chat"], ["bench"]])
def test_an_unknown_model_is_refused_with_those_that_are_served(shell: Shell, command: list[str]) -> None:
    sentence = shell.refused(*command, "--model", "gpt-9")
    assert "'gpt-9'" in sentence
    assert f"it serves {MODEL}, {ALIAS}" in sentence


@pytest.mark.parametrize("command", [["ask", "hi"], ["chat"], ["bench"]])
def test_no_endpoint_and_no_answer_name_the_next_step(bare: Shell, command: list[str]) -> None:
    assert "OPENAI_BASE_URL" in bare.refused(*command)
    unreachable = bare.refused(*command, "--url", "http://127.0.0.1:9/v1")
    assert "cannot reach http://127.0.0.1:9/v1" in unreachable
    assert "refused" in unreachable
    assert "make local" in unreachable


def test_a_wrong_key_and_no_key_are_told_apart(shell: Shell) -> None:
    shell.env["OPENAI_API_KEY"] = "hk-wrong"
    sentence = shell.refused("ask", "hi")
    assert "refused the key from OPENAI_BASE_URL" in sentence
    assert "hk-wrong" not in sentence
    del shell.env["OPENAI_API_KEY"]
    assert "wants a key" in shell.refused("ask", "hi")


def test_an_empty_question_is_refused(shell: Shell) -> None:
    assert "no question" in shell.refused("ask", text=" \n")


@pytest.mark.parametrize("no_proxy", [None, "intranet.example"])
def test_what_runs_on_this_machine_is_asked_past_the_offices_proxy(shell: Shell, no_proxy: str | None) -> None:
    """The key goes along with the question."""
    with refusing_proxy() as proxy:
        shell.env = proxy.environment(shell.env, no_proxy)
        asked = shell.run("ask", "hello")
        assert asked.stdout.strip() == ANSWER.strip(), asked
        assert proxy.asked == []
