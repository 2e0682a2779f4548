"""The planner's answer in words and as data: every number with where it comes from."""

import math
from typing import Any

from huddle.planner import calibration as c
from huddle.planner import memory as mem
from huddle.planner import speed
from huddle.planner.fit import FitResult
from huddle.planner.speed import Load


def text(fit: FitResult) -> str:
    """The working: memory, speed, ways to use the GPUs, start time, notes."""
    parts = [_summary_lines(fit), _memory_lines(fit), _speed_lines(fit)]
    if fit.options:
        parts.append(_option_lines(fit))
    parts += [_start_lines(fit), _note_lines(fit)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _summary_lines(v: FitResult) -> list[str]:
    return [v.summary, *(f"  no: {sentence}" for sentence in v.refusals)]


def _memory_lines(v: FitResult) -> list[str]:
    shape, layout, m, gpu = v.shape, v.layout, v.memory, v.hardware.gpu
    reserved = mem.reserved_mib(gpu, v.ask.utilization)
    layers = math.ceil(shape.layers / layout.pipeline)
    kv_heads = max(1, shape.kv_heads // layout.tensor)
    lines = [
        "Memory of the fullest GPU, GiB",
        f"  card                {gpu.memory_mib / 1024:8.2f}  {gpu.title}, {gpu.memory_mib:,} MiB in nvidia-smi",
        f"  reserved            {reserved / 1024:8.2f}  {v.ask.utilization:g} × {gpu.memory_mib:,} = {reserved:,} MiB: "
        "a reservation, not a need",
        f"  granted to vLLM     {m.granted_gib:8.2f}  {v.ask.utilization:g} × {gpu.visible_gib:.2f} that CUDA gives",
        f"  - weights           {m.weights_gib:8.2f}  {shape.parameters / 1e9:.2f} B parameters in {v.precision} "
        f"over {layout.world} GPU{'s' if layout.world > 1 else ''}",
        f"  - activations       {m.activation_gib:8.2f}  a step of {gpu.batched_tokens:,} tokens",
        f"  - outside torch     {m.non_torch_gib:8.2f}",
        f"  = KV cache          {m.kv_gib:8.2f}  {m.kv_bytes_per_token / 1024:g} KiB a token = 2 × {layers} layers × "
        f"{kv_heads} KV heads × {shape.head_dim} × {shape.weight_bytes} bytes",
    ]
    if m.kv_tokens:
        held = m.sequences(v.ask.max_model_len)
        lines += [
            f"  KV tokens           {m.kv_tokens:8,}  {held:.1f} sequences of {v.ask.max_model_len:,} tokens at once",
            f"  in use when ready   {m.ready_mib / 1024:8.2f}  {m.ready_mib:,} MiB, "
            f"{m.ready_mib / gpu.memory_mib:.1%}: graphs ({m.graphs_gib:.2f}) and context come on top",
            f"  in use after load   {m.loaded_mib / 1024:8.2f}  {m.loaded_mib:,} MiB, "
            f"{m.loaded_mib / gpu.memory_mib:.1%}",
        ]
    return lines


def _speed_lines(v: FitResult) -> list[str]:
    replica, gpu = v.replica, v.hardware.gpu
    step = replica.step_ms()
    bandwidth = gpu.bandwidth_gb_s * c.BANDWIDTH_PART
    read = replica.step_bytes * v.layout.pipeline
    launch = replica.shape.layers * c.LAYER_US / 1e3
    lines = [
        "Speed of one stream (512 tokens in, 128 out)",
        f"  ceiling             {replica.ceiling:8,.0f}  tok/s = {gpu.bandwidth_gb_s:,.0f} GB/s over {read / 1e9:.2f} "
        "GB of weights a token",
        f"  expected            {replica.one_stream():8,.0f}  tok/s; a token takes {step:.2f} ms: weights "
        f"{read / 1e6 / bandwidth:.2f} (at {bandwidth / 1e3:.2f} TB/s), {replica.shape.layers} layers {launch:.2f}, "
        f"all-reduces {replica.all_reduce_ms:.2f}, hops {replica.hops_ms:.2f}",
        f"  first token         {replica.first_token_ms(512):8.0f}  ms on an idle engine",
    ]
    limit = f", one HTTP front end carries about {c.FRONT_END_TOKENS_PER_S:,.0f}: --api-server-count {v.front_ends}"
    rate = replica.served(Load(streams=256), v.front_ends)
    lines.append(f"  256 streams         {rate:8,.0f}  tok/s from one replica{limit if v.front_ends > 1 else ''}")
    return lines


def _option_lines(v: FitResult) -> list[str]:
    lines = [
        f"Ways to use {v.hardware.total} GPUs (output tok/s of all together)",
        f"  {'layout':34} {'1 stream':>9} {'64':>8} {'256':>8}  {'ms/token':>8}  of it all-reduce",
    ]
    for option in v.options:
        mark = "*" if option.layout == v.layout else " "
        name = f"{option.layout}" + (f" over {option.fabric}" if option.fabric else "")
        rates = [f"{option.rates[streams]:,.0f}" if option.fits else "-" for streams in (1, 64, 256)]
        figures = f"{rates[0]:>9} {rates[1]:>8} {rates[2]:>8}  {option.step_ms:8.2f}  {option.all_reduce_ms:.2f} ms"
        lines.append(f" {mark}{name:34} {figures}" + ("" if option.fits else "  does not fit"))
    if any(option.fabric for option in v.options):
        lines.append(
            "  Measured, 8B on two H100 at 256 streams, tok/s: two replicas 10,871, TP over NVLink 7,095, PP over TCP "
            "7,662, TP over TCP 827."
        )
    return lines


def _start_lines(v: FitResult) -> list[str]:
    warm = speed.start_s(v.shape, v.layout, cold=False)
    cold = speed.start_s(v.shape, v.layout, cold=True)
    return [
        f"Start: about {warm:.0f} s with warm caches, {cold:.0f} s with empty ones; reading the weights comes on top."
    ]


def _note_lines(v: FitResult) -> list[str]:
    return ["Notes", *(f"  {note}" for note in v.notes)] if v.notes else []


def data(v: FitResult) -> dict[str, Any]:
    """The answer for a program: plain JSON types, units in the names."""
    m, replica = v.memory, v.replica
    return {
        "ok": v.fits,
        "model": v.model.name,
        "summary": v.summary,
        "refusals": list(v.refusals),
        "notes": list(v.notes),
        "hardware": {
            "gpu": v.hardware.gpu.name,
            "gpus_per_node": v.hardware.gpus_per_node,
            "nodes": v.hardware.nodes,
            "fabric": v.hardware.network.name if v.hardware.nodes > 1 else None,
        },
        "layout": {
            "tensor_parallel_size": v.layout.tensor,
            "pipeline_parallel_size": v.layout.pipeline,
            "replicas": v.layout.replicas,
        },
        "memory": {
            "reserved_mib": mem.reserved_mib(v.hardware.gpu, v.ask.utilization),
            "granted_gib": round(m.granted_gib, 2),
            "weights_gib": round(m.weights_gib, 2),
            "activation_gib": round(m.activation_gib, 2),
            "kv_cache_gib": round(m.kv_gib, 2),
            "kv_bytes_per_token": m.kv_bytes_per_token,
            "kv_tokens": m.kv_tokens,
            "sequences_of_max_model_len": round(m.sequences(v.ask.max_model_len), 1),
            "used_when_ready_mib": m.ready_mib,
            "used_after_load_mib": m.loaded_mib,
        },
        "speed": {
            "one_stream_ceiling_tok_s": round(replica.ceiling, 1),
            "one_stream_tok_s": round(replica.one_stream(), 1),
            "token_ms": round(replica.step_ms(), 2),
            "all_reduce_ms": round(replica.all_reduce_ms, 2),
            "first_token_ms": round(replica.first_token_ms(512), 1),
            "replica_256_streams_tok_s": round(replica.served(Load(streams=256), v.front_ends)),
            "api_server_count": v.front_ends,
        },
        "start": {
            "warm_s": round(speed.start_s(v.shape, v.layout, cold=False)),
            "cold_s": round(speed.start_s(v.shape, v.layout, cold=True)),
        },
        "max_model_len": v.ask.max_model_len,
        "options": [
            {
                "layout": str(option.layout),
                "fabric": option.fabric or None,
                "fits": option.fits,
                "tok_s": {str(streams): round(rate) for streams, rate in option.rates.items()},
                "all_reduce_ms": round(option.all_reduce_ms, 2),
            }
            for option in v.options
        ],
    }
