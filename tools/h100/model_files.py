"""Model directories of real shape and random weights: speed and memory are real, the text is not.

The tokenizer knows bytes and names every other id, so a prompt of 512 letters is about 512 tokens.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huddle import tiny_model

DATA = Path(tiny_model.__file__).parent / "data/models"
SPECIAL = ("<|begin|>", "<|end|>", "<|start|>", "<|sep|>", "<|python_tag|>")
SHARD_BYTES = 2_000_000_000
_STANDARD_DEVIATION = 0.02


def shape(name: str) -> dict[str, Any]:
    """The shape that the planner's data has for a model, by its directory's name."""
    found: dict[str, Any] = json.loads((DATA / name / "shape.json").read_text(encoding="utf-8"))
    return found


def write(store: Path, name: str, *, weights: bool) -> Path:
    """Make `store/name`: with all weights (needs torch and safetensors), or with one tensor for `--load-format dummy`,

    so that the launcher's check of the files finds one.
    """
    directory = store / name
    directory.mkdir(parents=True, exist_ok=True)
    facts = shape(name)
    end = facts["vocab_size"] - len(SPECIAL) + 1
    _json(directory / "config.json", _config(facts, end))
    _json(directory / "generation_config.json", {"bos_token_id": end - 1, "eos_token_id": end})
    _json(directory / "tokenizer.json", _tokenizer(facts["vocab_size"]))
    _json(directory / "tokenizer_config.json", _tokenizer_config(facts))
    (directory / "chat_template.jinja").write_text(tiny_model.CHAT_TEMPLATE, encoding="utf-8")
    (directory / "system_prompt.txt").write_text(_system_prompt(name), encoding="utf-8")
    if weights:
        _write_weights(directory, facts)
    else:
        _write_one_tensor(directory)
    return directory


def tensors(facts: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a Llama's weights."""
    hidden, head = facts["hidden_size"], facts["head_dim"]
    queries, keys = facts["num_attention_heads"] * head, facts["num_key_value_heads"] * head
    feed = facts["intermediate_size"]
    yield "model.embed_tokens.weight", (facts["vocab_size"], hidden)
    for layer in range(facts["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        yield f"{at}.self_attn.q_proj.weight", (queries, hidden)
        yield f"{at}.self_attn.k_proj.weight", (keys, hidden)
        yield f"{at}.self_attn.v_proj.weight", (keys, hidden)
        yield f"{at}.self_attn.o_proj.weight", (hidden, queries)
        yield f"{at}.mlp.gate_proj.weight", (feed, hidden)
        yield f"{at}.mlp.up_proj.weight", (feed, hidden)
        yield f"{at}.mlp.down_proj.weight", (hidden, feed)
        yield f"{at}.input_layernorm.weight", (hidden,)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not facts.get("tie_word_embeddings"):
        yield "lm_head.weight", (facts["vocab_size"], hidden)


def _config(facts: Mapping[str, Any], end: int) -> dict[str, Any]:
    kind = "qwen2" if facts["architectures"][0].startswith("Qwen2") else "llama"
    common = {"model_type": kind, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500_000.0}
    return {**facts, **common, "torch_dtype": "bfloat16", "bos_token_id": end - 1, "eos_token_id": end}


def _tokenizer(size: int) -> dict[str, Any]:
    """The tiny model's tokenizer with a name for every further id."""
    made = tiny_model._tokenizer()  # the same, only larger
    flags = {name: value for name, value in made["added_tokens"][0].items() if name not in {"id", "content"}}
    first_special = size - len(SPECIAL)
    made["model"]["vocab"] |= {f"Ġw{number}": number for number in range(256, first_special)}
    made["added_tokens"] = [
        {"id": first_special + place, "content": token, **flags} for place, token in enumerate(SPECIAL)
    ]
    return made


def _tokenizer_config(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": facts["max_position_embeddings"],
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "clean_up_tokenization_spaces": False,
    }


def _system_prompt(name: str) -> str:
    file = DATA / name / "system_prompt.txt"
    return file.read_text(encoding="utf-8") if file.is_file() else "Answer briefly.\n"


def _write_weights(directory: Path, facts: Mapping[str, Any]) -> None:
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415 - on the GPU machine only
    from safetensors.torch import save_file  # type: ignore[import-not-found]  # noqa: PLC0415

    torch.manual_seed(20_251)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shard: dict[str, Any] = {}
    places: dict[str, str] = {}
    held = number = 0

    def flush() -> None:
        nonlocal held, number
        name = f"model-{number:05d}.safetensors"
        save_file(shard, str(directory / name), metadata={"format": "pt"})
        places.update(dict.fromkeys(shard, name))
        shard.clear()
        held, number = 0, number + 1

    for name, size in tensors(facts):
        value = torch.ones(size, dtype=torch.bfloat16, device=device)
        if len(size) == 2:
            value.normal_(0, _STANDARD_DEVIATION)
        shard[name] = value.cpu()
        held += value.numel() * 2
        if held >= SHARD_BYTES:
            flush()
    if shard:
        flush()
    _json(directory / "model.safetensors.index.json", {"metadata": {}, "weight_map": places})


def _write_one_tensor(directory: Path) -> None:
    header = json.dumps({"nothing": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    header += b" " * (-len(header) % 8)
    (directory / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")
