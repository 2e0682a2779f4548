"""Bytes: weights, KV cache, activations and graphs of one GPU, as vLLM accounts for them."""

import math
from dataclasses import dataclass

from huddle.gpus import MIB_PER_GIB, Fabric, Gpu
from huddle.planner import calibration as c
from huddle.planner.layout import Layout
from huddle.shapes import Shape

GIB = 1024**3


@dataclass(frozen=True)
class Memory:
    """The account of the fullest GPU. GiB, except where the name says otherwise."""

    granted_gib: float  # --gpu-memory-utilization of what CUDA gives
    weights_gib: float
    activation_gib: float
    non_torch_gib: float
    kv_gib: float  # negative: so much is missing
    graphs_gib: float
    outside_gib: float
    after_load_gib: float
    kv_bytes_per_token: int
    kv_tokens: int
    window_kv_bytes: int  # what the sliding-window layers of one sequence hold at most
    full_kv_bytes_per_token: int
    visible_gib: float

    @property
    def ready_mib(self) -> int:
        """nvidia-smi's memory.used when the server answers, MiB."""
        used = self.weights_gib + max(self.kv_gib, 0) + self.graphs_gib + self.outside_gib
        return round(used * MIB_PER_GIB)

    @property
    def loaded_mib(self) -> int:
        """nvidia-smi's memory.used after load, MiB."""
        return self.ready_mib + round(self.after_load_gib * MIB_PER_GIB)

    @property
    def overrun_gib(self) -> float:
        """How far the server would grow beyond what CUDA gives; 0 when it does not."""
        return max(0.0, self.loaded_mib / MIB_PER_GIB - self.visible_gib)

    def sequences(self, length: int) -> float:
        """How many sequences of this many tokens the KV cache holds at once."""
        each = self.full_kv_bytes_per_token * length + min(
            self.window_kv_bytes, (self.kv_bytes_per_token - self.full_kv_bytes_per_token) * length
        )
        return max(self.kv_gib, 0.0) * GIB / each if each else math.inf


def reserved_mib(gpu: Gpu, utilization: float) -> int:
    """The part of the card that nvidia-smi shows as spoken for: 0.9 of a 95,830 MiB card is 86,247 MiB."""
    return round(gpu.memory_mib * utilization)


def weight_bytes(shape: Shape, layout: Layout) -> float:
    """Bytes of weights on the fullest GPU of a replica."""
    layers = math.ceil(shape.layers / layout.pipeline)
    kv_copies = max(1, layout.tensor // shape.kv_heads) if layout.tensor > shape.kv_heads else 1
    attention = shape.hidden * shape.head_dim * 2 * (shape.heads + shape.kv_heads * kv_copies)
    sharded = layers * (attention * shape.attention_bytes + shape.mlp * shape.linear_bytes)
    ends = 1 if shape.tied or layout.pipeline > 1 else 2  # the first stage holds the embedding, the last the head
    sharded += ends * shape.embedding * shape.weight_bytes
    return sharded / layout.tensor + layers * shape.small * shape.weight_bytes


def kv_bytes_per_token(shape: Shape, layout: Layout, layers: int | None = None) -> int:
    """Bytes that one token takes in the KV cache of one GPU; KV heads are copied when TP exceeds them."""
    layers = math.ceil((shape.layers if layers is None else layers) / layout.pipeline)
    heads = max(1, shape.kv_heads // layout.tensor)
    return 2 * layers * heads * shape.head_dim * shape.weight_bytes


def account(shape: Shape, layout: Layout, gpu: Gpu, fabric: Fabric, utilization: float) -> Memory:
    """Fill in the account of the fullest GPU."""
    layers = math.ceil(shape.layers / layout.pipeline)
    width = shape.expert_intermediate * shape.experts_per_token or shape.intermediate
    step = gpu.batched_tokens * shape.weight_bytes * (3 * width / layout.tensor + 2 * shape.hidden) / GIB
    nccl = layout.tensor > 1 and fabric.name != "nvlink"
    graphs = c.GRAPH_BASE_GIB + c.GRAPH_GIB_PER_LAYER_AND_HIDDEN * layers * shape.hidden / layout.tensor
    outside = c.OUTSIDE_GIB
    if layout.tensor > 1:
        outside += c.OUTSIDE_NCCL_GIB if nccl else c.OUTSIDE_TENSOR_PARALLEL_GIB
    granted = gpu.visible_gib * utilization
    weights = weight_bytes(shape, layout) / GIB + c.LOAD_SLACK_GIB
    activation = step + c.ACTIVATION_BASE_GIB
    non_torch = c.NON_TORCH_ONE_GPU_GIB if layout.world == 1 else c.NON_TORCH_PARALLEL_GIB
    kv = granted - weights - activation - non_torch
    per_token = kv_bytes_per_token(shape, layout)
    full = kv_bytes_per_token(shape, layout, shape.layers - shape.sliding_layers)
    blocks = int(max(kv, 0) * GIB / (per_token * c.KV_BLOCK_TOKENS))
    return Memory(
        granted_gib=granted,
        weights_gib=weights,
        activation_gib=activation,
        non_torch_gib=non_torch,
        kv_gib=kv,
        graphs_gib=graphs + (c.GRAPH_NCCL_GIB if nccl else 0),
        outside_gib=outside,
        after_load_gib=c.AFTER_LOAD_GIB if layout.tensor == 1 else 0.0,
        kv_bytes_per_token=per_token,
        kv_tokens=blocks * c.KV_BLOCK_TOKENS,
        window_kv_bytes=(per_token - full) * (shape.sliding_window + gpu.batched_tokens),
        full_kv_bytes_per_token=full,
        visible_gib=gpu.visible_gib,
    )
