"""Tuned flags are used where they were measured, and nowhere else."""

import json

import pytest
import yaml

from tests.serving.launch.test_command import huddle

FLAGS = {"max-num-batched-tokens": 16384, "kv-cache-dtype": "fp8", "api-server-count": 8, "max-num-seqs": 512}
CONDITIONS = {
    "load": "chat",
    "gpu": "h200-sxm",
    "vllm": "0.26.0",
    "tensor-parallel-size": 1,
    "pipeline-parallel-size": 1,
    "date": "2026-11-29",
    "engines": 12,
    "whole": True,
    # Of the entry below. If what is compared changes, this does, and every entry that was written becomes useless.
    "digest": "3277c6d893f4",
}
LEVEL = {"streams": 8, "tokens-per-s": 100.0, "ttft-p95-ms": 20.0, "token-p95-ms": 3.0}


@pytest.fixture
def dry(tmp_path):
    """The command for an H200 and what is said with it; the entry is tuned for what is given."""

    def run(*words, flags=FLAGS, here="h200", entry=(), **conditions) -> tuple[list[str], str]:
        where = {**CONDITIONS, **{key.replace("_", "-"): value for key, value in conditions.items()}}
        tuned = {**where, "flags": flags, "measured": {"tuned": [LEVEL], "untold": [LEVEL]}}
        own = {"model": "Qwen/Qwen2.5-7B-Instruct", "description": "own", "max-model-len": 4096, "max-num-seqs": 64}
        file = tmp_path / "models.yaml"
        file.write_text(yaml.safe_dump({"models": {"own": {**own, **dict(entry), "tuned": [tuned]}}}))
        done = huddle("launch", "own", "--dry-run", "--registry", str(file), "--gpu", here, "--json", *words)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        return document["argv"], " ".join(document["remarks"])

    return run


def given(argv: list[str], flag: str) -> str | None:
    return argv[argv.index(flag) + 1] if flag in argv else None


def test_used_where_they_were_measured(dry):
    argv, said = dry()
    assert {flag: given(argv, f"--{flag}") for flag in FLAGS} == {flag: str(value) for flag, value in FLAGS.items()}
    assert "tuned for chat on h200-sxm with vLLM 0.26.0 (2026-11-29): max-num-batched-tokens 16384, " in said
    assert dry(flags={"enable-prefix-caching": False})[0].count("--no-enable-prefix-caching") == 1
    argv, said = dry(flags={})
    assert given(argv, "--max-num-seqs") == "64" and "no flags were faster than those that are chosen untold" in said


@pytest.mark.parametrize(
    ("here", "where", "place"),
    [
        ("h100-sxm", {}, "h200-sxm with vLLM 0.26.0"),
        ("h200-sxm", {"vllm": "0.25.0"}, "h200-sxm with vLLM 0.25.0"),
        ("h200-sxm", {"tensor_parallel_size": 2}, "h200-sxm with vLLM 0.26.0 (TP 2 × PP 1)"),
    ],
)
def test_elsewhere_one_sentence_and_not_used(dry, here, where, place):
    argv, said = dry(here=here, **where)
    assert (
        f"own is tuned for chat on {place}, and here is {here} with vLLM 0.26.0: the tuned flags are not used; "
        "`huddle tune own` measures them here"
    ) in said
    assert said.count("tuned for") == 1
    assert not {"--max-num-batched-tokens", "--kv-cache-dtype"} & set(argv)
    assert given(argv, "--max-num-seqs") == "64", "the entry's own"
    assert given(argv, "--api-server-count") != "8", "the planner's"


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "float16"},
        {"quantization": "fp8"},
        {"max-model-len": 8192},
        {"gpu-memory-utilization": 0.8},
        {"extra-args": ["--enforce-eager"]},
        {"revision": "v2"},
        {"model": "Qwen/Qwen2.5-3B-Instruct", "directory": "Qwen2.5-7B-Instruct"},
        {"env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}},
        {"max-num-seqs": 32},
    ],
)
def test_beside_other_settings_one_sentence_and_not_used(dry, entry):
    argv, said = dry(entry=entry)
    assert "own is tuned for chat on h200-sxm with vLLM 0.26.0, but beside other settings than these" in said
    assert "the tuned flags are not used; `huddle tune own` measures them" in said and said.count("is tuned") == 1
    assert "--kv-cache-dtype" not in argv


def test_other_settings_of_the_command_line_count_and_names_and_places_do_not(dry):
    assert "beside other settings" in dry("--max-model-len", "2048")[1]
    assert "beside other settings" in dry("--gpu-memory-utilization", "0.7")[1]
    argv, said = dry("--port", "6000", "--workspace", "/elsewhere", "--copy", "1", entry={"description": "another"})
    assert given(argv, "--max-num-seqs") == "512" and "tuned for chat on h200-sxm" in said


def test_a_sweep_that_was_not_whole_is_told_as_such(dry):
    argv, said = dry(whole=False)
    assert "tuned so far, by 12 engines of a sweep that was not whole, for chat on h200-sxm" in said
    assert "`huddle tune own` goes on" in said and given(argv, "--max-num-seqs") == "512"
    assert "so far" not in dry()[1]


def test_what_may_change_answers_or_mislead_is_told(dry):
    assert "an fp8 KV cache may change answers" in dry()[1]
    assert "prefix caching is off, measured with prompts of one turn" in dry(flags={"enable-prefix-caching": False})[1]
    said = dry(flags={"max-num-seqs": 512, "enable-prefix-caching": True, "kv-cache-dtype": "auto"})[1]
    assert "may change" not in said and "prefix caching is off" not in said


def test_of_another_load_nothing_is_said(dry):
    argv, said = dry(load="documents")
    assert "tuned" not in said and given(argv, "--max-num-seqs") == "64"
    assert given(dry("--load", "documents", load="documents")[0], "--max-num-seqs") == "512"
    argv, said = dry("--load", "none")
    assert "tuned" not in said and given(argv, "--max-num-seqs") == "64"


def test_the_command_line_wins(dry):
    words = ("--max-num-seqs", "32", "--kv-cache-dtype", "auto", "--api-server-count", "1", "--enable-prefix-caching")
    argv, _ = dry(*words, "--max-num-batched-tokens", "4096")
    assert (given(argv, "--max-num-seqs"), given(argv, "--kv-cache-dtype")) == ("32", "auto")
    assert given(argv, "--max-num-batched-tokens") == "4096"
    assert "--api-server-count" not in argv and "--enable-prefix-caching" in argv


def test_an_engine_over_several_nodes_is_another_engine(dry):
    place = ("--nodes", "2", "--pp", "2", "--node-ip", "127.0.0.1", "--head", "127.0.0.1")
    argv, said = dry(*place, pipeline_parallel_size=2)
    assert "tuned" not in said and "--kv-cache-dtype" not in argv
