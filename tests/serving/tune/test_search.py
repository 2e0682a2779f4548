"""What is measured next and what is best: with figures that follow from the flags, so the optimum is known."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle import registry
from huddle.errors import HuddleError, InputError
from huddle.registry import Flags, KvCacheType
from huddle.registry.schema import Level
from huddle.tune import report, results, search, sweep
from huddle.tune.results import Results, Run
from huddle.tune.search import Knob
from huddle.tune.sweep import Plan
from huddle.tune.workload import WORKLOADS, Reading

CHAT = WORKLOADS[registry.Load.CHAT]
DOCUMENTS = WORKLOADS[registry.Load.DOCUMENTS]
KNOBS = (
    Knob("max_num_batched_tokens", (2048, 16384)),
    Knob("kv_cache_dtype", (KvCacheType.FP8,)),
    Knob("api_server_count", (1, 8)),
    Knob("max_num_seqs", (128,)),
)


def reading(rate: float, first_ms: float = 50, token_ms: float = 5, streams: tuple[int, ...] = CHAT.levels) -> Reading:
    return Reading(
        levels=tuple(
            Level(streams=one, tokens_per_s=rate * one, ttft_p95_ms=first_ms, token_p95_ms=token_ms) for one in streams
        )
    )


def known(flags: Flags | None) -> Reading:
    """16384 tokens: × 1.3; 8 API servers: × 1.2; fp8 fails; 128 sequences: × 2, but the first token waits."""
    if flags is None:
        return reading(80)
    if flags.kv_cache_dtype is KvCacheType.FP8:
        return Reading(failed="ValueError: no fp8 here")
    rate = 100 * {16384: 1.3, 2048: 0.9}.get(flags.max_num_batched_tokens or 0, 1)
    rate *= {8: 1.2, 1: 0.5}.get(flags.api_server_count or 0, 1)
    return reading(rate * 2, 900) if flags.max_num_seqs else reading(rate)


BEST = Flags(max_num_batched_tokens=16384, api_server_count=8)


class Bench:
    """A node where an engine takes a minute."""

    def __init__(self, figures=known, loads=(CHAT,)) -> None:
        self.figures, self.loads, self.started = figures, loads, list[Flags | None]()

    def measure(self, flags: Flags | None) -> Run:
        self.started.append(flags)
        return Run(flags=flags, seconds=60, readings={str(load): self.figures(flags) for load in self.loads})


def go(tmp_path: Path, bench: Bench, plan: Plan, found: Results | None = None) -> Results:
    found = found or Results(conditions={"gpu": "h200-sxm"})
    assert sweep.run(plan, found, tmp_path / "r.json", bench.measure, say=lambda _: None)
    return found


class TestSweep:
    plan = Plan((CHAT,), KNOBS, 0.1)

    def test_finds_the_known_optimum_with_no_engine_more_than_said(self, tmp_path):
        bench = Bench()
        found = go(tmp_path, bench, self.plan)
        (verdict,) = report.verdicts(self.plan, found)
        assert verdict.best == BEST
        assert (round(verdict.to_untold, 3), round(verdict.to_plain, 3)) == (1.56, 1.95)
        assert len(bench.started) == len(set(bench.started)) == self.plan.most_engines == 8
        assert bench.started[:2] == [Flags(), None], "both are there when the time is over early"

    def test_says_why_an_engine_was_not_taken(self, tmp_path):
        (verdict,) = report.verdicts(self.plan, go(tmp_path, Bench(), self.plan))
        assert verdict.left_out == {
            "max-num-batched-tokens 16384, kv-cache-dtype fp8": "ValueError: no fp8 here",
            "max-num-batched-tokens 16384, api-server-count 8, max-num-seqs 128": (
                "at 8 streams the p95 of the first token is 900 ms, untold 50 ms"
            ),
        }
        assert verdict.whole and verdict.data()["warnings"] == []
        assert "  best: max-num-batched-tokens 16384, api-server-count 8: 1.56 times" in "\n".join(verdict.lines())

    def test_goes_on_where_it_was_interrupted(self, tmp_path):
        first, stop_at = Bench(), 4

        def measure(flags):
            if len(first.started) == stop_at:
                raise KeyboardInterrupt
            return first.measure(flags)

        fresh = Results(conditions={"gpu": "h200-sxm"})
        with pytest.raises(KeyboardInterrupt):
            sweep.run(self.plan, fresh, tmp_path / "r.json", measure, say=lambda _: None)
        kept = results.read(tmp_path / "r.json", {"gpu": "h200-sxm"}, afresh=False)
        assert len(kept.runs) == stop_at
        second = Bench()
        (verdict,) = report.verdicts(self.plan, go(tmp_path, second, self.plan, kept))
        assert verdict.best == BEST
        assert len(first.started) + len(second.started) == self.plan.most_engines
        assert not {*first.started} & {*second.started}

    def test_ends_before_the_engine_that_would_end_too_late(self, tmp_path):
        bench, found = Bench(), Results(conditions={})
        assert not sweep.run(self.plan, found, tmp_path / "r.json", bench.measure, say=lambda _: None, limit_s=30)
        assert bench.started == [Flags()]
        (verdict,) = report.verdicts(self.plan, found)
        assert (verdict.best, verdict.to_untold, verdict.to_plain) == (Flags(), 1, None)
        assert (verdict.whole, verdict.compared) == (False, False)
        assert "  best so far: untold" in "\n".join(verdict.lines())
        sweep.run(self.plan, found, tmp_path / "r.json", bench.measure, say=lambda _: None, limit_s=0.001)
        found.runs.append(bench.measure(None))
        assert not report.verdicts(self.plan, found)[0].compared, "plain is no candidate"
        found.runs.append(bench.measure(Flags(max_num_batched_tokens=2048)))
        (verdict,) = report.verdicts(self.plan, found)
        assert (verdict.whole, verdict.compared) == (False, True)
        conditions = {"gpu": "g", "vllm": "v", "tensor_parallel_size": 1, "pipeline_parallel_size": 1}
        assert not verdict.tuned({**conditions, "digest": "0123456789ab"}, "2026-11-29").whole

    def test_warns_of_what_may_change_answers_or_mislead(self, tmp_path):
        knobs = (Knob("kv_cache_dtype", (KvCacheType.FP8,)), Knob("enable_prefix_caching", (False,)))
        better = Bench(lambda flags: reading(100 * 2 ** len(flags.words if flags else ())))
        plan = Plan((CHAT,), knobs, 0.1)
        (verdict,) = report.verdicts(plan, go(tmp_path, better, plan))
        fp8, no_cache = verdict.data()["warnings"]
        assert fp8.startswith("an fp8 KV cache may change answers") and no_cache.startswith("prefix caching is off")
        assert f"  {fp8}\n  {no_cache}" in "\n".join(verdict.lines())

    def test_only_runs_of_the_plans_loads_count(self, tmp_path):
        """Results of one load, then a sweep for another with little time, then one for both."""
        found = go(tmp_path, Bench(), self.plan)
        said, other = list[str](), Plan((DOCUMENTS,), KNOBS, 0.1)
        bench = Bench(lambda _: reading(100, streams=DOCUMENTS.levels), (DOCUMENTS,))
        assert other.left(found) == other.most_engines
        assert report.verdicts(other, found) == [], "nothing is known of that load"
        assert not sweep.run(other, found, tmp_path / "r.json", bench.measure, say=said.append, limit_s=30)
        assert bench.started == [Flags()], "one engine in any case, so that the call was of some use"
        assert said[0] == f"engine 1 of at most {other.most_engines}: untold"
        assert [verdict.workload for verdict in report.verdicts(other, found)] == [DOCUMENTS]
        assert len(other.measured(found)) == 1
        more = Plan((CHAT, replace(CHAT, levels=(4,))), KNOBS, 0.1)
        assert [verdict.workload for verdict in report.verdicts(more, found)] == [CHAT]

    def test_the_number_of_engines_is_never_above_what_is_said(self, tmp_path):
        """An earlier sweep tried more flags than this one may."""
        found = go(tmp_path, Bench(), self.plan)
        few, said = Plan((CHAT,), (Knob("max_num_seqs", (512,)),), 0.1), list[str]()
        assert sweep.run(few, found, tmp_path / "r.json", Bench().measure, say=said.append)
        assert said[0].startswith("engine 9 of at most 9, 1 min left at most: ")

    def test_two_loads_share_what_they_can_and_each_gets_its_best(self, tmp_path):
        plan = Plan((CHAT, DOCUMENTS), KNOBS, 0.1)

        class Both(Bench):
            def measure(self, flags):
                run = super().measure(flags)
                slow = flags is not None and flags.api_server_count == 8
                documents = reading(50 if slow else 100, streams=DOCUMENTS.levels)
                return run.model_copy(update={"readings": {**run.readings, str(DOCUMENTS): documents}})

        bench = Both()
        chat, documents = report.verdicts(plan, go(tmp_path, bench, plan))
        assert (chat.best, documents.best) == (BEST, Flags())
        assert len(bench.started) == len(set(bench.started)) < plan.most_engines

    def test_without_the_untold_engine_there_is_nothing_to_compare_with(self, tmp_path):
        bench = Bench(lambda _: Reading(failed="out of memory"))
        with pytest.raises(HuddleError, match="cannot be measured: out of memory"):
            go(tmp_path, bench, self.plan)
        assert not (tmp_path / "r.json").exists(), "the next run must try it again"


class TestJudgement:
    @given(st.floats(0.981, 1.019))
    def test_a_difference_that_chance_makes_changes_nothing(self, factor):
        runs = {Flags(): reading(100), Flags(max_num_seqs=128): reading(100 * factor)}
        assert search.step((Knob("max_num_seqs", (128,)),), runs, 0.1) == (Flags(), None)

    @pytest.mark.parametrize(
        ("first_ms", "token_ms", "good"),
        [(54.9, 5, True), (60.1, 5, False), (50, 5.9, True), (50, 6.1, False), (59.9, 5.9, True)],
    )
    def test_the_tolerance_and_the_slack_at_small_times(self, first_ms, token_ms, good):
        assert (search.objection(reading(200, first_ms, token_ms), reading(100), 0.1) is None) is good

    def test_at_long_times_the_tolerance_counts(self):
        assert search.objection(reading(200, 1099), reading(100, 1000), 0.1) is None
        assert search.objection(reading(200, 1101), reading(100, 1000), 0.1)
        assert search.objection(reading(200, 1001), reading(100, 1000), 0) is None, "the slack of 10 ms"

    def test_every_level_counts_the_same(self):
        twice_at_one = Reading(
            levels=tuple(
                level.model_copy(update={"tokens_per_s": level.tokens_per_s * (2 if level.streams == 8 else 1)})
                for level in reading(100).levels
            )
        )
        assert search.gain(twice_at_one.levels, reading(100).levels) == pytest.approx(2 ** (1 / 3))

    def test_what_the_launcher_chooses_is_not_tried_again(self):
        untold = {"max_num_batched_tokens": 8192, "kv_cache_dtype": KvCacheType.AUTO, "api_server_count": 4}
        found = {knob.name: knob.values for knob in search.knobs(untold, 16, ["max-num-seqs"])}
        assert found == {"max_num_batched_tokens": (2048, 4096, 16384), "api_server_count": (1, 2, 8)}
        asked = {knob.name: knob.values for knob in search.knobs(untold, 16, ["max-num-seqs"], search.ON_REQUEST)}
        assert asked == {**found, "kv_cache_dtype": (KvCacheType.FP8,), "enable_prefix_caching": (True, False)}
        assert next(k.values for k in search.knobs(untold, 4) if k.name == "api_server_count") == (1, 2)


class TestResults:
    def test_other_conditions_are_refused_by_name(self, tmp_path):
        path = tmp_path / "r.json"
        Results(conditions={"gpu": "h200-sxm", "vllm": "0.26.0"}).write(path)
        with pytest.raises(InputError, match="measured with gpu 'h200-sxm', and here it is 'h100-nvl'"):
            results.read(path, {"gpu": "h100-nvl", "vllm": "0.26.0"}, afresh=False)
        assert results.read(path, {"gpu": "h100-nvl"}, afresh=True).runs == []

    @pytest.mark.parametrize("content", ["{", "[]", '{"conditions": {}, "runs": [{"flags": {"no": 1}}]}'])
    def test_a_file_of_something_else(self, tmp_path, content):
        (tmp_path / "r.json").write_text(content)
        with pytest.raises(InputError, match="no results to go on from"):
            results.read(tmp_path / "r.json", {}, afresh=False)
