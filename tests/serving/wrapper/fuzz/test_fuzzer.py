"""The fuzzer: minutes as a lab, an hour every night.

`HUDDLE_FUZZ_SECONDS` says how long, `HUDDLE_FUZZ_SEED` repeats a run. A case that breaks a promise is printed as it is
kept in corpus/: put it there under a name, and mend.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, Phase, given, seed, settings

from huddle.wrapper.access import auth
from huddle.wrapper.access.admission import Admission
from huddle.wrapper.body.prepare import Preparer
from huddle.wrapper.engine import errors as engine_errors
from huddle.wrapper.errors import RequestError

from . import grammar
from . import target as targets
from .case import Answer, Case
from .target import Target, target

CORPUS = Path(__file__).with_name("corpus")
SECONDS = float(os.environ.get("HUDDLE_FUZZ_SECONDS", "160"))
SEED = int(os.environ.get("HUDDLE_FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
ROUND = 200
"""Cases with one seed."""


class Fuzzed:
    """A target in an event loop that stands still between cases."""

    def __init__(self, directory: Path) -> None:
        self.loop = uvloop.new_event_loop()
        self.context = target(directory)
        self.target: Target = self.loop.run_until_complete(self.context.__aenter__())

    def problems(self, case: Case) -> list[str]:
        return self.loop.run_until_complete(self.target.problems(case))

    def check(self, case: Case) -> None:
        problems = self.problems(case)
        assert problems == [], f"{problems}; the case, for {CORPUS.name}/:\n{case.dumps()}"

    def close(self) -> None:
        self.loop.run_until_complete(self.context.__aexit__(None, None, None))
        self.loop.close()


@pytest.fixture
def fuzzed(tmp_path: Path) -> Iterator[Fuzzed]:
    made = Fuzzed(tmp_path)
    yield made
    made.close()


def run(fuzzed: Fuzzed, kind: str, number: int, examples: int) -> None:
    """One round: always the same cases for one seed."""
    quiet = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
    )

    def check(case: Case) -> None:
        fuzzed.check(case)

    try:
        seed(number)(quiet(given(grammar.KINDS_OF_CASES[kind])(check)))()
    except BaseException as error:
        error.add_note(f"the same again: HUDDLE_FUZZ_SEED={number}, -k {kind}")
        raise


@pytest.mark.lab
@pytest.mark.timeout(300 + 4 * SECONDS)
@pytest.mark.parametrize("kind", grammar.KINDS_OF_CASES)
def test_no_case_breaks_a_promise(fuzzed: Fuzzed, kind: str) -> None:
    end, number = time.monotonic() + SECONDS / len(grammar.KINDS_OF_CASES), SEED
    while time.monotonic() < end:
        run(fuzzed, kind, number, ROUND)
        number += 1


@pytest.mark.parametrize("kind", grammar.KINDS_OF_CASES)
def test_a_few_cases(fuzzed: Fuzzed, kind: str) -> None:
    """So that the fuzzer itself runs with every change."""
    run(fuzzed, kind, 1, 30)


@pytest.mark.parametrize("name", sorted(path.stem for path in CORPUS.glob("*.json")))
def test_the_corpus(fuzzed: Fuzzed, name: str) -> None:
    case = Case.loads((CORPUS / f"{name}.json").read_text(encoding="utf-8"))
    fuzzed.check(case)
    assert Case.loads(case.dumps()) == case


# -- what the fuzzer would see --

GOOD = Case((grammar.request(grammar.Route.CHAT, b'{"messages": [{"role": "user", "content": "hi"}]}'),))
BAD = Case((grammar.request(grammar.Route.CHAT, b"[]"),))
QUOTING = Case(GOOD.sent, Answer(b"HTTP/1.1 400 X\r\ncontent-length: @LENGTH@\r\n\r\n", b'{"error": "@BODY@"}'))


def broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


async def silent(_request: Any, reply: Any) -> None:
    await reply.closed_by_peer()


async def refusing(_request: Any, reply: Any) -> None:
    await reply.json({}, 400)


def quoting(_status: int, body: bytes, *_: Any, **__: Any) -> RequestError:
    return RequestError(400, "x", body.decode())


BREAKS: dict[str, tuple[Case, tuple[Any, str, Any]]] = {
    "a fault": (GOOD, (Preparer, "prepare", broken)),
    "the wrapper failed itself": (GOOD, (Preparer, "prepare", broken)),
    "it hangs": (GOOD, (targets, "answer_briefly", silent)),
    "16 characters of a secret": (QUOTING, (engine_errors, "translate", quoting)),
    "an error that is not OpenAI's": (BAD, (RequestError, "body", lambda _: b'{"error": {"type": "x", "code": 1}}')),
    "but the engine was asked": (GOOD, (targets, "answer_briefly", refusing)),
    "not zero at the end": (GOOD, (Admission, "leave", lambda *_: None)),
    "the salt at the engine is not ours": (GOOD, (auth, "cache_salt", lambda *_: "another's")),
    "does not begin with the prompt": (GOOD, (targets, "PRODUCT_PROMPT", "another text")),
}


@pytest.mark.parametrize("promise", BREAKS)
def test_a_broken_promise_is_seen(fuzzed: Fuzzed, promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, broken_by = BREAKS[promise]
    assert fuzzed.problems(case) == []
    monkeypatch.setattr(targets, "HANG_S", 0.5)
    monkeypatch.setattr(*broken_by)
    assert promise in " ".join(fuzzed.problems(case))
    fuzzed.target.wrapper.service.faults.clear()
