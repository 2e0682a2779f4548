"""The tiny model: the same bytes every time, in the layout that engines expect (those of real_vllm/ load it)."""

import hashlib
import json
import struct
from pathlib import Path

from huddle import tiny_model


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "two"):
        files = sorted(tiny_model.make(tmp_path / name).iterdir())
        digests.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files})
    assert digests[0] == digests[1]
    assert set(digests[0]) == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_tensors_fill_the_file_without_gaps(tmp_path: Path) -> None:
    data = (tiny_model.make(tmp_path) / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    at = 0
    for name, tensor in header.items():
        count = 1
        for length in tensor["shape"]:
            count *= length
        assert tensor["data_offsets"] == [at, at + 2 * count], name
        at += 2 * count
    assert at == len(data) - 8 - size


def test_every_byte_is_a_token() -> None:
    vocabulary = tiny_model._tokenizer()["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(256))
    assert vocabulary["A"] == ord("A")
    assert vocabulary["Ġ"] == ord(" ")
