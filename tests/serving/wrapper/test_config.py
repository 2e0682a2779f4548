"""`/etc/huddle/wrapper.yaml`: what it may say, and one sentence with file, line and key for what it may not."""

import re
from pathlib import Path
from typing import Any

import pytest

from huddle.wrapper import runtime as runtimes
from huddle.wrapper.config import (
    ConfigError,
    KeyConfig,
    LimitsConfig,
    ModelConfig,
    ProductConfig,
    TimeoutsConfig,
    WrapperConfig,
    load,
)

MODELS = "models:\n  tiny: {}\n"


def sentences(text: str, tmp_path: Path, **overrides: Any) -> tuple[str, ...]:
    path = tmp_path / "wrapper.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(path, overrides)
    assert refused.value.exit_code == 2
    return refused.value.sentences


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "must be a mapping"),
        ("- a", 1, "must be a mapping"),
        ("a: [", 1, "is not YAML"),
        ("listen: 127.0.0.1:1\n", 1, "models: is required: What is served"),
        ("models: {}\n", 1, "models: {} must have 1 or more entries: What is served"),
        ("models:\n  tiny: {}\n  tiny: {}\n", 3, "models.tiny: given twice; the first is on line 2"),
        (MODELS + "listne: x\n", 3, "listne: is not a known key; did you mean listen? allowed: authentication,"),
        (
            "models:\n  tiny:\n    prompt: x\n",
            3,
            "models.tiny.prompt: is not a known key; did you mean prompt_id? allowed: client_system,",
        ),
        ("models:\n  tiny:\n    routes: []\n", 3, "models.tiny.routes: [] must have 1 or more entries: The engine's"),
        (
            MODELS + "products:\n  p:\n    routes: [chat, audio]\n",
            5,
            "products.p.routes[1]: 'audio' is not allowed; allowed: 'chat', 'completions', 'responses', 'embeddings'",
        ),
        (
            MODELS + "limits:\n  zzz: 1\n",
            4,
            "limits.zzz: is not a known key; allowed: body_bytes, buffered_bytes, buffered_bytes_per_caller,",
        ),
        (
            MODELS + "products:\n  p:\n    keys: [{name: a, hash: x}]\n",
            5,
            "products.p.keys[0].hash: is not a known key; allowed: name, sha256",
        ),
        (MODELS + "listen: localhost:8000\n", 3, "is not an address to listen on"),
        (MODELS + f"listen: unix:/{107 * 'x'}\n", 3, "has a path of 108 bytes; allowed: 107"),
        (MODELS + "listen: 1.2.3.4:99999\n", 3, "has no valid port"),
        (MODELS + "upstream: https://x\n", 3, "is not an engine address"),
        (MODELS + "upstream: http://x/path\n", 3, "is not an engine address"),
        (MODELS + "upstream: [http://x:1, http://x/path]\n", 3, "'http://x/path' is not an engine address"),
        (MODELS + "upstream: 5005\n", 3, "upstream: 5005 must be the address of an engine, or a list of"),
        (MODELS + "upstream: []\n", 3, "upstream: must be the address of an engine, or a list of"),
        (MODELS + "upstream: [[http://x:1]]\n", 3, "upstream: must be the address of an engine, or a list of"),
        (MODELS + "upstream: [http://x:80, http://x]\n", 3, "['http://x:80', 'http://x'] names an engine twice"),
        (MODELS + "timeouts:\n  idle_s: 0\n", 4, "timeouts.idle_s: 0 must be more than 0: Between two"),
        (MODELS + "workers: many\n", 3, "workers: 'many' must be a whole number: Processes that share the port"),
        (MODELS + "authentication: false\n", 1, "may only be false when 'listen' is a loopback address"),
        (MODELS + "products:\n  Bad Name: {}\n", 4, "products.Bad Name"),
        (MODELS + "products:\n  p:\n    models: [other]\n", 1, "products.p.models: 'other' is not one of tiny"),
        (MODELS + "products:\n  p:\n    keys: [{name: a, sha256: xyz}]\n", 5, "products.p.keys[0].sha256"),
        (MODELS + "workers: 4\nproducts:\n  p:\n    requests_per_minute: 3\n", 1, "cannot be divided among 4 workers"),
        (MODELS + "media_url_prefixes: ['https://x']\n", 3, "is not a URL prefix with a whole host"),
    ],
)
def test_problems_are_sentences(text: str, line: int, says: str, tmp_path: Path) -> None:
    found = sentences(text, tmp_path)
    assert any(f"wrapper.yaml:{line}:" in sentence and says in sentence for sentence in found), found


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    assert len(sentences(MODELS + "a: 1\nb: 2\nworkers: 0\n", tmp_path)) == 3


def test_one_key_for_two_holders(tmp_path: Path) -> None:
    key = "{name: a, sha256: '" + "0" * 64 + "'}"
    text = f"{MODELS}products:\n  p:\n    keys: [{key}]\n  q:\n    keys: [{key}]\n"
    assert "one key is given to two holders" in sentences(text, tmp_path)[0]


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "wrapper.yaml"
    path.write_text(MODELS + "listen: 127.0.0.1:1\nworkers: 2\n")
    loaded = load(path, {"listen": "127.0.0.1:2", "workers": None})
    assert (loaded.listen, loaded.workers, loaded.upstream) == ("127.0.0.1:2", 2, "http://127.0.0.1:5005")


def test_one_engine_or_several(tmp_path: Path) -> None:
    path = tmp_path / "wrapper.yaml"
    for text, addresses in (
        ("http://127.0.0.1:5005", ["http://127.0.0.1:5005"]),
        ("[http://127.0.0.1:5005, unix:/run/engine.sock]", ["http://127.0.0.1:5005", "unix:/run/engine.sock"]),
    ):
        path.write_text(f"{MODELS}upstream: {text}\n")
        assert list(map(str, load(path, {}).addresses)) == addresses


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the wrapper's configuration"):
        load(tmp_path / "none.yaml", {})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot read the system prompt 'tiny'"),
        ("  \n", "is empty"),
        (b"\xff\xfe", "not UTF-8"),
        ("x" * 300_000, "over 262144 bytes"),
    ],
)
def test_prompt_files(content: Any, says: str, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    keys = tmp_path / "keys"
    keys.write_text("key-0123456789abcdef")
    config = WrapperConfig.model_validate({"models": {"tiny": {"system_prompt_file": file}}, "backend_keys_file": keys})
    with pytest.raises(ConfigError, match=says):
        runtimes.build(config, b"")


def test_a_wrapper_that_nobody_could_call_does_not_start() -> None:
    config = WrapperConfig.model_validate({"models": {"tiny": {}}})
    with pytest.raises(ConfigError, match="nobody could call this wrapper"):
        runtimes.build(config, b"")


def test_every_key_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/wrapper.md").read_text()
    sections = (WrapperConfig, ModelConfig, ProductConfig, KeyConfig, LimitsConfig, TimeoutsConfig)
    keys = {key for section in sections for key in section.model_fields}
    said = set(re.findall(r"`(\w+)`", page)) | set(re.findall(r"[\s{](\w+):", page.split("```yaml")[1].split("```")[0]))
    assert not keys - said


def test_the_documented_example_is_valid(tmp_path: Path) -> None:
    """docs/reference/wrapper.md shows a whole file; it must load."""
    page = Path(__file__).parents[3] / "docs/reference/wrapper.md"
    example = page.read_text().partition("```yaml\n")[2].partition("```")[0]
    path = tmp_path / "wrapper.yaml"
    path.write_text(example)
    loaded = load(path, {})
    assert loaded.models
    assert loaded.products
