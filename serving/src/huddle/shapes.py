"""The numbers of a model that decide its memory and speed: from a `config.json`, or bundled for the shipped models.

Decoder-only transformers with grouped attention and gated MLPs are counted; that is every architecture in the registry.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from pathlib import Path
from typing import Any

from huddle.errors import InputError
from huddle.findings import written
from huddle.registry import Model

_BUNDLED = Path(__file__).parent / "data" / "models"


class ShapeError(InputError):
    """The shape of a model cannot be known."""


@verify(UNIQUE)
class Weights(StrEnum):
    """How the weights of the linear layers are stored; embeddings, norms and biases stay in 16 bits."""

    FULL = "full"  # in the model's dtype
    FP8 = "fp8"
    MXFP4 = "mxfp4"
    INT4 = "int4"


# Bytes of one linear-layer weight. MXFP4: 4 bits, and one 8-bit scale shared by 32 weights. 4-bit AWQ and GPTQ: one
# 16-bit scale and one 4-bit zero point for 128 weights.
BYTES_PER_WEIGHT = {Weights.FP8: 1.0, Weights.MXFP4: (4 + 8 / 32) / 8, Weights.INT4: (4 + 20 / 128) / 8}

_QUANTISED = {
    "fp8": Weights.FP8,
    "mxfp4": Weights.MXFP4,
    "awq": Weights.INT4,
    "awq_marlin": Weights.INT4,
    "gptq": Weights.INT4,
    "gptq_marlin": Weights.INT4,
    "bitsandbytes": Weights.INT4,
}


@dataclass(frozen=True)
class Shape:
    """A model's shape. Counts are per layer unless named otherwise; `weight_bytes` is of an unquantised weight."""

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    context: int
    tied: bool
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    sliding_window: int = 0
    sliding_layers: int = 0
    weight_bytes: int = 2
    weights: Weights = Weights.FULL
    origin: str = ""

    @property
    def attention(self) -> int:
        """Weights of the four attention projections of a layer."""
        return self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)

    @property
    def mlp(self) -> int:
        """Weights of a layer's MLP, all experts together."""
        if self.experts:
            return self.experts * 3 * self.hidden * self.expert_intermediate
        return 3 * self.hidden * self.intermediate

    @property
    def mlp_active(self) -> int:
        """Weights of a layer's MLP that one token uses."""
        return self.experts_per_token * 3 * self.hidden * self.expert_intermediate if self.experts else self.mlp

    @property
    def small(self) -> int:
        """Norms, biases and routers of a layer."""
        count = 2 * self.hidden + self.hidden * self.experts
        if self.architecture.startswith("Qwen2"):
            count += (self.heads + 2 * self.kv_heads) * self.head_dim
        if self.architecture.startswith("Qwen3"):
            count += 2 * self.head_dim
        if self.architecture.startswith("GptOss"):
            count += (self.heads + 2 * self.kv_heads) * self.head_dim + self.hidden + self.heads
            count += self.experts * (1 + 2 * self.expert_intermediate + self.hidden)
        return count

    @property
    def embedding(self) -> int:
        """Weights of the input embedding; the output head has as many unless it is tied."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All weights of the model."""
        heads = self.embedding if self.tied else 2 * self.embedding
        return heads + self.hidden + self.layers * (self.attention + self.mlp + self.small)

    @property
    def active_parameters(self) -> int:
        """Weights that a token multiplies with: all layers, the active experts and the output head."""
        return self.embedding + self.layers * (self.attention + self.mlp_active + self.small)

    @property
    def linear_bytes(self) -> float:
        """Bytes of one MLP weight."""
        return BYTES_PER_WEIGHT.get(self.weights, float(self.weight_bytes))

    @property
    def attention_bytes(self) -> float:
        """Bytes of one attention weight: MXFP4 checkpoints leave attention in 16 bits."""
        return float(self.weight_bytes) if self.weights is Weights.MXFP4 else self.linear_bytes


def for_model(model: Model, stores: Sequence[Path] = ()) -> Shape:
    """The shape of a registry entry: from `config.json` in the first store that has it, else the bundled numbers.

    Raises:
        ShapeError: when neither is there, or the file does not say what is needed.
    """
    for store in stores:
        config = store / model.store_directory / "config.json"
        if config.exists():
            return _adapt(read(config), model)
    bundled = _BUNDLED / model.store_directory / "shape.json"
    if bundled.exists():
        return _adapt(read(bundled), model)
    looked = [str(store / model.store_directory / "config.json") for store in stores]
    raise ShapeError(
        f"the shape of {model.name!r} is not known: looked for {', '.join([str(bundled), *looked])}; "
        "put the numbers of the model's config.json there"
    )


def read(path: Path) -> Shape:
    """Read a shape from a file in the format of Hugging Face's `config.json`.

    Raises:
        ShapeError: when it is not JSON or lacks a key.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ShapeError(f"{path}: not a readable JSON file ({reason})") from error
    if not isinstance(config, dict):
        raise ShapeError(f"{path}: must be a JSON object")
    return parse(config, origin=str(path))


def parse(config: Mapping[str, Any], origin: str = "config.json") -> Shape:
    """Make a shape of a `config.json`'s content. Nested `text_config` (multimodal models) is followed.

    Raises:
        ShapeError: naming the missing or wrong key.
    """
    text = config.get("text_config")
    values = {**config, **text} if isinstance(text, Mapping) else dict(config)

    def number(*keys: str, default: int | None = None, least: int = 1) -> int:
        for key in keys:
            value = values.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value >= least:
                return value
            if value is not None:
                raise ShapeError(f"{origin}: {key} must be a whole number of {least} or more, got {written(value)}")
        if default is None:
            raise ShapeError(f"{origin}: {keys[0]} is missing; not a decoder-only transformer this planner can count")
        return default

    heads = number("num_attention_heads")
    hidden = number("hidden_size")
    intermediate = number("intermediate_size")
    experts = number("num_local_experts", "num_experts", "n_routed_experts", default=0, least=0)
    kv_heads = number("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise ShapeError(f"{origin}: num_key_value_heads {kv_heads} does not divide num_attention_heads {heads}")
    quantised = values.get("quantization_config") or {}
    method = str(quantised.get("quant_method", "")) if isinstance(quantised, Mapping) else ""
    return Shape(
        architecture=str((config.get("architectures") or ["unknown"])[0]),
        hidden=hidden,
        layers=number("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=number("head_dim", default=hidden // heads),
        intermediate=intermediate,
        vocab=number("vocab_size"),
        context=number("max_position_embeddings"),
        tied=values.get("tie_word_embeddings") is True,
        experts=experts,
        experts_per_token=number("num_experts_per_tok", default=0, least=0),
        expert_intermediate=number("moe_intermediate_size", default=intermediate) if experts else 0,
        sliding_window=number("sliding_window", default=0, least=0) if values.get("use_sliding_window", True) else 0,
        sliding_layers=_sliding_layers(values),
        weight_bytes=4 if str(values.get("dtype", values.get("torch_dtype", ""))) == "float32" else 2,
        weights=_QUANTISED.get(method, Weights.FULL),
        origin=origin,
    )


def _sliding_layers(values: Mapping[str, Any]) -> int:
    """How many layers see a window only: bundled shapes say the number, a config.json lists the kind of each layer."""
    if isinstance(values.get("sliding_layers"), int):
        return int(values["sliding_layers"])
    kinds = values.get("layer_types") or []
    return sum(1 for kind in kinds if kind == "sliding_attention")


def _adapt(shape: Shape, model: Model) -> Shape:
    """What the registry entry changes: its quantisation, and 32-bit weights when it asks for them."""
    changes: dict[str, Any] = {}
    if model.quantization is not None:
        if model.quantization not in _QUANTISED:
            raise ShapeError(
                f"{model.name}: the size of {model.quantization} weights cannot be told from the shape; "
                "leave 'quantization' out (vLLM reads it from config.json) and put the model's files in a store"
            )
        changes["weights"] = _QUANTISED[model.quantization]
    if model.dtype in {"float", "float32"}:
        changes["weight_bytes"] = 4
    elif model.dtype != "auto":
        changes["weight_bytes"] = 2
    return Shape(**{**shape.__dict__, **changes})
