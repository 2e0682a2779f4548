"""A tiny Llama with random weights that real engines load: for tests and `make local`, where no weights can be had.

Made from nothing but the standard library, in about a second, the same bytes every time. Its tokenizer knows bytes and
a few special tokens, so every text has an obvious token count. It speaks nonsense.
"""

import argparse
import json
import random
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

HIDDEN: Final = 256
LAYERS: Final = 2
HEADS: Final = 4  # head size 64: vLLM's CPU kernels want 32 or more
FEED_FORWARD: Final = 512
CONTEXT: Final = 4_096
SPECIAL: Final = ("<|begin|>", "<|end|>", "<|start|>", "<|sep|>")
VOCABULARY: Final = 256 + len(SPECIAL)
_SEED: Final = 20_251

CHAT_TEMPLATE: Final = """\
{{- bos_token -}}
{%- for message in messages -%}
<|start|>{{ message['role'] }}<|sep|>
{%- if message['content'] is string -%}
{{ message['content'] }}
{%- else -%}
{%- for part in message['content'] or [] -%}{{ part['text'] }}{%- endfor -%}
{%- endif -%}
<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant<|sep|>{%- endif -%}
"""


def make(directory: Path) -> Path:
    """Write the model's files into `directory` (made when missing) and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "config.json", _config())
    _write(directory / "generation_config.json", {"bos_token_id": 256, "eos_token_id": 257})
    _write(directory / "tokenizer.json", _tokenizer())
    _write(directory / "tokenizer_config.json", _tokenizer_config())
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    (directory / "model.safetensors").write_bytes(_weights())
    return directory


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def _config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HIDDEN // HEADS,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY,
        "bos_token_id": 256,
        "eos_token_id": 257,
    }


def _byte_names() -> list[str]:
    """The printable stand-ins that byte-level tokenizers use for the 256 bytes (GPT-2's table)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = (byte for byte in range(256) if byte not in printable)
    names = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [names[byte] for byte in range(256)]


def _tokenizer() -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 256 + i, "content": token, **flags} for i, token in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {name: byte for byte, name in enumerate(_byte_names())},
            "merges": [],
        },
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "clean_up_tokenization_spaces": False,
    }


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield f"model.layers.{layer}.self_attn.{name}.weight", (HIDDEN, HIDDEN)
        for name in ("gate_proj", "up_proj"):
            yield f"model.layers.{layer}.mlp.{name}.weight", (FEED_FORWARD, HIDDEN)
        yield f"model.layers.{layer}.mlp.down_proj.weight", (HIDDEN, FEED_FORWARD)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"model.layers.{layer}.{name}.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def _weights() -> bytes:
    """A safetensors file: the length of a JSON header, the header, the tensors in bfloat16."""
    chance = random.Random(_SEED)  # noqa: S311 - weights, not secrets
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    tensors = bytearray()
    for name, shape in _shapes():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = [1.0] * count if len(shape) == 1 else [chance.gauss(0, 0.04) for _ in range(count)]
        data = _bfloat16(values)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(tensors), len(tensors) + len(data)]}
        tensors += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(tensors)


def _bfloat16(values: list[float]) -> bytes:
    """The upper halves of little-endian 32-bit floats."""
    floats = array("f", values)
    if struct.pack("=H", 1) != struct.pack("<H", 1):
        floats.byteswap()
    whole = floats.tobytes()
    halves = bytearray(len(whole) // 2)
    halves[0::2], halves[1::2] = whole[2::4], whole[3::4]
    return bytes(halves)


def main() -> None:
    """Run the command line: `python -m huddle.tiny_model DIRECTORY`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    make(parser.parse_args().directory)


if __name__ == "__main__":
    main()
