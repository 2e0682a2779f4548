"""Sentences: why a case does not fit, what would, and what is worth knowing though nothing forbids it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from huddle import gpus
from huddle.planner import memory
from huddle.planner.case import Case
from huddle.planner.compare import Option
from huddle.planner.layout import Hardware, Layout, candidates
from huddle.shapes import Weights

DEFAULT_SEQUENCES = 256
"""At once, where the registry names no number."""
ORDINARY_TOKENS = 4_096
"""Of a sequence that is not especially long: a chat with some history."""
MOST_NODES = 16  # how far the search for "the smallest that fits" goes


def memory_refusals(case: Case) -> Iterator[str]:
    """What has no room, with how much is missing."""
    ask, account, gpu, layout = case.ask, case.memory, case.hardware.gpu, case.layout
    total = case.hardware.total
    weights = memory.weight_bytes(case.shape, Layout(1, 1, 1)) / memory.GIB
    all_granted = account.granted_gib * total
    if weights > all_granted:
        yield (
            f"{case.model.name} in {case.precision} weighs {weights:,.0f} GiB, more than the {all_granted:,.0f} GiB "
            f"that {total} × {gpu.name} grant at {ask.utilization:g}"
        )
    elif account.kv_gib <= 0:
        yield (
            f"{case.model.name} in {case.precision} needs {account.weights_gib:.1f} GiB of weights and "
            f"{account.activation_gib + account.non_torch_gib:.1f} GiB of working memory on each GPU as "
            f"TP {layout.tensor} × PP {layout.pipeline}, and one {gpu.name} grants "
            f"{account.granted_gib:.1f} GiB at {ask.utilization:g}: "
            f"{-account.kv_gib:.1f} GiB are missing"
        )
    elif account.sequences(ask.max_model_len) < 1:
        longest = min(longest_sequence(case), case.shape.context)
        yield (
            f"the KV cache of {account.kv_gib:.1f} GiB holds {account.kv_tokens:,} tokens, fewer than one sequence of "
            f"max-model-len {ask.max_model_len:,}; lower it to {longest:,} at most"
        )
    if account.kv_gib > 0 and account.overrun_gib > 0:
        most = ask.utilization - account.overrun_gib / account.visible_gib
        yield (
            f"gpu-memory-utilization {ask.utilization:g} would end at {account.loaded_mib:,} MiB in use, because CUDA "
            f"graphs and the context come on top; {gpu.name} gives {account.visible_gib * 1024:,.0f} MiB, so ask for "
            f"{int(most * 100) / 100:.2f} at most"
        )
    if ask.max_model_len > case.shape.context:
        yield f"max-model-len {ask.max_model_len:,} is more than the model's own context of {case.shape.context:,}"


def longest_sequence(case: Case) -> int:
    """The longest sequence, in whole KV blocks, of which the cache holds one."""
    low, high = 0, case.ask.max_model_len // 16
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if case.memory.sequences(middle * 16) >= 1 else (low, middle - 1)
    return low * 16


def first_fit(case: Case) -> Layout | None:
    """The layout with the most replicas on which the case's model fits its hardware."""
    layouts = candidates(case.shape, case.hardware)
    return next((layout for layout in layouts if replace(case, layout=layout).holds), None)


def what_would_fit(case: Case) -> Iterator[str]:
    """The smallest growth in nodes on which some layout fits; and FP8 here, where that helps.

    Nothing where the model's own context is the limit: no hardware mends that.
    """
    if case.ask.max_model_len > case.shape.context:
        return
    if case.shape.weights is Weights.FULL:
        in_fp8 = first_fit(replace(case, shape=replace(case.shape, weights=Weights.FP8)))
        if in_fp8 and not first_fit(case):
            yield f"in FP8 (quantization: fp8) it would fit here as {in_fp8}"
    here = case.hardware
    for nodes in range(1, MOST_NODES + 1):
        grown = replace(case, hardware=Hardware(here.gpu, here.gpus_per_node, nodes, here.network))
        layout = first_fit(grown)
        if layout:
            yield f"the smallest that fits is {grown.hardware} as {layout}"
            return


def notes(case: Case, compared: Sequence[Option]) -> Iterator[str]:
    """What is worth knowing though nothing forbids it."""
    model, layout, ask, hardware = case.model, case.layout, case.ask, case.hardware
    yield from _replica_advice(case, compared)
    asked = (model.tensor_parallel_size, model.pipeline_parallel_size)
    if asked != (layout.tensor, layout.pipeline):
        yield f"the registry says TP {asked[0]} × PP {asked[1]}; this plan is TP {layout.tensor} × PP {layout.pipeline}"
    yield from _room_advice(case)
    held = case.memory.sequences(ask.max_model_len)
    if ask.max_num_seqs and held < ask.max_num_seqs:
        yield (
            f"max-num-seqs {ask.max_num_seqs} × max-model-len {ask.max_model_len:,} is more than the KV cache: "
            f"{held:.1f} full-length sequences run at once, further ones wait"
        )
    if layout.tensor > hardware.gpus_per_node and not hardware.network.rdma:
        yield (
            f"tensor parallel over {hardware.network.title} costs {case.replica.all_reduce_ms:.1f} ms on every token "
            f"({2 * case.shape.layers} all-reduces); it was insisted on with --allow-slow-fabric"
        )
    if hardware.gpu.name != "h100-sxm":
        yield f"speeds were measured on h100-sxm; those of {hardware.gpu.name} are scaled by the data sheets"
    if hardware.nodes > 1 and hardware.network.source is gpus.Source.ASSUMED:
        yield f"the speed of {hardware.network.title} is an assumption, not a measurement"
    if case.shape.experts or case.shape.sliding_layers:
        yield "mixture-of-experts and sliding-window models were not measured; their figures follow from the arithmetic"


def _room_advice(case: Case) -> Iterator[str]:
    """A card of which half would do."""
    ask, gpu = case.ask, case.hardware.gpu
    half = int(ask.utilization * 50) / 100
    account = memory.account(case.shape, case.layout, gpu, case.fabric, half)
    many, tokens = ask.max_num_seqs or DEFAULT_SEQUENCES, min(ask.max_model_len, ORDINARY_TOKENS)
    if account.sequences(ask.max_model_len) >= 1 and account.sequences(tokens) >= many:
        yield (
            f"half of each {gpu.name} would do: at --gpu-memory-utilization {half:g} the KV cache holds "
            f"{many} sequences of {tokens:,} tokens; a second model, or a smaller card, has room"
        )


def _replica_advice(case: Case, compared: Sequence[Option]) -> Iterator[str]:
    """Replicas against one wide engine, when both are possible."""
    total = case.hardware.total
    by_layout = {option.layout: option for option in compared}
    replicas = by_layout.get(Layout(1, 1, total))
    wide = by_layout.get(Layout(total, 1, 1))
    if replicas is None or wide is None or not replicas.fits:
        return
    advice = "run replicas" if replicas.rates[256] > wide.rates[256] else "tensor parallel is the faster one here"
    yield (
        f"{advice}: {total} replicas give {replicas.rates[256]:,.0f} tok/s at 256 streams and "
        f"{replicas.rates[1]:,.0f} to one; tensor parallel over {gpus.fabric(wide.fabric).title} gives "
        f"{wide.rates[256]:,.0f} and {wide.rates[1]:,.0f}, "
        f"because {2 * case.shape.layers} all-reduces cost {wide.all_reduce_ms:.1f} ms on every token and "
        f"{wide.prefill_all_reduce_ms:.0f} ms on a prompt of 512"
    )
