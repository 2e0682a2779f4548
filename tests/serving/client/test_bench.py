"""`huddle bench`: what it counts is what happened; figures from known samples; refusals."""

import asyncio
import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle.client.bench import levels
from huddle.client.bench_report import percentile, summarise
from huddle.client.connection import ClientError
from huddle.client.load import Reading, Sample
from tests.serving.wrapper.fake_engine import DONE, MODEL, USAGE_EVENT, Received, Reply, polite, token

from .conftest import Endpoint, Shell


def test_the_json_counts_what_the_engine_saw(shell: Shell, endpoint: Endpoint) -> None:
    running, most = 0, [0]

    async def together(request: Received, reply: Reply) -> None:
        nonlocal running
        running += 1
        most.append(running)
        await asyncio.sleep(0.05)
        await reply.stream_head()
        for piece in (token(""), token("a"), token("b"), USAGE_EVENT, DONE):
            await reply.chunk(piece)
        running -= 1  # before the client can know
        await reply.end()

    endpoint.engine.script = together
    done = shell.run("bench", "-c", "1,3", "-n", "6", "--max-tokens", "9", "--ignore-eos", "--json")
    assert done.returncode == 0, done
    result = json.loads(done.stdout)
    assert (result["model"], result["endpoint"]) == (MODEL, endpoint.url)
    one, three = result["levels"]
    assert [level["concurrency"] for level in (one, three)] == [1, 3]
    for level in (one, three):
        assert (level["requests"], level["failed"], level["error"]) == (6, 0, None)
        assert (level["input_tokens"], level["output_tokens"]) == (6 * 11, 6 * 5)  # as the engine says, not as counted
        assert 0 < level["ttft_p50_ms"] <= level["latency_p50_ms"] <= level["latency_p95_ms"]
        assert level["tokens_per_s"] == pytest.approx(30 / level["seconds"])
    assert max(most[1:8]) == 1
    assert max(most) == 3
    assert len(endpoint.bodies) == 13  # with the one that warms up
    questions = [body["messages"][-1]["content"] for body in endpoint.bodies]
    assert len({question.split(".")[0] for question in questions}) == 13  # none can come from the prefix cache
    assert {(body["max_tokens"], body["ignore_eos"]) for body in endpoint.bodies} == {(9, True)}


def test_the_table_has_a_row_and_a_bar_for_each_level(shell: Shell) -> None:
    done = shell.run("bench", "-c", "1,2", "-n", "2")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [["1", "2", "0"], ["2", "2", "0"]]
    assert "tok/s by streams" in done.stdout
    assert "█" * 40 in done.stdout
    assert "measured: 4 of 4" in done.stderr


def test_failed_streams_are_told_and_not_counted(shell: Shell, endpoint: Endpoint) -> None:
    async def every_other(request: Received, reply: Reply) -> None:
        if len(endpoint.engine.completions) % 2:
            await polite(request, reply)
        else:
            await reply.stream_head()
            await reply.chunk(token("half"))
            reply.reset()

    endpoint.engine.script = every_other
    done = shell.run("bench", "-c", "1", "-n", "4", "--json")
    assert done.returncode == 1
    (level,) = json.JSONDecoder().raw_decode(done.stdout)[0]["levels"]
    assert (level["requests"], level["failed"], level["output_tokens"]) == (4, 2, 2 * 5)
    assert "2 streams failed" in done.stderr


def test_an_endpoint_that_fails_at_once_is_one_sentence(shell: Shell, endpoint: Endpoint) -> None:
    async def broken(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": "out of memory"}}, status=500)

    endpoint.engine.script = broken
    done = shell.run("bench")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the first request failed already" in done.stderr
    assert len(endpoint.bodies) == 1


@pytest.mark.parametrize("text", ["", "0", "1,,2", "-1", "many", "1;2", "5000", "²"])
def test_a_wrong_sweep_is_refused(text: str) -> None:
    with pytest.raises(ClientError, match="such as 1,2,4,8"):
        levels(text)


def test_an_empty_first_piece_is_no_token_and_an_error_is_seen_anywhere() -> None:
    reading = Reading()
    reading.take(token("").decode().strip())
    assert reading.first_s is None
    reading.take(token("a").decode().strip())
    first = reading.first_s
    assert first is not None
    reading.take(token("b").decode().strip())
    reading.take(USAGE_EVENT.decode().strip())
    assert (reading.first_s, reading.events, reading.usage["completion_tokens"]) == (first, 2, 5)
    assert not reading.done
    reading.take('data: {"error": {"message": "out of memory"}}')
    assert reading.error == "out of memory"


def test_figures_of_known_samples() -> None:
    samples = [
        Sample(0.0, 3.0, 1.0, input_tokens=7, output_tokens=21),
        Sample(1.0, 4.0, 3.0, input_tokens=7, output_tokens=11),
        Sample(1.0, 5.0, None, error="broke off"),
    ]
    level = summarise(2, samples)
    assert (level.requests, level.failed, level.error) == (3, 1, "broke off")
    assert (level.seconds, level.output_tokens, level.input_tokens) == (5.0, 32, 14)
    assert level.tokens_per_s == pytest.approx(32 / 5)
    assert level.requests_per_s == pytest.approx(2 / 5)
    assert level.tokens_per_s_per_stream == pytest.approx((21 / 3 + 11 / 3) / 2)
    assert level.ttft_p50_ms == pytest.approx(1_500)
    assert level.latency_p95_ms == pytest.approx(3_000)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(1, 99))
def test_percentiles_lie_within_their_values_and_rise(values: list[float], percent: int) -> None:
    found = percentile(values, percent)
    assert min(values) <= found * (1 + 1e-9) + 1e-9
    assert found <= max(values) * (1 + 1e-9)
    assert percentile(values, 50) == pytest.approx(statistics.median(values))
