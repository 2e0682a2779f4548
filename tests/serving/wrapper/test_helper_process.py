"""The process beside: it does what it is asked, says what went wrong without quoting it, and outlives nobody."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import huddle
from huddle.wrapper.errors import RequestError, bad_request
from huddle.wrapper.helper_process import HelperError, HelperProcess
from infra.engine.versions import ROOT
from tests.serving.wrapper import helper_work
from tests.serving.wrapper.conftest import Wrapper
from tests.serving.wrapper.fake_engine import Received, Reply
from tests.serving.wrapper.helper_work import die, doze, fail, refuse, reverse
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio
LARGE = {"messages": [{"role": "user", "content": "a" * 300_000}]}


@pytest.fixture
async def helper() -> AsyncIterator[HelperProcess]:
    made = HelperProcess()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _tests_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))


async def test_it_takes_bytes_and_gives_bytes_in_one_process(helper: HelperProcess) -> None:
    body = os.urandom(3_000_000)
    (first, word), made = await helper.run(reverse, "x", body=body)
    (second, _), _ = await helper.run(reverse, "y", body=b"")
    assert made == body[::-1]
    assert (word, first) == ("x", second)
    assert first != os.getpid()


async def test_a_refusal_comes_as_it_was_made(helper: HelperProcess) -> None:
    with pytest.raises(RequestError) as refused:
        await helper.run(refuse, body=b"123")
    assert vars(refused.value) == vars(bad_request("invalid_value", "'a' is 3", "a"))


async def test_a_fault_says_where_and_quotes_nothing(helper: HelperProcess) -> None:
    with pytest.raises(HelperError) as failed:
        await helper.run(fail, body=b"a secret")
    assert failed.value.at.startswith("KeyError ")
    assert Path(helper_work.__file__).name in failed.value.at
    assert "secret" not in failed.value.at


async def test_one_piece_of_work_at_a_time_also_when_who_asked_leaves(helper: HelperProcess) -> None:
    await helper.run(doze, 0.0, body=b"")
    left = asyncio.create_task(helper.run(doze, 1.0, body=b""))
    await asyncio.sleep(0.05)
    left.cancel()
    begun = time.monotonic()
    ended, _ = await helper.run(doze, 0.0, body=b"")
    assert ended - begun > 0.2


async def test_the_work_of_one_that_was_killed_is_done_by_another(helper: HelperProcess) -> None:
    (pid, _), _ = await helper.run(reverse, "x", body=b"")
    under_way = asyncio.create_task(helper.run(doze, 0.5, body=b""))
    await asyncio.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    await under_way
    (again, _), _ = await helper.run(reverse, "x", body=b"")
    assert again != pid


async def test_work_that_kills_two_fails_and_the_next_is_done(helper: HelperProcess) -> None:
    (pid, _), _ = await helper.run(reverse, "x", body=b"")
    with pytest.raises(HelperError) as failed:
        await helper.run(die, body=b"")
    assert failed.value.at.startswith("IncompleteReadError ")
    (again, _), _ = await helper.run(reverse, "x", body=b"")
    assert again != pid


async def test_it_goes_when_there_is_nothing_to_do() -> None:
    helper = HelperProcess(idle_s=0.05)
    (pid, _), _ = await helper.run(reverse, "x", body=b"")
    for _ in range(200):
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                await asyncio.sleep(0.05)
                continue
        return
    pytest.fail("it is still there")


async def test_one_that_died_while_it_waited_costs_nobody_anything(helper: HelperProcess) -> None:
    (pid, _), _ = await helper.run(reverse, "x", body=b"")
    os.kill(pid, signal.SIGKILL)
    (again, _), _ = await helper.run(reverse, "x", body=b"123")
    assert again != pid


async def test_one_that_hangs_is_ended() -> None:
    helper = HelperProcess(longest_s=scaled(2))
    with pytest.raises(HelperError, match="TimeoutError"):
        await helper.run(doze, 600.0, body=b"")
    assert (await helper.run(reverse, "x", body=b"12"))[1] == b"21"
    helper.close()
    with pytest.raises(HelperError):
        await helper.run(reverse, "x", body=b"")


async def test_what_has_not_begun_is_not_done_when_who_asked_leaves(helper: HelperProcess) -> None:
    await helper.run(reverse, "x", body=b"")
    tasks = [asyncio.create_task(helper.run(doze, 0.2, body=b"")) for _ in range(50)]
    await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    begun = time.monotonic()
    ended, _ = await helper.run(doze, 0.0, body=b"")
    assert ended - begun < 5


async def test_a_refusal_that_nobody_waits_for_is_not_printed(
    helper: HelperProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    await helper.run(reverse, "x", body=b"")
    unseen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    for work in (refuse, fail):
        left = asyncio.create_task(helper.run(work, body=b"the client's words"))
        await asyncio.sleep(0)
        left.cancel()
        await helper.run(reverse, "x", body=b"")
    del left
    gc.collect()
    assert not unseen
    assert "words" not in "".join(capfd.readouterr())


def test_it_finds_the_package_where_the_wrapper_found_it(tmp_path: Path) -> None:
    """On a node that is `sys.path` only."""
    (tmp_path / "huddle").symlink_to(Path(huddle.__file__).parent)
    (tmp_path / "where.py").write_text("import huddle\ndef am_i(body): return huddle.__file__, b''\n")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import asyncio, where; "
        "from huddle.wrapper.helper_process import HelperProcess; "
        "print(asyncio.run(HelperProcess().run(where.am_i, body=b''))[0])"
    )
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=scaled(60), check=False)
    assert done.stdout.strip() == str(tmp_path / "huddle" / "__init__.py"), done.stderr


KILLED = """
import asyncio, os
from huddle.wrapper.helper_process import HelperProcess
from tests.serving.wrapper.helper_work import reverse

async def main():
    (pid, _), _ = await HelperProcess().run(reverse, "x", body=b"")
    print(pid, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def test_it_does_not_outlive_who_started_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=scaled(60), check=False
    )
    pid = int(done.stdout)
    end = time.monotonic() + scaled(10)
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.05)


async def test_a_large_body_is_prepared_there(wrapper: Wrapper) -> None:
    answer = await wrapper.chat(**LARGE)
    assert answer.status_code == 200
    assert wrapper.service.workbench.helper.runs
    assert json.loads(wrapper.engine.requests[-1].body)["messages"][-1] == LARGE["messages"][-1]
    refused = await wrapper.chat(**LARGE, temperature="hot")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "temperature")


async def test_a_large_answer_is_judged_in_another(wrapper: Wrapper) -> None:
    async def script(_request: Received, reply: Reply) -> None:
        await reply.json({"id": "x", "choices": [{"index": 0, "text": "b" * 300_000}], "secret": "c"})

    wrapper.engine.script = script
    answer = await wrapper.chat()
    assert answer.json() == {"id": "x", "choices": [{"index": 0, "text": "b" * 300_000}]}
    assert wrapper.service.answers.helper.runs
    assert not wrapper.service.workbench.helper.runs


async def test_a_small_one_is_not(wrapper: Wrapper) -> None:
    assert (await wrapper.chat()).status_code == 200
    assert not wrapper.service.workbench.helper.runs
