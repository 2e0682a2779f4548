"""One engine after the other until nothing is left to try, or the time is over, or somebody stops it."""

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from huddle.errors import HuddleError
from huddle.launch import backoff, command, tuned
from huddle.launch.prepare import Options, Prepared
from huddle.local.files import HUDDLE
from huddle.planner import speed
from huddle.registry import Flags, KvCacheType
from huddle.tune import engine, search
from huddle.tune.engine import EngineFailed, Place
from huddle.tune.load import Load
from huddle.tune.results import Results, Run
from huddle.tune.search import Knob
from huddle.tune.workload import Reading, Workload

_AROUND_S = 20  # of an engine: its stop, and the requests that warm it up
PLAIN = "plain"


@dataclass(frozen=True)
class Plan:
    """What is tried, and how it is judged."""

    workloads: tuple[Workload, ...]
    knobs: tuple[Knob, ...]
    tolerance: float
    plain: bool = True

    @property
    def most_engines(self) -> int:
        """How many are started at most."""
        return search.most_engines(self.knobs, len(self.workloads)) + self.plain

    def measured(self, results: Results) -> list[Run]:
        """The runs that say something of one of these loads; a file of results may have others, too."""
        loads = {str(workload) for workload in self.workloads}
        return [run for run in results.runs if loads & {*run.readings}]

    def left(self, results: Results) -> int:
        """How many engines are still to be started at most."""
        return max(0, self.most_engines - len(self.measured(results)))

    def pending(self, results: Results) -> list[Flags | None]:
        """The next engines that are known to be needed; None is the plain one."""
        known = [results.of(str(workload)) for workload in self.workloads]
        if any(Flags() not in of for of in known):
            return [Flags()]
        found: list[Flags | None] = [None] if self.plain and any(None not in of for of in known) else []
        for of in known:
            runs = {flags: reading for flags, reading in of.items() if flags is not None}
            _, following = search.step(self.knobs, runs, self.tolerance)
            found += [following] if following and following not in found else []
        return found


def run(
    plan: Plan,
    results: Results,
    file: Path,
    measure: Callable[[Flags | None], Run],
    *,
    say: Callable[[str], None],
    limit_s: float | None = None,
) -> bool:
    """Measure what is pending; False when the time was over before.

    Raises:
        HuddleError: the untold engine does not serve the load, so there is nothing to compare with.
    """
    began = time.monotonic()
    while pending := plan.pending(results):
        measured, left = plan.measured(results), max(1, plan.left(results))
        usual = sum(one.seconds for one in measured) / max(1, len(measured))
        if limit_s is not None and measured and time.monotonic() - began + usual > limit_s:
            return False
        place = f"engine {len(measured) + 1} of at most {len(measured) + left}"
        time_left = f", {left * usual / 60:.0f} min left at most" if usual else ""
        say(f"{place}{time_left}: {name(pending[0])}")
        done = measure(pending[0])
        failed = next((reading.failed for reading in done.readings.values() if reading.failed), None)
        if failed and pending[0] == Flags():
            raise HuddleError(f"the engine as `huddle launch` starts it cannot be measured: {failed}")
        results.runs.append(done)
        results.write(file)
        for workload, reading in done.readings.items():
            rates = " / ".join(f"{level.tokens_per_s:,.0f}" for level in reading.levels)
            outcome = f"skipped: {reading.failed}" if reading.failed else f"{rates} tokens/s"
            say(f"  {workload.partition(':')[0]}: {outcome}")
    return True


def name(flags: Flags | None) -> str:
    """What an engine is called."""
    return PLAIN if flags is None else str(flags)


@dataclass(frozen=True)
class Node:
    """This node with a model: how its engines are started and measured."""

    options: Options  # as the untold engine is launched
    prepared: Prepared
    workloads: tuple[Workload, ...]
    load: Load = field(default_factory=Load)

    @property
    def untold(self) -> dict[str, object]:
        """What `huddle launch` chooses, as far as it is known."""
        request, fit = self.prepared.request, self.prepared.fit
        return {
            "max_num_batched_tokens": request.max_num_batched_tokens or (fit and fit.hardware.gpu.batched_tokens),
            "kv_cache_dtype": request.kv_cache_dtype or KvCacheType.AUTO,
            "api_server_count": request.front_ends,
            "max_num_seqs": request.max_num_seqs,
            "enable_prefix_caching": request.prefix_caching is not False,
        }

    @property
    def conditions(self) -> dict[str, str | int]:
        """Under what the results hold."""
        request = self.prepared.request
        bare = command.build(replace(request, port=0, copy=0, program="vllm"))
        return {
            "model": request.served.model.name,
            "gpu": request.gpu,
            "vllm": request.vllm_version,
            "tensor_parallel_size": request.tensor,
            "pipeline_parallel_size": request.pipeline,
            "command": shlex.join(bare.argv),
            "digest": tuned.digest(request),
        }

    def argv(self, flags: Flags | None) -> list[str]:
        """The program that starts an engine: the launcher, or vLLM with nothing but what it needs to be asked here."""
        options, request = self.options, self.prepared.request
        if flags is None:
            words = [options.program, "serve", request.model_path, "--host", "127.0.0.1", "--port", str(request.port)]
            sizes = {"--tensor-parallel-size": request.tensor, "--pipeline-parallel-size": request.pipeline}
            return words + [word for key, size in sizes.items() if size > 1 for word in (key, str(size))]
        words = [*HUDDLE, "launch", options.model, "--workspace", str(options.workspace), "--vllm", options.program]
        words += ["--device", options.device.value, "--port", str(options.port), "--copy", str(options.copy)]
        words += ["--load", "none", "--compile-cache", str(options.compile_cache), "--shutdown-timeout", "0"]
        given = {"--registry": options.registry_file, "--gpu": options.gpu, "--tp": options.tensor}
        given |= {"--pp": options.pipeline}
        words += [word for key, value in given.items() if value is not None for word in (key, str(value))]
        words += [word for store in options.stores for word in ("--store", str(store))]
        return words + flags.words

    @property
    def named(self) -> str:
        """The model and the copy: several are tuned at the same time, each on GPUs of its own."""
        copy, model = self.prepared.request.copy, self.prepared.request.served.model.name
        return f"{model}@{copy}" if copy else model  # no model's name has an @

    @property
    def logs(self) -> Path:
        """Where the engines' output is."""
        return Path(self.prepared.request.workspace) / "logs" / self.named

    @property
    def seconds(self) -> float | None:
        """About how long an engine takes; None without a GPU's data."""
        fit = self.prepared.fit
        if fit is None:
            return None
        loads = sum(one.seconds(fit.replica, self.prepared.request.front_ends) for one in self.workloads)
        return speed.start_s(fit.shape, fit.layout, cold=True) + loads + _AROUND_S

    def measure(self, flags: Flags | None) -> Run:
        """Start an engine, put it under every load, and stop it."""
        request, began = self.prepared.request, time.monotonic()
        backoff.Record(Path(request.workspace) / request.record).clear()  # a candidate that fails delays no other
        engine.settle(self.prepared)
        place = Place(request.port, request.model_path if flags is None else request.served.name)
        env = command.build(request).environment(os.environ) if flags is None else dict(os.environ)
        log = self.logs / f"{name(flags).replace(', ', '+').replace(' ', '=')}.log"
        try:
            with engine.running(self.argv(flags), env, log, place, request.ready_timeout_s):
                readings = {str(one): engine.measure(place, self.load, one) for one in self.workloads}
        except EngineFailed as error:
            readings = {str(one): Reading(failed=str(error)) for one in self.workloads}
        return Run(flags=flags, seconds=round(time.monotonic() - began, 1), readings=readings)
