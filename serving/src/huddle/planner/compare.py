"""The same GPUs used in different ways, side by side: what replicas, tensor and pipeline parallel would each give."""

from dataclasses import dataclass, replace

from huddle.planner.case import Case
from huddle.planner.layout import Layout, refusals
from huddle.planner.speed import Load

STREAMS = (1, 64, 256)  # where the table is read: one user, a busy node, saturation


@dataclass(frozen=True)
class Option:
    """One way to use all the GPUs. Rates are output tokens per second of all replicas together, 512 in / 128 out."""

    layout: Layout
    fabric: str  # of the tensor-parallel group; "" when there is none
    fits: bool
    rates: dict[int, float]
    step_ms: float
    all_reduce_ms: float
    prefill_all_reduce_ms: float  # of a prompt of 512 tokens


def options(case: Case) -> tuple[Option, ...]:
    """The chosen layout, and the plain alternatives over all GPUs: replicas of one, all tensor, all pipeline."""
    hardware = case.hardware
    layouts = (
        case.layout,
        Layout(1, 1, hardware.total),
        Layout(hardware.total, 1, 1),
        Layout(1, hardware.total, 1),
        Layout(hardware.gpus_per_node, hardware.nodes, 1),
    )
    possible = (
        layout
        for layout in dict.fromkeys(layouts)
        if not any(refusals(case.shape, layout, hardware, allow_slow_fabric=True))
    )
    return tuple(_option(replace(case, layout=layout)) for layout in possible)


def _option(case: Case) -> Option:
    replica = case.replica
    return Option(
        layout=case.layout,
        fabric=case.fabric.name if case.layout.tensor > 1 else "",
        fits=case.holds,
        rates={streams: _rate(case, streams) for streams in STREAMS},
        step_ms=replica.step_ms(),
        all_reduce_ms=replica.all_reduce_ms,
        prefill_all_reduce_ms=replica.all_reduces_ms(512),
    )


def _rate(case: Case, streams: int) -> float:
    """All replicas' rate when the streams are spread over them; fewer streams than replicas leave some idle."""
    busy = min(case.layout.replicas, streams)
    return busy * case.replica.served(Load(streams=max(1, streams // busy)), case.front_ends)
