"""What a sweep found: for the registry, for people, for programs. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from huddle.registry import Flags, Tuned
from huddle.registry.schema import Level, Measured
from huddle.tune import search
from huddle.tune.results import Results
from huddle.tune.sweep import Plan, name
from huddle.tune.workload import Reading, Workload


@dataclass(frozen=True)
class Verdict:
    """The best engine for one load, beside the untold and the plain one."""

    workload: Workload
    best: Flags
    readings: Mapping[Flags | None, Reading]
    tolerance: float
    whole: bool

    @property
    def compared(self) -> bool:
        """Whether anything was tried beside what is there untold."""
        return bool({*self.readings} - {None, Flags()})

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """The figures of the three; nothing for a plain engine that failed or was not started."""
        plain = self.readings.get(None)
        return {
            "tuned": self.readings[self.best].levels,
            "untold": self.readings[Flags()].levels,
            "plain": plain.levels if plain and not plain.failed else (),
        }

    @property
    def to_untold(self) -> float:
        """The tuned engine's tokens per second over the untold one's."""
        return search.gain(self.levels["tuned"], self.levels["untold"])

    @property
    def to_plain(self) -> float | None:
        """The same over plain `vllm serve`."""
        return search.gain(self.levels["tuned"], self.levels["plain"]) if self.levels["plain"] else None

    @property
    def left_out(self) -> dict[str, str]:
        """Engines that cannot be taken, each with the reason."""
        objections = {
            name(flags): search.objection(reading, self.readings[Flags()], self.tolerance)
            if flags is not None
            else reading.failed
            for flags, reading in self.readings.items()
        }
        return {who: why for who, why in objections.items() if why}

    def tuned(self, conditions: Mapping[str, Any], date: str) -> Tuned:
        """For the registry."""
        return Tuned(
            load=self.workload.load,
            gpu=conditions["gpu"],
            vllm=conditions["vllm"],
            tensor_parallel_size=conditions["tensor_parallel_size"],
            pipeline_parallel_size=conditions["pipeline_parallel_size"],
            date=date,
            engines=len(self.readings),
            whole=self.whole,
            digest=conditions["digest"],
            flags=self.best,
            measured=Measured(**self.levels),
        )

    def data(self) -> dict[str, Any]:
        """For programs."""
        return {
            "load": str(self.workload),
            "flags": self.best.model_dump(mode="json", by_alias=True, exclude_none=True),
            "to_untold": round(self.to_untold, 3),
            "to_plain": None if self.to_plain is None else round(self.to_plain, 3),
            "levels": {who: [level.model_dump() for level in levels] for who, levels in self.levels.items()},
            "whole": self.whole,
            "warnings": list(self.best.warnings),
            "left_out": self.left_out,
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        yield str(self.workload)
        yield f"  {'':8}{'streams':>8}{'tokens/s':>10}{'TTFT p95 ms':>13}{'token p95 ms':>14}"
        for who, levels in self.levels.items():
            for one in levels:
                times = f"{one.ttft_p95_ms:>13,.0f}{one.token_p95_ms:>14,.1f}"
                yield f"  {who:8}{one.streams:>8}{one.tokens_per_s:>10,.0f}{times}"
        plain = "" if self.to_plain is None else f", {self.to_plain:.2f} times plain `vllm serve`'s"
        so_far = "" if self.whole else " so far"
        yield f"  best{so_far}: {self.best}: {self.to_untold:.2f} times the untold tokens/s{plain}"
        for who, why in self.left_out.items():
            yield f"  not taken: {who}: {why}"
        for warning in self.best.warnings:
            yield f"  {warning}"


def verdicts(plan: Plan, results: Results) -> list[Verdict]:
    """The best so far for each load; none for one whose untold engine is not measured yet."""
    found = []
    for workload in plan.workloads:
        readings = results.of(str(workload))
        if Flags() not in readings:
            continue
        runs = {flags: reading for flags, reading in readings.items() if flags is not None}
        best, following = search.step(plan.knobs, runs, plan.tolerance)
        whole = following is None and (not plan.plain or None in readings)
        found.append(Verdict(workload, best, readings, plan.tolerance, whole))
    return found
