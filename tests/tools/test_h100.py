"""What can be checked of the GPU measurements without a GPU."""

import json
import math
import struct

from huddle import shapes, tiny_model
from huddle.headers import OVERHEAD_HEADER
from huddle.launch.drain import requests
from huddle.registry import files
from huddle.registry import load as load_registry
from tools.h100 import fatbin, load, model_files
from tools.h100.load import Sample


def container(*entries: tuple[int, int, bytes]) -> bytes:
    """A fat binary of (kind, architecture, payload)."""
    body = b"".join(
        struct.pack("<HHIQIIHHI", kind, 1, 64, len(payload), 0, 0, 0, 0, architecture).ljust(64, b"\1") + payload
        for kind, architecture, payload in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_only_the_code_of_one_architecture_stays():
    library = b"ELF" + container((2, 80, b"old!" * 4), (2, 90, b"hopper!!"), (1, 80, b"ptx.")) + b"host code"
    library += container((2, 100, b"blackwell"))
    kept = fatbin.keep(library, 90)
    assert len(kept) == len(library)
    assert b"hopper!!" in kept
    assert b"host code" in kept
    assert not any(word in kept for word in (b"old!", b"ptx.", b"blackwell"))
    assert [entry.architecture for entry in fatbin.entries(kept)] == [80, 90, 80, 100]


def test_the_generated_model_has_the_size_that_the_planner_counts():
    facts = model_files.shape("Llama-3.2-3B-Instruct")
    parameters = sum(math.prod(size) for _, size in model_files.tensors(facts))
    model = load_registry().models["llama-3.2-3b"]
    assert parameters == shapes.for_model(model).parameters


def test_the_launcher_takes_the_generated_files(tmp_path):
    directory = model_files.write(tmp_path, "Qwen2.5-7B-Instruct", weights=False)
    files.check(directory)
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    ids = [*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])]
    assert sorted(ids) == list(range(152_064))
    assert all(token in tiny_model.CHAT_TEMPLATE for token in ("<|start|>", "<|sep|>"))


def test_an_answer_of_the_wrong_length_is_an_error_and_counts_for_nothing():
    head = f"HTTP/1.1 200 OK\r\n{OVERHEAD_HEADER}: 0.2\r\n".encode()
    good = Sample(began=10.0, first=10.5, ended=12.5, tokens=101, events=103, head=head)
    found = load.summary([good, good, Sample(began=10.0, ended=11.0, error="0 tokens")])
    assert (found["requests"], found["errors"], found["output_tokens_per_s"]) == (2, 1, 80.8)
    assert (found["ttft_p50_ms"], found["tpot_p50_ms"], found["overhead_p50_ms"]) == (500.0, 20.0, 0.2)


def test_running_and_waiting_requests_are_added_over_labels():
    text = (
        "# HELP vllm:num_requests_running x\n"
        'vllm:num_requests_running{engine="0",model_name="a b"} 3.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="a b"} 2.0\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="x"} 2.0\n'
    )
    assert requests(text) == 5
