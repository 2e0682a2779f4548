"""Planner against every measured row: memory and KV tokens within 3 %, one stream within 15 %, others as stated."""

import json
from pathlib import Path

import pytest

from huddle import gpus, registry, shapes
from huddle.planner import Layout, memory, speed
from huddle.planner.speed import Load, Replica

ROWS = json.loads((Path(__file__).parent / "h100_rows.json").read_text())["rows"]
KNOWN = registry.load()
H100 = gpus.gpu("h100-sxm")
MODELS = {"3b": "llama-3.2-3b", "8b": "llama-3.1-8b", "70b": "llama-3.1-70b-fp8"}
UTILIZATION = 0.9

MEMORY_ERROR = 0.03  # promised
ONE_STREAM_ERROR = 0.15  # promised
STREAMS_ERROR = 0.20  # stated: single runs, whose own repeats differ by up to 16 %
START_ERROR = 0.15  # stated: imports of 18-30 s a process on that guest


def rows(kind: str, *keys: str) -> list:
    return [
        pytest.param(row, id=row["name"]) for row in ROWS if row["kind"] == kind and all(key in row for key in keys)
    ]


def engine(name: str) -> Replica:
    """The engine that a row's name speaks of, such as `8b_tp2_sock_c64`."""
    shape = shapes.for_model(KNOWN.models[MODELS[name.partition("_")[0]]])
    layout = Layout(2 if "tp2" in name else 1, 2 if "pp2" in name else 1, 1)
    fabric = gpus.fabric("tcp-40g" if "sock" in name else "nvlink")
    if "ray" in name:  # measured: no difference between Ray and vLLM's own executor
        assert "tp2" in name
    return Replica(shape, layout, H100, fabric)


def account(name: str) -> memory.Memory:
    e = engine(name)
    return memory.account(e.shape, e.layout, H100, e.fabric, UTILIZATION)


def streams(name: str) -> int:
    return int(name.rpartition("_c")[2])


def front_ends(name: str) -> int:
    return 4 if "asc4" in name or "si10" in name else 1


def error(predicted: float, measured: float) -> float:
    return predicted / measured - 1


def test_every_row_is_used_by_a_test():
    assert {row["kind"] for row in ROWS} == {"start", "bench", "sum", "nonstream", "memory"}
    assert len(ROWS) == 75


@pytest.mark.parametrize("row", rows("memory"))
def test_weights_and_kv_cache(row):
    predicted = account(row["name"])
    assert abs(error(predicted.weights_gib, row["weights_gib"])) < 0.01
    assert abs(error(predicted.kv_gib, row["kv_gib"])) < MEMORY_ERROR
    assert abs(error(predicted.kv_tokens, row["kv_tokens"])) < MEMORY_ERROR


@pytest.mark.parametrize("row", rows("memory", "after_load_mib"))
def test_memory_after_load(row):
    assert abs(error(account(row["name"]).loaded_mib, row["after_load_mib"])) < MEMORY_ERROR


@pytest.mark.parametrize("row", rows("start"))
def test_memory_in_use_when_ready(row):
    # 8b_cold started on the second card while 3b_warm held the first.
    used = row["mem_after"][1] if row["name"] == "8b_cold" else max(row["mem_after"])
    predicted = account(row["name"])
    assert abs(error(predicted.ready_mib, used)) < MEMORY_ERROR
    part = predicted.loaded_mib / H100.memory_mib
    assert 0.92 < part < 0.95  # "0.9 becomes 92-94.5 % in use"


@pytest.mark.parametrize("row", rows("start"))
def test_start_time(row):
    name = row["name"]
    e = engine(name)
    cold = "cold" in name or "_x_" in name or "pp2" in name
    predicted = speed.start_s(e.shape, e.layout, cold=cold)
    if name == "3b_cold":  # an earlier failed start had left the class inspection behind
        predicted -= 21
    if "ray" in name:  # compiled again although another executor had filled the cache (section 1.2)
        predicted += 17
    assert abs(error(predicted, row["ready_s"])) < START_ERROR


@pytest.mark.parametrize("row", [p for p in rows("bench") if p.id.endswith("_c1")])
def test_one_stream(row):
    e = engine(row["name"])
    assert abs(error(e.one_stream(), row["output_throughput"])) < ONE_STREAM_ERROR
    assert abs(error(e.step_ms(), row["p50_itl_ms"])) < ONE_STREAM_ERROR
    assert abs(error(e.first_token_ms(512), row["p50_ttft_ms"])) < 0.20


def per_client(name: str) -> bool:
    """Rows of one of several clients of the same server say a part; their sum is a row of its own."""
    return "4cl_cl" in name


@pytest.mark.parametrize("row", [p for p in rows("bench") if not p.id.endswith("_c1") and not per_client(p.id)])
def test_many_streams(row):
    name = row["name"]
    predicted = engine(name).served(Load(streams=streams(name)), front_ends(name))
    assert abs(error(predicted, row["output_throughput"])) < STREAMS_ERROR


@pytest.mark.parametrize("row", rows("sum"))
def test_several_clients_together(row):
    predicted = engine(row["name"]).served(Load(streams=256), front_ends(row["name"]))
    assert abs(error(predicted, row["output_throughput"])) < 0.25  # four clients ease one front end by 13 %


def test_clients_of_one_server_add_up():
    for name in ("3b_default_4cl", "3b_asc4_4cl"):
        parts = [
            row["output_throughput"] for row in ROWS if row["kind"] == "bench" and row["name"].startswith(f"{name}_")
        ]
        total = next(row["output_throughput"] for row in ROWS if row["kind"] == "sum" and row["name"] == name)
        assert len(parts) == 4
        assert total == pytest.approx(sum(parts), rel=0.01)


@pytest.mark.parametrize("row", rows("nonstream"))
def test_without_streaming_http_is_no_limit(row):
    predicted = engine(row["name"]).throughput(Load(streams=row["c"]))
    assert abs(error(predicted, row["output_throughput"])) < STREAMS_ERROR


class TestWhatTheMeasurementsSay:
    """The order of things, which matters more than the figures."""

    def at_256(self, name: str, replicas: int = 1) -> float:
        return replicas * engine(name).served(Load(streams=256 // replicas))

    def test_replicas_beat_pipeline_beat_tensor_over_tcp(self):
        replicas = self.at_256("8b_tp1", replicas=2)
        assert replicas == pytest.approx(10_871, rel=0.1)
        assert replicas > self.at_256("8b_tp2_mp") > self.at_256("8b_pp2_sock") > 5 * self.at_256("8b_tp2_sock")

    def test_tensor_over_tcp_is_slower_than_one_gpu_at_every_load(self):
        for load in (1, 8, 64, 256):
            assert engine("8b_tp2_sock").served(Load(load)) < engine("8b_tp1").served(Load(load))

    def test_tensor_over_nvlink_helps_one_stream(self):
        gain = engine("8b_tp2_mp").one_stream() / engine("8b_tp1").one_stream()
        assert gain == pytest.approx(1.47, rel=0.1)

    def test_only_what_outruns_one_front_end_gets_four(self):
        assert speed.front_ends(engine("3b_tp1")) == 4
        assert speed.front_ends(engine("8b_tp1")) == 1
        assert speed.front_ends(engine("70b_fp8_tp2")) == 1
        assert speed.front_ends(engine("3b_tp1"), max_num_seqs=8) == 1
