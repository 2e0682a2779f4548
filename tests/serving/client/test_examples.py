"""The examples run as they are: the plain SDK, two variables, the wrapper, an engine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.wrapper.fake_engine import MODEL, USAGE, Received, Reply
from tools.deadlines import scaled

from .conftest import Endpoint, Shell

EXAMPLES = Path(__file__).parents[3] / "examples"
CALL = {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": '{"harbour": "Husum"}'}}


def example(name: str, shell: Shell) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, str(EXAMPLES / name)]
    return subprocess.run(line, env=shell.env, capture_output=True, text=True, timeout=scaled(60), check=False)


def completion(**message: object) -> dict[str, object]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "model": MODEL, "choices": [choice], "usage": USAGE}


async def versatile(request: Received, reply: Reply) -> None:
    """An engine with tools and embeddings."""
    if request.path == "/v1/embeddings":
        vectors = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]
        rows = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        await reply.json({"object": "list", "model": MODEL, "data": rows, "usage": USAGE})
    elif results := [m["content"] for m in request.json["messages"] if m["role"] == "tool"]:
        await reply.json(completion(content=f"I looked: {results[0]}"))
    else:
        await reply.json(completion(content=None, tool_calls=[CALL]))


async def without_embeddings(request: Received, reply: Reply) -> None:
    """What vLLM answers where the model is made for text."""
    await reply.json({"detail": "Not Found"}, status=404)


def test_every_example_is_short_and_tested_here() -> None:
    files = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    assert set(files) == {"chat.py", "streaming.py", "tools.py", "embeddings.py"}
    assert all(text.count("\n") < 40 and "huddle" not in text for text in files.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("chat.py", "hi\n"), ("streaming.py", "".join(f"t{i} " for i in range(64)) + "\n11 tokens in, 5 out\n")],
)
def test_chat_and_streaming(shell: Shell, name: str, expected: str) -> None:
    done = example(name, shell)
    assert (done.stdout, done.stderr, done.returncode) == (expected, "", 0)


def test_tools(shell: Shell, endpoint: Endpoint) -> None:
    endpoint.engine.script = versatile
    assert example("tools.py", shell).stdout == "I looked: High tide in Husum is at 14:20.\n"
    assert [len(body["messages"]) for body in endpoint.bodies] == [2, 4]  # with the server's prompt
    assert json.loads(CALL["function"]["arguments"]) == {"harbour": "Husum"}


def test_embeddings_where_the_engine_has_them_and_where_not(shell: Shell, endpoint: Endpoint) -> None:
    endpoint.engine.script = versatile
    lines = example("embeddings.py", shell).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["+0.800", "+0.000"]
    endpoint.engine.script = without_embeddings
    done = example("embeddings.py", shell)
    assert done.returncode == 1
    assert "has no embeddings" in done.stderr
    assert "Traceback" not in done.stderr
