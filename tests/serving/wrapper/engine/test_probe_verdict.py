"""The probe's verdict decides the wrapper's readiness: a frozen engine's own health never would."""

import asyncio
from pathlib import Path

import pytest

from huddle.probe import verdict
from tests.serving.wrapper.conftest import MakeWrapper, Wrapper
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio


async def until_ready(wrapper: Wrapper, status: int) -> dict[str, str]:
    async with asyncio.timeout(scaled(20)):
        while (answer := await wrapper.http.get("/ready")).status_code != status:
            await asyncio.sleep(0.05)
    return dict(answer.json())


async def test_an_unhealthy_engine_makes_the_node_unready_until_it_moves_again(
    make_wrapper: MakeWrapper, tmp_path: Path
) -> None:
    path = tmp_path / "verdict.json"
    wrapper = await make_wrapper(probe_verdict_file=path)
    await until_ready(wrapper, 200)  # no probe has spoken yet
    verdict.write(path, verdict="suspect", ready=False, reason="8 requests and no token for 10 s", restarts=0)
    assert (await until_ready(wrapper, 503))["reason"] == "8 requests and no token for 10 s"
    verdict.write(path, verdict="healthy", ready=True, reason="tokens come again", restarts=0)
    await until_ready(wrapper, 200)


async def test_a_verdict_of_any_number_does_not_end_the_watch(make_wrapper: MakeWrapper, tmp_path: Path) -> None:
    """F11: after an OverflowError nobody looked at the engine any more."""
    path = tmp_path / "verdict.json"
    verdict.write(path, verdict="suspect", ready=False, reason="no token", restarts=0)
    path.write_text(path.read_text().replace('"restarts": 0', '"restarts": 1e999'))
    wrapper = await make_wrapper(probe_verdict_file=path)
    await until_ready(wrapper, 200)
    verdict.write(path, verdict="suspect", ready=False, reason="no token", restarts=0)
    assert (await until_ready(wrapper, 503))["reason"] == "no token"
