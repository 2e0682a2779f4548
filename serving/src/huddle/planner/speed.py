"""Seconds: a decode step, the first token, one stream, many streams, the start of a server."""

from dataclasses import dataclass

from huddle.gpus import Fabric, Gpu
from huddle.planner import calibration as c
from huddle.planner.layout import Layout
from huddle.planner.memory import kv_bytes_per_token
from huddle.shapes import Shape, Weights


@dataclass(frozen=True)
class Load:
    """Requests of one length, `streams` of them at a time: the load that the calibration used."""

    streams: int = 1
    prompt_tokens: int = 512
    output_tokens: int = 128


@dataclass(frozen=True)
class Replica:
    """One replica on given hardware."""

    shape: Shape
    layout: Layout
    gpu: Gpu
    fabric: Fabric  # of the tensor-parallel group

    @property
    def step_bytes(self) -> float:
        """Weight bytes that one GPU of one stage reads in a decode step of one sequence (experts: the active ones)."""
        shape, layout = self.shape, self.layout
        layers = shape.layers / layout.pipeline
        inner = shape.attention * shape.attention_bytes + shape.mlp_active * shape.linear_bytes
        head = shape.embedding * shape.weight_bytes / layout.pipeline  # averaged over the stages
        return (layers * inner + head) / layout.tensor + layers * shape.small * shape.weight_bytes

    @property
    def ceiling(self) -> float:
        """Tokens per second of one stream if reading the weights at the data sheet's bandwidth were all."""
        return float(self.gpu.bandwidth_gb_s * 1e9 / (self.step_bytes * self.layout.pipeline))

    def _bytes_ms(self, size: float) -> float:
        return size / (self.gpu.bandwidth_gb_s * 1e9 * c.BANDWIDTH_PART) * 1e3

    def all_reduces_ms(self, tokens: float) -> float:
        """All-reduces of one pass of `tokens` tokens: after attention and after the MLP of each layer."""
        if self.layout.tensor == 1:
            return 0.0
        size = tokens * self.shape.hidden * self.shape.weight_bytes
        return 2 * self.shape.layers * self.fabric.all_reduce_us(size, self.layout.tensor) / 1e3

    def _experts_touched(self, streams: float) -> float:
        """How many times the active experts of one token a batch reads: experts overlap as the batch grows."""
        shape = self.shape
        if not shape.experts:
            return 1.0
        part = shape.experts_per_token / shape.experts
        return float((1 - (1 - part) ** streams) / part)

    @property
    def all_reduce_ms(self) -> float:
        """All-reduces of one decode step of one stream."""
        return self.all_reduces_ms(1)

    @property
    def hops_ms(self) -> float:
        """Milliseconds for the hand-overs between pipeline stages, for each token."""
        return (self.layout.pipeline - 1) * c.PIPELINE_HOP_US / 1e3

    def step_ms(self, streams: float = 1, context: int = 0) -> float:
        """One decode step of a batch through all stages, with `context` tokens in each sequence's cache."""
        shape, layout = self.shape, self.layout
        expert_bytes = shape.layers * shape.mlp_active * shape.linear_bytes / layout.tensor if shape.experts else 0.0
        read = self.step_bytes * layout.pipeline + expert_bytes * (self._experts_touched(streams) - 1)
        cache = kv_bytes_per_token(shape, layout) * layout.pipeline * context * streams
        launch = shape.layers * c.LAYER_US / 1e3
        return self._bytes_ms(read + cache) + launch + self.all_reduces_ms(streams) + self.hops_ms

    def prefill_ms(self, tokens: int, passes_of: int | None = None) -> float:
        """Compute and all-reduces of `tokens` prompt tokens, when they travel in passes of `passes_of` tokens."""
        passes_of = passes_of or tokens
        fp8 = self.shape.weights is Weights.FP8
        tflops = self.gpu.bf16_tflops * (c.COMPUTE_PART_FP8 if fp8 else c.COMPUTE_PART)
        compute = 2 * self.shape.active_parameters * tokens / (tflops * 1e12 * self.layout.tensor) * 1e3
        return compute + self.all_reduces_ms(passes_of) * tokens / passes_of

    def first_token_ms(self, prompt_tokens: int) -> float:
        """Time to first token on an idle engine."""
        return c.FIRST_TOKEN_BASE_MS + self.prefill_ms(prompt_tokens) + self.hops_ms

    def one_stream(self, load: Load | None = None) -> float:
        """Output tokens per second that one user sees alone, first token included."""
        load = load or Load()
        total = self.first_token_ms(load.prompt_tokens) + (load.output_tokens - 1) * self.step_ms()
        return load.output_tokens / total * 1e3

    def throughput(self, load: Load) -> float:
        """Output tokens per second of one replica under a steady load, before the HTTP front end's limit."""
        if load.streams <= 1:
            return self.one_stream(load)
        pipeline = self.layout.pipeline
        # With stages, as many batches travel at once as there are stages, each of a part of the streams.
        batch = load.streams / pipeline
        context = load.prompt_tokens + load.output_tokens // 2
        passes_of = min(self.gpu.batched_tokens, load.prompt_tokens * load.streams)
        prefill = self.prefill_ms(load.prompt_tokens, passes_of) * batch / load.output_tokens
        step = self.step_ms(batch, context) + c.SEQUENCE_US / 1e3 * batch + prefill
        rate = batch / step * pipeline * 1e3
        return rate * c.PIPELINE_BUBBLE if pipeline > 1 else rate

    def served(self, load: Load, front_ends: int = 1) -> float:
        """`throughput` as clients see it: a front end that nears its limit already delays the engine's loop."""
        rate, limit = self.throughput(load), c.FRONT_END_TOKENS_PER_S * front_ends
        return float(rate / (1 + (rate / limit) ** c.FRONT_END_KNEE) ** (1 / c.FRONT_END_KNEE))


def front_ends(replica: Replica, max_num_seqs: int | None = None) -> int:
    """How many API server processes the engine needs, so that HTTP does not hold it back at 256 streams."""
    fast = replica.throughput(Load(streams=min(256, max_num_seqs or 256))) > c.FRONT_END_TOKENS_PER_S
    return c.FRONT_ENDS_WHEN_FAST if fast else 1


def start_s(
    shape: Shape, layout: Layout, *, cold: bool, read_gb_per_s: float | None = None, weights_gb: float = 0
) -> float:
    """Seconds from process start to the first answer. `cold`: empty compile, Triton and model-inspection caches.

    `read_gb_per_s` adds reading `weights_gb` (10^9 bytes of one node); the calibration ran with generated weights.
    """
    parallel = layout.world > 1
    layers = shape.layers / layout.pipeline
    total = c.IMPORT_S * (3 if parallel else 2) + c.DEVICE_S + c.API_S + c.PROFILE_S
    total += c.GRAPH_S_PER_LAYER * layers
    total += c.PROFILE_PARALLEL_S if parallel else 0
    total += c.GRAPH_TENSOR_PARALLEL_S if layout.tensor > 1 else 0
    if cold:
        total += c.INSPECT_MODEL_S + c.COMPILE_BASE_S + max(0.0, layers - 32) * c.COMPILE_PER_LAYER_ABOVE_32_S
        total += c.FIRST_KERNELS_S + (c.FIRST_KERNELS_PARALLEL_S if parallel else 0)
    else:
        total += c.COMPILE_WARM_S + c.FIRST_KERNELS_WARM_S
    return total + (weights_gb / read_gb_per_s if read_gb_per_s else 0.0)
