"""How endpoint and key are found, and that the key goes to the endpoint and nowhere else."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import huddle
from huddle.client.api import Client, Health, State
from huddle.client.connection import ClientError, Connection, discover
from tests.serving.wrapper.fake_engine import MODEL, Received, Reply, event
from tools.deadlines import scaled, until

from .conftest import ALIAS, Endpoint, Shell

KEY = "hk-secret-of-the-tests"
OUTPUTS = {
    "openai_base_url": "https://stack.example/v1",
    "product_keys": {"research/alice": KEY},
    "models": ["first", "second"],
}


def write(path: Path, mode: int = 0o600, **content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    path.chmod(mode)
    return path


def fake_pulumi(directory: Path, script: str) -> dict[str, str]:
    """An environment with a `pulumi` that notes its arguments and does what the script says."""
    program = directory / "bin" / "pulumi"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" > "{directory}/argv"\n{script}\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(directory)}


def stack_printing(directory: Path, outputs: object) -> dict[str, str]:
    (directory / "outputs.json").write_text(json.dumps(outputs))
    return fake_pulumi(directory, f'cat "{directory}/outputs.json"')


def test_the_order_is_arguments_file_stack_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = stack_printing(tmp_path, OUTPUTS)
    monkeypatch.setenv("PATH", env["PATH"])
    env |= {"OPENAI_BASE_URL": "http://env/v1", "OPENAI_API_KEY": "env-key"}
    assert discover(environ=env) == Connection("http://env/v1", "OPENAI_BASE_URL", "env-key")
    stack = Connection("https://stack.example/v1", "stack dev", KEY, "first")
    env["HUDDLE_STACK"] = "dev"
    assert discover(environ=env) == stack
    file = write(tmp_path / "c.json", base_url="http://file/v1", api_key="file-key", model="m")
    env["HUDDLE_CONNECTION"] = str(file)
    found = Connection("http://file/v1", str(file), "file-key", "m")
    assert discover(environ=env) == found
    assert discover(stack="dev", environ=env) == stack
    assert discover(file=file, stack="dev", environ=env) == found
    assert discover("http://given", environ=env) == Connection("http://given/v1", "the arguments", "env-key")
    assert discover("http://given/v1", "k", file=file, environ=env).api_key == "k"
    assert discover(api_key="k", environ=env) == Connection("http://file/v1", str(file), "k", "m")


def test_the_usual_file_is_used_when_nothing_is_named(tmp_path: Path) -> None:
    write(tmp_path / ".config/huddle/connection.yaml", base_url="http://usual/v1")
    env = {"HOME": str(tmp_path), "OPENAI_BASE_URL": "http://env/v1"}
    assert discover(environ=env).base_url == "http://usual/v1"
    assert discover("http://given/v1", environ=env).base_url == "http://given/v1"


def test_a_key_file_lies_beside_the_connection_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    (tmp_path / "key").chmod(0o600)
    file = tmp_path / "c.yaml"
    file.write_text("base_url: http://h:1/v1\napi_key_file: key\n")
    file.chmod(0o600)
    assert discover(file=file, environ={}).api_key == KEY
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(ClientError, match="chmod 600"):
        discover(file=file, environ={})


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = write(tmp_path / "c.json", mode, base_url="http://h/v1", api_key=KEY)
    with pytest.raises(ClientError, match=f"chmod 600 {file}"):
        discover(file=file, environ={})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"api_key: {KEY}\n", "1: base_url: is required: Where the endpoint is"),
        (
            f"base_url: http://h/v1\napi_kee: {KEY}\n",
            "2: api_kee: is not a known key; did you mean api_key? allowed: api_key, api_key_file, base_url, model",
        ),
        (f"base_url: http://h/v1\napi_key: [{KEY}]\n", "2: api_key: the value (not shown) must be text"),
        (f"base_url: http://h/v1\napi_key: *{KEY}\n", "2: the connection file is not YAML"),
        (f"- {KEY}\n", "a connection file has the keys"),
        (f"base_url: ftp://h/v1\napi_key: {KEY}\n", "must look like https"),
        (f"base_url: http://u:{KEY}@h/v1\n", "more than an address"),
        (f"base_url: http://h/v1?k={KEY}\n", "more than an address"),
        (f"base_url: http://h/v1\napi_key: {KEY}é\n", "no HTTP header"),
        (f"base_url: http://h/v1\napi_key: {KEY}\napi_key_file: k\n", "keep one"),
        (f"base_url: http://h/v1\napi_key: {KEY}\napi_key: x\n", "3: api_key: given twice; the first is on line 2"),
    ],
)
def test_a_wrong_connection_file_is_one_sentence_without_the_key(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ClientError) as refused:
        discover(file=file, environ={})
    assert said in str(refused.value)
    assert KEY not in str(refused.value)


def test_a_stack_with_several_subscriptions_leaves_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = stack_printing(tmp_path, OUTPUTS | {"product_keys": {"a/x": KEY, "b/y": "other"}})
    monkeypatch.setenv("PATH", env["PATH"])
    assert discover(stack="dev", subscription="b/y", environ=env).api_key == "other"
    for asked in (None, "c/z"):
        with pytest.raises(ClientError, match=r"--subscription: a/x, b/y") as refused:
            discover(stack="dev", subscription=asked, environ=env)
        assert KEY not in str(refused.value)
    assert (tmp_path / "argv").read_text().split()[:4] == ["stack", "output", "--json", "--show-secrets"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (f'echo \'{{"half": "{KEY}\'', "not a JSON object"),
        (f"echo {KEY}; echo \"error: no stack named 'dev' found\" >&2; exit 255", "no stack named 'dev' found"),
        (f'echo \'{{"product_keys": {{"a": "{KEY}"}}}}\'', "make up STACK=dev"),
    ],
)
def test_a_stack_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    env = fake_pulumi(tmp_path, script)
    monkeypatch.setenv("PATH", env["PATH"])
    with pytest.raises(ClientError) as refused:
        discover(stack="dev", environ=env)
    assert said in str(refused.value)
    assert KEY not in str(refused.value)


def test_without_pulumi_a_stack_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ClientError, match=r"no pulumi on PATH .*`make pulumi ARGS='stack output --show-secrets -s dev'`"
    ):
        discover(stack="dev", environ={"PATH": str(tmp_path)})


def test_nothing_falls_back_to_a_public_endpoint() -> None:
    with pytest.raises(ClientError, match="no endpoint is known"):
        discover(environ={"OPENAI_API_KEY": KEY})


class Catcher:
    """A server that keeps every request's head and answers with one text."""

    def __init__(self, answer: bytes) -> None:
        self.heads: list[bytes] = []
        self._answer = answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self._answer)
        writer.close()


@pytest.mark.anyio
async def test_the_key_goes_in_both_headers_and_not_along_a_redirect() -> None:
    other = Catcher(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    elsewhere = await asyncio.start_server(other, "127.0.0.1", 0)
    port = elsewhere.sockets[0].getsockname()[1]
    moved = f"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:{port}/v1/models\r\ncontent-length: 0\r\n\r\n"
    first = Catcher(moved.encode())
    server = await asyncio.start_server(first, "127.0.0.1", 0)
    client = Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", KEY, max_retries=0, environ={})
    with pytest.raises(ClientError):
        await asyncio.to_thread(client.models)
    head = first.heads[0].lower()
    assert f"\r\nauthorization: bearer {KEY}\r\n".encode() in head
    assert f"\r\nocp-apim-subscription-key: {KEY}\r\n".encode() in head
    await asyncio.to_thread(client.health)
    assert b"GET /ready" in first.heads[1]
    assert KEY.encode() not in first.heads[1]  # readiness needs none
    assert other.heads == []
    server.close()
    elsewhere.close()


@pytest.mark.parametrize(
    ("by_wrapper", "said"),
    [(True, "the engine failed on this request"), (False, "broken …")],
    ids=["the wrapper replaces the engine's words", "the client takes the key out of them"],
)
def test_the_key_is_in_no_output_no_log_and_no_argument(
    shell: Shell, endpoint: Endpoint, by_wrapper: bool, said: str
) -> None:
    hold: list[psutil.Process] = []

    async def slow(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        while not hold:
            await asyncio.sleep(0.01)
        await reply.chunk(event({"error": {"message": f"broken {endpoint.key}"}}))  # an engine that repeats what it got
        await reply.end()

    endpoint.engine.script = slow
    shell.env["OPENAI_LOG"] = "debug"
    if not by_wrapper:
        shell.env["OPENAI_BASE_URL"] = f"http://127.0.0.1:{endpoint.engine.port}/v1"
    with (shell.directory / "out").open("w") as out:
        process = shell.start("ask", "hi", stdout=out, stderr=out)
        until(lambda: endpoint.bodies or process.poll() is not None, "the request is at the engine")
        arguments = " ".join(psutil.Process(process.pid).cmdline())
        hold.append(psutil.Process(process.pid))
        assert process.wait(scaled(60)) == 1
    output = (shell.directory / "out").read_text()
    assert "Sending HTTP Request" in output  # the SDK did log
    assert said in output
    for text in (arguments, output, endpoint.log.read_text(), repr(Client(endpoint.url, endpoint.key, environ={}))):
        assert endpoint.key not in text
    assert endpoint.key not in repr(Client(endpoint.url, endpoint.key, environ={}).connection)


def test_the_client_is_the_package_s_own_name_and_answers(endpoint: Endpoint) -> None:
    with huddle.Client(endpoint.url, endpoint.key, environ={}) as client:
        assert client.models() == (MODEL, ALIAS)
        assert client.ask("hi", system="Be kind.") == "t0 t1 t2 t3 t4 "
        assert client.health() == Health(State.READY, f"serves {MODEL}, {ALIAS}", (MODEL, ALIAS))
        assert client.wait_until_ready(5).ready


@pytest.mark.anyio
async def test_waiting_shows_progress_and_ends_when_the_endpoint_comes(endpoint: Endpoint) -> None:
    looks: list[State] = []
    answers = [b"HTTP/1.1 503 S\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"] * 2
    body = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]})
    good = (
        f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers.pop() if answers else (good + body).encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", KEY, environ={})
    note = lambda health, _: looks.append(health.state)  # noqa: E731
    health = await asyncio.to_thread(client.wait_until_ready, 60, note, poll_s=0.01)
    assert looks == [State.STARTING, State.STARTING, State.READY]
    assert health.models == ("m",)
    server.close()


def test_waiting_ends_at_once_where_it_cannot_help_and_at_the_limit_elsewhere(endpoint: Endpoint) -> None:
    with pytest.raises(ClientError, match="refused the key") as refused:
        Client(endpoint.url, "hk-wrong", environ={}).wait_until_ready(1e6)
    assert refused.value.exit_code == 2
    with pytest.raises(ClientError, match=r"not ready after 0\.1 s: Connection refused") as refused:
        Client("http://127.0.0.1:9/v1", environ={}).wait_until_ready(0.1, poll_s=0.06)
    assert refused.value.exit_code == 1


def test_the_node_s_commands_do_not_import_the_sdk() -> None:
    line = "import sys; from huddle.cli import app; app(['launch', '--list'], standalone_mode=False)\n"
    line += "assert 'openai' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", line], capture_output=True, check=False).returncode == 0
