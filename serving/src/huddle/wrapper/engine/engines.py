"""The engines behind the wrapper, all of which serve the same models, and the way of a request to one of them."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from huddle.wrapper.engine.choice import choose
from huddle.wrapper.engine.probe import EngineProbe
from huddle.wrapper.errors import RequestError
from huddle.wrapper.http.upstream import UpstreamConnection, UpstreamPool


class Engine:
    """One engine: the connections to it, the watch of it, and how many requests of ours it has."""

    __slots__ = ("doubted", "pool", "probe", "under_way")

    def __init__(self, pool: UpstreamPool, probe: EngineProbe) -> None:
        self.pool = pool
        self.probe = probe
        self.under_way = 0
        self.doubted = False  # it has failed a request since the watch has last asked it

    @property
    def name(self) -> str:
        """Its address, as metrics and logs have it."""
        return str(self.pool.address)

    @property
    def answers(self) -> bool:
        """Whether the watch calls it healthy, with every promised model."""
        return self.probe.problem is None

    @property
    def load(self) -> int | None:
        """Requests of ours that it has; None while it shall get no more of them."""
        return self.under_way if self.answers and not self.doubted else None


class Engines:
    """All engines. What one is doubted for ends when the watch has asked it again."""

    def __init__(
        self,
        pools: Iterable[UpstreamPool],
        *,
        key: Callable[[], str | None],
        wanted: Callable[[], Iterable[str]],
        learned: Callable[[dict[str, int]], None],
        changed: Callable[[str, str | None], None],
        objections: Iterable[Callable[[], str | None]],
    ) -> None:
        def watched(pool: UpstreamPool, objection: Callable[[], str | None]) -> Engine:
            def asked() -> None:
                engine.doubted = False

            def changes(problem: str | None) -> None:
                changed(engine.name, problem)
                learns()

            engine = Engine(pool, EngineProbe(pool, key, wanted, learns, changes, objection, asked))
            return engine

        def learns() -> None:
            learned(self.context_lengths)

        self.all: Final = tuple(map(watched, pools, objections))
        self._last = -1

    @property
    def answering(self) -> int:
        """How many of them answer."""
        return sum(engine.answers for engine in self.all)

    @property
    def problem(self) -> str | None:
        """Why none of them answers."""
        problems = [problem for engine in self.all if (problem := engine.probe.problem) is not None]
        if len(problems) < len(self.all):
            return None
        different = "; ".join(dict.fromkeys(problems))
        return different if len(problems) == 1 else f"none of {len(problems)} engines answers: {different}"

    @property
    def context_lengths(self) -> dict[str, int]:
        """Tokens by the engines' names of models; where engines differ the least, which all of them take."""
        least: dict[str, int] = {}
        for engine in self.all:
            for model, tokens in engine.probe.lengths.items():
                least[model] = min(tokens, least.get(model, tokens))
        return least

    def choose(self, tried: Collection[Engine] = ()) -> Engine | None:
        """The engine for a request, besides those that it has `tried`; None: it has tried all.

        Where no engine is known to answer, any may: the watch may be behind.
        """
        if len(self.all) == 1:
            return None if tried else self.all[0]
        loads = [None if engine in tried else engine.load for engine in self.all]
        place = choose(loads, self._last)
        if place is None:
            loads = [None if engine in tried else engine.under_way for engine in self.all]
            place = choose(loads, self._last)
        if place is None:
            return None
        self._last = place
        return self.all[place]

    def prune(self) -> None:
        """Close connections that have been idle for too long."""
        for engine in self.all:
            engine.pool.prune()

    def close(self) -> None:
        """Close the idle connections."""
        for engine in self.all:
            engine.pool.close()


class Way:
    """A request's way to an engine, which counts it from the choice to `end`. Unsent, it may go to another one."""

    __slots__ = ("_engine", "_engines")

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._engine: Engine | None = None

    def take_idle(self) -> UpstreamConnection | None:
        """A connection to the chosen engine that is ready now, or None."""
        return self._chosen().pool.take_idle()

    async def connect(self) -> UpstreamConnection:
        """A fresh connection to the chosen engine, or to the next one that accepts it.

        Raises `RequestError` (503 or 504): none does.
        """
        tried: list[Engine] = []
        while True:
            engine = self._chosen()
            try:
                return await engine.pool.connect()
            except RequestError:
                engine.doubted = True
                tried.append(engine)
                if (other := self._engines.choose(tried)) is None:
                    raise
                self._take(other)

    async def connect_again(self) -> UpstreamConnection:
        """A fresh connection to the engine that had the request. Raises `RequestError` (503 or 504)."""
        try:
            return await self._chosen().pool.connect()
        except RequestError:
            self.doubt()
            raise

    def doubt(self) -> None:
        """The engine has failed the request: it gets no other one until the watch has asked it."""
        if self._engine is not None:
            self._engine.doubted = True

    def refused(self, status: int) -> None:
        """The engine has answered with an error; from 500 on it is the engine's own."""
        if status >= 500:
            self.doubt()

    def end(self) -> None:
        """The request has ended."""
        if self._engine is not None:
            self._engine.under_way -= 1
            self._engine = None

    def _chosen(self) -> Engine:
        engine = self._engine
        if engine is None:
            engine = self._engines.choose()
            assert engine is not None  # noqa: S101 - none was tried
            self._take(engine)
        return engine

    def _take(self, engine: Engine) -> None:
        self.end()
        engine.under_way += 1
        self._engine = engine
