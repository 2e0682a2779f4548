"""A schedule of requests through both doors of a wrapper, and the books of everybody who counts its tokens."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path
from typing import Any

from huddle.wrapper.access.auth import new_key
from huddle.wrapper.access.limits import Limit
from infra.reports.usage import token_file
from simulator.apim_policies.counters import Counters
from simulator.apim_policies.exchange import Environment, Metric
from simulator.apim_policies.gateway import Gateway
from simulator.apim_policies.pool import Backends
from simulator.apim_policies.transport import HttpSender
from tests.simulator.apim_policies import lab

from .conftest import BACKEND_KEY, MakeWrapper, Wrapper
from .fake_engine import MODEL as ENGINE_MODEL

TOLERANCE = 0.02
AT_ONCE = 4
LIMIT = 1_000_000_000
TEAM = "team"  # whose key opens the wrapper's own door
PRODUCTS: dict[str, Any] = {
    "writers": {
        "display_name": "Writers",
        "requests_per_minute": 1_000_000,
        "tokens_per_minute": LIMIT,
        "token_quota": {"tokens": LIMIT, "period": "yearly"},
        "models": [lab.MODEL],
        "subscriptions": ["app"],
    }
}
WORDS = ("a", "to", "the", "and", "with", "story", "river", "between", "mountain", "understanding", "of", "it", "says")
PROMPT = "You are Huddle. Answer briefly and in plain words."


class Kind(StrEnum):
    PLAIN = auto()
    STREAM = auto()
    STREAM_ASKING = auto()  # for its usage
    LEFT = auto()  # a stream whose client leaves
    ENGINE_FAILS = auto()
    REFUSED = auto()  # by the wrapper


JSON = {"Content-Type": "application/json"}
REFUSALS = frozenset({Kind.ENGINE_FAILS, Kind.REFUSED})


@dataclass(frozen=True)
class Asked:
    """One request. `leaves_after` tokens its client goes; `unseen` are those that the engine makes meanwhile."""

    number: int
    kind: Kind
    path: str
    text: str
    most: int
    leaves_after: int = 0
    unseen: int = 0

    @property
    def body(self) -> bytes:
        said = {
            "/v1/chat/completions": {"messages": [{"role": "user", "content": self.text}], "max_tokens": self.most},
            "/v1/completions": {"prompt": self.text, "max_tokens": self.most},
            "/v1/responses": {"input": self.text, "max_output_tokens": self.most},
        }[self.path]
        body: dict[str, Any] = {"model": lab.MODEL, **said}
        if self.kind in (Kind.STREAM, Kind.STREAM_ASKING, Kind.LEFT):
            body["stream"] = True
        if self.kind is Kind.STREAM_ASKING and self.path != "/v1/responses":
            body["stream_options"] = {"include_usage": True}
        if self.kind is Kind.REFUSED:
            body["temperature"] = "hot"
        return json.dumps(body).encode()


def schedule(seed: int, count: int, paths: Sequence[str], weights: dict[Kind, int], *, most: int = 300) -> list[Asked]:
    """Requests at random; `weights` of the kinds."""
    dice = random.Random(seed)
    asked = []
    for number, kind in enumerate(dice.choices(list(weights), list(weights.values()), k=count)):
        text = " ".join([f"ask-{number}", *dice.choices(WORDS, k=dice.randint(5, 120))])
        tokens = dice.randint(10, most)
        leaves = dice.randint(1, tokens // 2) if kind is Kind.LEFT else 0
        asked.append(Asked(number, kind, dice.choice(paths), text, tokens, leaves, dice.randint(0, 3)))
    return asked


@dataclass
class Books:
    """Tokens of one schedule, by who counted them."""

    engine: int
    others: dict[str, int]

    def off(self, tolerance: float = TOLERANCE) -> list[str]:
        """Whose count differs by more than that from the engine's own."""
        return [
            f"{name}: {count} of the engine's {self.engine} tokens ({count / self.engine - 1:+.1%})"
            for name, count in self.others.items()
            if abs(count - self.engine) > tolerance * self.engine
        ]


Count = Callable[[], Awaitable[int]]
Ask = Callable[[Asked], Awaitable[None]]


@dataclass
class House:
    """A wrapper that can be started again, behind a gateway in the lab and a door for keys of its own."""

    make_wrapper: MakeWrapper
    engine: Any
    count: Count
    """The engine's own count, once it is at rest."""
    directory: Path
    limits_estimate_streams: bool = False

    def __post_init__(self) -> None:
        service = lab.service(products=PRODUCTS)
        self.addresses = {backend.url: "" for backend in service.backends}
        self.sender = HttpSender(self.addresses)
        environment = Environment(
            Counters(service.algorithm),
            Backends(service.backends, service.pools),
            self.sender,
            lambda: lab.START,
            asyncio.sleep,
            limits_estimate_streams=self.limits_estimate_streams,
        )
        keyed = next(each for each in service.subscriptions if each.target == "writers")
        self.gateway_key, self.gateway = keyed.keys[0], Gateway(service, environment)
        self.key, self.digest = new_key()

    async def through_gateway(self, asked: Sequence[Asked]) -> Books:
        """What gateway and wrapper counted, over two starts of the wrapper."""
        before, counted = await self.count(), 0
        for part in (asked[::2], asked[1::2]):
            counted += await self._served(part, self._ask_gateway)
        others = {"the wrapper's metrics": counted, **self._counted_by_gateway()}
        return Books(await self.count() - before, others)

    async def with_key(self, asked: Sequence[Asked]) -> Books:
        """What a key was charged and the wrapper counted, over two starts of the wrapper."""
        before, counted, charged = await self.count(), 0, 0
        for part in (asked[::2], asked[1::2]):
            counted += await self._served(part, self._ask_with_key)
            charged += self._charged_to_key()
        others = {"the wrapper's metrics": counted, "the key's limit": charged}
        return Books(await self.count() - before, others)

    async def _served(self, asked: Sequence[Asked], ask: Ask) -> int:
        """The tokens that a newly started wrapper counted."""
        await self._start()
        await self._all(asked, ask)
        await self.wrapper.until(lambda: self.wrapper.service.running == 0, 60)
        return tokens_total(self.wrapper)

    async def _start(self) -> None:
        (self.directory / "prompt.txt").write_text(PROMPT)
        (self.directory / "keys").write_text(BACKEND_KEY)
        quota = {"keys": [{"name": "alice", "sha256": self.digest}], "tokens_per_day": LIMIT}
        model = {"upstream_model": ENGINE_MODEL, "system_prompt_file": self.directory / "prompt.txt"}
        self.wrapper: Wrapper = await self.make_wrapper(
            self.engine,
            models={lab.MODEL: model},
            products={"writers": {"models": [lab.MODEL]}, TEAM: quota},
            timeouts={"total_s": 600},
        )
        for url in self.addresses:
            self.addresses[url] = f"http://127.0.0.1:{self.wrapper.port}/v1"

    async def _all(self, asked: Sequence[Asked], ask: Ask) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def one(each: Asked) -> None:
            async with places:
                await ask(each)

        async with asyncio.TaskGroup() as group:
            for each in asked:
                group.create_task(one(each))

    # -- the doors --

    async def _ask_gateway(self, asked: Asked) -> None:
        response = await self.gateway.handle(lab.request(asked.path, key=self.gateway_key, body=asked.body))
        assert (response.status == 200) is (asked.kind not in REFUSALS), asked
        seen = 0
        async with aclosing(response.body) as chunks:  # type: ignore[type-var]  # generators, all of them
            async for chunk in chunks:
                seen += tokens_in(chunk)
                if asked.leaves_after and seen >= asked.leaves_after:
                    break
        if response.close is not None:
            await response.close()

    async def _ask_with_key(self, asked: Asked) -> None:
        async with (
            self.wrapper.client(self.key) as client,
            client.stream("POST", asked.path, content=asked.body, headers=JSON) as response,
        ):
            assert (response.status_code == 200) is (asked.kind not in REFUSALS), await response.aread()
            seen = 0
            async for chunk in response.aiter_raw():
                seen += tokens_in(chunk)
                if asked.leaves_after and seen >= asked.leaves_after:
                    return

    # -- the books --

    def _counted_by_gateway(self) -> dict[str, int]:
        environment = self.gateway.environment
        quota = next(each for (policy, _), each in environment.counters.held.items() if policy.endswith("quota"))
        return {
            "the gateway's quota": LIMIT - int(quota.room(lab.START)),
            "infra usage": used(environment.metrics, self.directory / "tokens.json"),
        }

    def _charged_to_key(self) -> int:
        service = self.wrapper.service
        return service._subscribers[(TEAM, "alice")].used(Limit.TOKENS_PER_DAY, service.clock())


def tokens_in(chunk: bytes) -> int:
    """Pieces of an answer in a chunk of a stream, the event that begins a chat's choice left out."""
    return sum(
        any(sign in event for sign in (b'"text":', b'"content":', b".delta")) and b'"role"' not in event
        for event in chunk.split(b"\n\n")
    )


def tokens_total(wrapper: Wrapper) -> int:
    """What the wrapper's metrics say since its start."""
    lines = [line for line in wrapper.metrics().splitlines() if line.startswith("huddle_wrapper_tokens_total{")]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


def used(metrics: Sequence[Metric], path: Path) -> int:
    """What `infra usage` reads, where the rows are those of the query `tokens_by_subscription`."""
    sums = Counter[tuple[str, str, str]]()
    for metric in metrics:
        told = dict(metric.dimensions)
        sums[told["Product ID"], told["Subscription ID"], metric.name] += metric.value
    rows = [
        {
            "product": product,
            "subscription": subscription,
            "prompt_tokens": str(sums[product, subscription, "Prompt Tokens"]),
            "completion_tokens": str(sums[product, subscription, "Completion Tokens"]),
        }
        for product, subscription in {each[:2] for each in sums}
    ]
    path.write_text(json.dumps(rows))
    return sum(use.tokens for use in token_file.read(path))
