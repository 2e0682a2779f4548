"""Every snippet of docs/gateway/clients.md, run as it stands, through the lab and the real wrapper."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tools.deadlines import scaled

from .lab import KEY
from .wire import Wire, wire

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).parents[3] / "docs/gateway/clients.md"
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
PROGRAMS = {"python": [sys.executable, "-c"], "sh": ["sh", "-euc"]}


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Wire]:
    async with wire(tmp_path, products={"developers": {"display_name": "D", "subscriptions": ["playground"]}}) as made:
        yield made


async def run(language: str, code: str, line: Wire) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "GATEWAY": line.url, "KEY": KEY}
    process = await asyncio.create_subprocess_exec(
        *PROGRAMS[language], code, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await asyncio.wait_for(process.communicate(), scaled(120))
    assert process.returncode == 0, errors.decode()[-2000:]
    return output.decode()


async def test_every_snippet_gets_its_answer(line: Wire) -> None:
    answers = [await run(language, code, line) for language, code in BLOCKS]
    assert len(answers) == 6
    plain, streamed, bearer, azure, huddle, curl = (answer.strip() for answer in answers)
    assert (plain, bearer, azure) == ("hi", "hi", "hi")
    assert streamed == "t0 t1 t2 t3 t4 \n16 tokens"
    assert huddle == "t0 t1 t2 t3 t4"
    assert json.loads(curl)["choices"][0]["message"]["content"] == "hi"
    assert len(line.engine.completions) == len(BLOCKS)
    for request in line.engine.requests:
        assert KEY.encode() not in request.raw


async def test_a_snippet_with_a_wrong_key_fails(line: Wire) -> None:
    """So that an answer above is due to the key."""
    for language, code in BLOCKS:
        with pytest.raises(AssertionError, match=r"401|key"):
            await run(language, code.replace("KEY", "HOME"), line)
    assert not line.engine.completions


def test_the_page_lists_every_address() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for address in ("GATEWAY/v1", "GATEWAY/openai/deployments/MODEL", "GATEWAY/bearer/v1"):
        assert f"| `{address}" in text
