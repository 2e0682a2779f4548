"""`huddle batch`: format, resuming, retries, errors, refusals."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from huddle.client import batch_file
from tests.serving.wrapper.fake_engine import MODEL, Received, Reply, polite
from tools.deadlines import scaled, until

from .conftest import ALIAS, Endpoint, Shell


def line(number: int, **body: Any) -> str:
    messages = [{"role": "user", "content": f"question {number}"}]
    request = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions"}
    return json.dumps(request | {"body": {"messages": messages, **body}})


def write(shell: Shell, *lines: str) -> Path:
    path = shell.directory / "work.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def answers(shell: Shell) -> list[dict[str, Any]]:
    text = (shell.directory / "work.output.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def asked(endpoint: Endpoint) -> Counter[str]:
    """How often the engine got each question."""
    return Counter(body["messages"][-1]["content"] for body in endpoint.bodies)


def test_answers_in_openai_s_format(shell: Shell, endpoint: Endpoint) -> None:
    write(shell, *(line(n, model=ALIAS if n == 3 else MODEL) for n in range(5)))
    done = shell.run("batch", "work.jsonl", "--json")
    result = json.loads(done.stdout)
    assert (result["answered"], result["failed"], result["errors"]) == (5, 0, None)
    lines = answers(shell)
    assert sorted(answer["custom_id"] for answer in lines) == [f"r{n}" for n in range(5)]
    for answer in lines:
        assert answer.keys() == {"id", "custom_id", "response", "error"}
        assert answer["error"] is None
        response = answer["response"]
        assert response["status_code"] == 200
        assert response["request_id"] in answer["id"]
        assert response["body"]["choices"][0]["message"]["content"] == "hi"
    assert "answered: 5 of 5" in done.stderr  # progress without a terminal
    assert {path.name for path in shell.directory.iterdir()} == {"work.jsonl", "work.output.jsonl"}


def test_a_killed_run_goes_on_and_nothing_finished_is_sent_twice(shell: Shell, endpoint: Endpoint) -> None:
    count, quick = 12, 5
    write(shell, *(line(n) for n in range(count)))

    async def stalls(request: Received, reply: Reply) -> None:
        if len(endpoint.engine.completions) > quick:
            await reply.closed_by_peer()
        else:
            await polite(request, reply)

    endpoint.engine.script = stalls
    process = shell.start("batch", "work.jsonl", "-c", "3")
    output = shell.directory / "work.output.jsonl"
    until(lambda: output.exists() and output.read_text().count("\n") == quick, "some answers are written")
    until(lambda: len(endpoint.engine.completions) == quick + 3, "what it sent has arrived")
    process.kill()
    process.wait()
    first = {answer["custom_id"] for answer in answers(shell)}
    assert len(first) == quick
    with output.open("a") as file:
        file.write('{"id": "batch_req_half", "custom')  # what a kill in the middle of a write would leave
    sent_before = asked(endpoint)
    endpoint.engine.script = polite
    done = shell.run("batch", "work.jsonl", "-c", "3")
    assert done.returncode == 0, done
    assert f"{quick} of {count} are answered already" in done.stderr
    assert sorted(answer["custom_id"] for answer in answers(shell)) == sorted(f"r{n}" for n in range(count))
    again = asked(endpoint) - sent_before
    assert set(again) == {f"question {n}" for n in range(count) if f"r{n}" not in first}
    assert set(again.values()) == {1}
    before = asked(endpoint)
    assert shell.run("batch", "work.jsonl").returncode == 0  # all is done: nothing is sent
    assert asked(endpoint) == before


def test_refused_requests_go_to_the_errors_and_are_tried_again(shell: Shell, endpoint: Endpoint) -> None:
    write(shell, line(0), line(1, seed=13), line(2))

    async def refuses(request: Received, reply: Reply) -> None:
        if request.json.get("seed") == 13:
            await reply.json({"error": {"message": "unlucky", "param": "seed", "code": 400}}, status=400)
        else:
            await polite(request, reply)

    endpoint.engine.script = refuses
    done = shell.run("batch", "work.jsonl")
    assert done.returncode == 1
    assert "work.errors.jsonl says why" in done.stderr
    errors = shell.directory / "work.errors.jsonl"
    (error,) = [json.loads(line) for line in errors.read_text().splitlines()]
    assert (error["custom_id"], error["response"]["status_code"]) == ("r1", 400)
    assert "seed" in error["response"]["body"]["error"]["message"]
    assert {answer["custom_id"] for answer in answers(shell)} == {"r0", "r2"}
    endpoint.engine.script = polite
    assert shell.run("batch", "work.jsonl").returncode == 0
    assert not errors.exists()
    assert asked(endpoint) == {"question 0": 1, "question 1": 2, "question 2": 1}


def test_what_may_succeed_later_is_retried(shell: Shell, endpoint: Endpoint) -> None:
    write(shell, line(0))

    async def busy_once(request: Received, reply: Reply) -> None:
        if len(endpoint.engine.completions) == 1:
            await reply.json({"error": {"message": "busy"}}, status=503)
        else:
            await polite(request, reply)

    endpoint.engine.script = busy_once
    assert shell.run("batch", "work.jsonl").returncode == 0
    assert len(endpoint.bodies) == 2
    endpoint.engine.requests.clear()
    (shell.directory / "work.output.jsonl").unlink()
    assert shell.run("batch", "work.jsonl", "--retries", "0").returncode == 1
    assert len(endpoint.bodies) == 1


def test_the_priority_reaches_an_engine_that_is_asked_directly(shell: Shell, endpoint: Endpoint) -> None:
    write(shell, line(0), line(1, priority=1))
    engine = f"http://127.0.0.1:{endpoint.engine.port}/v1"
    assert shell.run("batch", "work.jsonl", "--priority", "5", "--url", engine).returncode == 0
    assert sorted(body["priority"] for body in endpoint.bodies) == [1, 5]
    assert {body["model"] for body in endpoint.bodies} == {MODEL}


def test_an_endpoint_that_goes_away_ends_the_run_with_the_next_step(shell: Shell, endpoint: Endpoint) -> None:
    write(shell, *(line(n) for n in range(6)))

    async def resets(request: Received, reply: Reply) -> None:
        if len(endpoint.engine.completions) > 2:
            reply.reset()
        else:
            await polite(request, reply)

    endpoint.engine.script = resets
    engine = f"http://127.0.0.1:{endpoint.engine.port}/v1"
    done = shell.run("batch", "work.jsonl", "-c", "1", "--retries", "0", "--url", engine)
    assert done.returncode == 1
    assert "stopped after 2 of 6; run the same command again" in done.stderr
    assert len(answers(shell)) == 2


def test_two_runs_do_not_write_one_output(shell: Shell, endpoint: Endpoint) -> None:
    write(shell, line(0))
    goes_on: list[bool] = []

    async def waits(request: Received, reply: Reply) -> None:
        while not goes_on:
            await asyncio.sleep(0.01)
        await polite(request, reply)

    endpoint.engine.script = waits
    first = shell.start("batch", "work.jsonl")
    until(lambda: endpoint.bodies, "the first run has sent its request")
    assert "another batch is writing it" in shell.refused("batch", "work.jsonl")
    goes_on.append(True)
    assert first.wait(scaled(60)) == 0
    assert len(endpoint.bodies) == 1


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{not json}", "2: not JSON"),
        ("[1]", "2: not a JSON object"),
        (line(1).replace("custom_id", "customid"), "2: there is no key 'customid'; the keys are body, custom_id"),
        (line(1).replace('"r1"', "7"), "2: custom_id must be"),
        (line(0), "2: custom_id 'r0' is already on line 1"),
        (line(1).replace("POST", "GET"), "2: method must be POST"),
        (line(1).replace("/v1/chat", "/v2/chat"), "2: url must be one of /v1/chat/completions"),
        (line(1, stream=True), "2: body.stream must not be true"),
        (line(1, model=3), "2: body.model"),
        ("\udcff", "2: not JSON"),
    ],
)
def test_a_bad_line_is_refused_by_its_number(tmp_path: Path, bad: str, said: str) -> None:
    path = tmp_path / "work.jsonl"
    path.write_bytes(f"{line(0)}\n{bad}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(batch_file.BatchFileError) as refused:
        batch_file.read(path)
    (sentence,) = refused.value.sentences
    assert f"work.jsonl:{said}" in sentence


def test_nothing_is_sent_of_a_batch_with_a_bad_line(shell: Shell, endpoint: Endpoint) -> None:
    write(shell, line(0), "{not json}")
    assert "work.jsonl:2: not JSON" in shell.refused("batch", "work.jsonl")
    write(shell, line(0), line(1, model="gpt-9"))
    sentence = shell.refused("batch", "work.jsonl")
    assert f"work.jsonl:2: no model 'gpt-9' is served; there are {MODEL}, {ALIAS}" in sentence
    assert endpoint.bodies == []


def test_files_that_are_no_batch(shell: Shell, endpoint: Endpoint) -> None:
    assert "cannot read" in shell.refused("batch", "nothing.jsonl")
    write(shell, "")
    assert "no request in it" in shell.refused("batch", "work.jsonl")
    path = write(shell, line(0))
    assert "choose another --output" in shell.refused("batch", "work.jsonl", "-o", "work.jsonl")
    for text, said in (("prose\n", "1: not an answer"), ('{"custom_id": "x9"}\n', "answers 'x9', which is not in")):
        (shell.directory / "other").write_text(text)
        assert said in shell.refused("batch", "work.jsonl", "-o", "other")
        assert (shell.directory / "other").read_text() == text
    assert path.read_text() == line(0) + "\n"
    assert endpoint.bodies == []
