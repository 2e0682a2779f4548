"""The probe's verdict decides the wrapper's readiness: a frozen engine's own health never would."""

import asyncio
from pathlib import Path

import pytest

from huddle.probe import verdict
from tools.deadlines import scaled

from .conftest import MakeWrapper, Wrapper

pytestmark = pytest.mark.anyio


async def until_ready(wrapper: Wrapper, status: int) -> dict[str, str]:
    async with asyncio.timeout(scaled(20)):
        while (answer := await wrapper.http.get("/ready")).status_code != status:
            await asyncio.sleep(0.05)
    return dict(answer.json())


async def test_a_sick_engine_makes_the_node_unready_until_it_moves_again(
    make_wrapper: MakeWrapper, tmp_path: Path
) -> None:
    path = tmp_path / "verdict.json"
    wrapper = await make_wrapper(probe_verdict_file=path)
    await until_ready(wrapper, 200)  # no probe has spoken yet
    verdict.write(path, verdict="suspect", ready=False, reason="8 requests and no token for 10 s", restarts=0)
    assert (await until_ready(wrapper, 503))["reason"] == "8 requests and no token for 10 s"
    verdict.write(path, verdict="healthy", ready=True, reason="tokens come again", restarts=0)
    await until_ready(wrapper, 200)
