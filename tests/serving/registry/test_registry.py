"""The registry: what is shipped is sound, and everything wrong is answered by file, line, key and what is allowed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from huddle import engine, registry, shapes, versions
from huddle.registry import RegistryError, UnknownModelError, reserved
from huddle.registry.prompts import read_model_info, read_system_prompt
from tools.deadlines import scaled

GOOD = """\
models:
  base:
    model: org/Base-Model
    description: a model
aliases:
  other:
    base: base
    directory: org/other
    description: an alias
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "models.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def sentences(tmp_path: Path, text: str) -> list[str]:
    path = write(tmp_path, text)
    with pytest.raises(RegistryError) as caught:
        registry.load(path)
    return [sentence.removeprefix(str(path)) for sentence in caught.value.sentences]


def huddle(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from huddle.cli import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=scaled(60), check=False)


class TestShipped:
    known = registry.load()

    def test_the_seeds_models_are_there_with_the_seeds_values(self):
        small = self.known.models["llama-3.2-3b"]
        assert small.model == "meta-llama/Llama-3.2-3B-Instruct"
        assert (small.max_model_len, small.gpu_memory_utilization) == (4096, 0.9)
        assert small.chat_template == "chat_template.jinja"
        light = self.known.models["gpt-oss-20b"]
        assert light.model_dump(include={"model", "dtype", "tensor_parallel_size", "gpu_memory_utilization"}) == {
            "model": "openai/gpt-oss-20b",
            "dtype": "bfloat16",
            "tensor_parallel_size": 2,
            "gpu_memory_utilization": 0.35,
        }
        assert (light.max_num_seqs, light.max_model_len, light.description) == (8, 131072, "Lightweight")

    def test_common_sizes_of_four_families(self):
        repositories = {model.model.partition("/")[0] for model in self.known.models.values()}
        assert repositories == {"meta-llama", "openai", "Qwen", "mistralai"}
        assert {"llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b"} <= set(self.known.models)

    def test_no_entry_trusts_remote_code(self):
        assert not any(model.trust_remote_code for model in self.known.models.values())

    def test_hl_is_an_alias_with_its_own_prompt_and_card(self):
        served = self.known.resolve("hl")
        assert served.model.name == "llama-3.2-3b"
        assert served.entry.store_directory == "huddle-ai/language/hl"
        own = read_system_prompt(self.known, served)
        base = read_system_prompt(self.known, self.known.resolve("llama-3.2-3b"))
        assert own and base and own.text != base.text
        card = read_model_info(self.known, served)
        assert card and card["id"] == "hl"

    @pytest.mark.parametrize("version", versions.load().cpu_engines)
    def test_extra_args_exist_in_the_pinned_engines(self, version):
        interface = engine.interface(version)
        assert interface is not None
        objections = {m.name: list(interface.objections(m.extra_args)) for m in self.known.models.values()}
        assert {name: found for name, found in objections.items() if found} == {}

    @pytest.mark.parametrize("version", versions.load().cpu_engines)
    def test_vocabularies_are_the_engines_own(self, version):
        interface = engine.interface(version)
        assert interface is not None
        assert set(registry.Dtype) == set(interface.flags["--dtype"] or ())
        assert set(registry.Quantization) <= interface.quantizations

    @pytest.mark.parametrize(
        ("name", "parameters"),
        [  # as published with each model
            ("llama-3.2-3b", 3_212_749_824),
            ("llama-3.1-8b", 8_030_261_248),
            ("llama-3.1-70b", 70_553_706_496),
            ("llama-3.1-405b", 405_853_388_800),
            ("gpt-oss-20b", 20_914_757_184),
            ("gpt-oss-120b", 116_829_156_672),
            ("qwen2.5-0.5b", 494_032_768),
            ("qwen2.5-7b", 7_615_616_512),
            ("qwen2.5-14b", 14_770_033_664),
            ("qwen2.5-32b", 32_763_876_352),
            ("qwen2.5-72b", 72_706_203_648),
            ("qwen3-8b", 8_190_735_360),
            ("qwen3-32b", 32_762_123_264),
            ("qwen3-30b-a3b", 30_532_122_624),
            ("mistral-7b", 7_248_023_552),
            ("mistral-small-24b", 23_572_403_200),
            ("mixtral-8x7b", 46_702_792_704),
        ],
    )
    def test_bundled_shapes_give_the_published_number_of_parameters(self, name, parameters):
        assert shapes.for_model(self.known.models[name]).parameters == parameters

    def test_every_entry_has_a_shape(self):
        assert all(shapes.for_model(model).layers for model in self.known.models.values())


class TestResolve:
    known = registry.load()

    @pytest.mark.parametrize(
        "name", ["llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instruct", "LLAMA-3.1-8B"]
    )
    def test_by_name_repository_or_directory(self, name):
        assert self.known.resolve(name).model.name == "llama-3.1-8b"

    def test_an_unknown_name_gets_the_nearest(self):
        with pytest.raises(UnknownModelError, match=r"no model or alias 'lama-3.1-8'.*did you mean 'llama-3.1-8b'"):
            self.known.resolve("lama-3.1-8")

    def test_an_engine_answers_to_its_base_and_its_aliases(self):
        assert self.known.served_names("hl") == ("hl", "llama-3.2-3b")
        assert self.known.served_names("llama-3.2-3b") == ("llama-3.2-3b", "hl")
        assert self.known.served_names("qwen3-8b") == ("qwen3-8b",)


class TestBadInput:
    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            (
                "description: a model",
                "description: a model\n    tensor-paralel-size: 2",
                ":5: models.base.tensor-paralel-size: is not a known key; did you mean tensor-parallel-size? allowed:",
            ),
            (
                "description: a model",
                "description: a model\n    tensor-parallel-size: two",
                ":5: models.base.tensor-parallel-size: must be a whole number from 1 to 64, got 'two' (text)",
            ),
            (
                "description: a model",
                "description: a model\n    tensor-parallel-size: true",
                ":5: models.base.tensor-parallel-size: must be a whole number from 1 to 64, got true (true/false)",
            ),
            (
                "description: a model",
                "description: a model\n    dtype: bf16",
                ":5: models.base.dtype: must be one of auto, bfloat16, float16, half, float, float32, got 'bf16'",
            ),
            (
                "description: a model",
                "description: a model\n    trust-remote-code: 'yes'",
                ":5: models.base.trust-remote-code: must be true or false, got 'yes' (text)",
            ),
            (
                "description: a model",
                "description: a model\n    model: org/Again",
                ":5: models.base.model: given twice; the first is on line 3, keep one",
            ),
            ("    model: org/Base-Model\n", "", ":2: models.base.model: is required: a Hugging Face repository id"),
            ("base: base", "base: bass", ":7: aliases.other.base: no model 'bass'; did you mean 'base'?"),
            (
                "aliases:",
                "aliasses:",
                ":5: aliasses: is not a known key; did you mean aliases? allowed: models, aliases",
            ),
            ("  other:", "  base:", ":6: aliases.base: is also a model's name; choose another"),
            ("directory: org/other", "directory: ../../etc", ":8: aliases.other.directory: must be a path below"),
            ("  base:\n    m", "  Base:\n    m", ":2: models.Base: a served name is lower-case letters"),
            (
                "directory: org/other",
                "directory: Base-Model",
                ":8: aliases.other.directory: 'Base-Model' is the directory of base; give each a directory of its own",
            ),
            (
                "directory: org/other",
                "directory: Base-Model/other",
                ":8: aliases.other.directory: 'Base-Model/other' lies in, or holds, the directory of base; give each",
            ),
            (
                "model: org/Base-Model",
                "model: org/Base-Model\n    directory: org/other/base",
                ":9: aliases.other.directory: 'org/other' lies in, or holds, the directory of base; give each",
            ),
            (
                "directory: org/other",
                "directory: .versions/other",
                ":8: aliases.other.directory: '.versions/other' has a part that begins with '.'; stores keep",
            ),
        ],
    )
    def test_one_sentence_with_line_key_and_rule(self, tmp_path, old, new, expected):
        assert old in GOOD
        found = sentences(tmp_path, GOOD.replace(old, new, 1))
        assert found[0].startswith(expected)
        assert len(found) == 1

    def test_two_models_may_share_their_files(self, tmp_path):
        twice = GOOD.replace(
            "aliases:", "  again:\n    model: org/Base-Model\n    description: served otherwise\naliases:"
        )
        assert set(registry.load(write(tmp_path, twice)).models) == {"base", "again"}

    def test_every_problem_is_told_at_once(self, tmp_path):
        text = GOOD.replace("description: a model", "description: 3\n    dtype: 4\n    env: 5")
        assert [s.split(": ")[1] for s in sentences(tmp_path, text)] == [
            "models.base.description",
            "models.base.dtype",
            "models.base.env",
        ]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("models: [", "is not YAML"),
            ("a: *b", "is not YAML"),
            ("- a\n- b\n", "must be a mapping with the key 'models'"),
            ("", "must be a mapping with the key 'models'"),
            ("models: {}\n", "names no model"),
            ("models: 3\n", "must be a mapping of names, got a number"),
            ("models:\n  a: 3\n", "must be a mapping of settings, got a number"),
            ("a: &a [*a]\n", "the model registry is not YAML: an anchor holds itself"),
        ],
    )
    def test_what_is_no_registry(self, tmp_path, text, expected):
        assert any(expected in sentence for sentence in sentences(tmp_path, text))

    def test_a_missing_file_and_one_that_is_not_text(self, tmp_path):
        with pytest.raises(RegistryError, match="cannot read the model registry"):
            registry.load(tmp_path / "absent.yaml")
        (tmp_path / "latin.yaml").write_bytes(b"models: \xff\xfe")
        with pytest.raises(RegistryError, match="not UTF-8"):
            registry.load(tmp_path / "latin.yaml")

    @pytest.mark.parametrize(
        "flag", ["--port", "--host=0.0.0.0", "--api-key", "--max-model-len", "--trust-remote-code"]
    )
    def test_extra_args_cannot_take_what_the_launcher_or_a_key_says(self, tmp_path, flag):
        text = GOOD.replace("description: a model", f"description: a model\n    extra-args: ['{flag}']")
        found = sentences(tmp_path, text)
        assert found[0].startswith(":5: models.base.extra-args[0]: --")

    @pytest.mark.parametrize("name", ["HF_TOKEN", "MY_API_KEY", "DB_PASSWORD", *sorted(reserved.DANGEROUS_ENV)])
    def test_secrets_and_dangerous_switches_are_refused(self, tmp_path, name):
        text = GOOD.replace("description: a model", f"description: a model\n    env: {{{name}: 'x-canary'}}")
        found = sentences(tmp_path, text)
        assert len(found) == 1
        assert "x-canary" not in found[0]

    def test_the_command_line_exits_with_2_and_says_it_in_json(self, tmp_path):
        path = write(tmp_path, GOOD.replace("dtype", "x").replace("description: a model", "descripton: a model"))
        done = huddle("models", "validate", "--registry", str(path), "--json")
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        document = json.loads(done.stdout)
        assert document["ok"] is False
        assert any("did you mean description?" in sentence for sentence in document["errors"])

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
            max_leaves=12,
        )
    )
    def test_any_content_is_a_registry_or_a_registry_error(self, tmp_path_factory, content):
        path = tmp_path_factory.mktemp("any") / "models.yaml"
        path.write_text(yaml.safe_dump({"models": content, "aliases": content}), encoding="utf-8")
        with pytest.raises(RegistryError):
            registry.load(path)


class TestPrompts:
    def known(self, tmp_path: Path) -> registry.Registry:
        return registry.load(write(tmp_path, GOOD))

    def test_the_first_store_that_has_the_file_wins(self, tmp_path):
        known = self.known(tmp_path)
        for number in (1, 2):
            directory = tmp_path / f"store{number}" / "org" / "other"
            directory.mkdir(parents=True)
            (directory / "system_prompt.txt").write_text(f"  prompt {number}\n")
        prompt = read_system_prompt(known, known.resolve("other"), [tmp_path / "store2", tmp_path / "store1"])
        assert prompt and prompt.text == "prompt 2"
        assert len(prompt.sha256) == 64

    def test_missing_empty_and_unreadable_prompts(self, tmp_path):
        known = self.known(tmp_path)
        with pytest.raises(RegistryError, match="system prompt of 'other' is missing; looked for"):
            read_system_prompt(known, known.resolve("other"), [tmp_path])
        directory = tmp_path / "org" / "other"
        directory.mkdir(parents=True)
        (directory / "system_prompt.txt").write_text(" \n")
        with pytest.raises(RegistryError, match="is empty; write one or drop 'system-prompt'"):
            read_system_prompt(known, known.resolve("other"), [tmp_path])
        (directory / "system_prompt.txt").write_bytes(b"\xff")
        with pytest.raises(RegistryError, match="as UTF-8 text"):
            read_system_prompt(known, known.resolve("other"), [tmp_path])

    @pytest.mark.parametrize(("card", "expected"), [("{", "not JSON"), ("[]", "JSON object"), ('{"base": "x"}', "'x'")])
    def test_a_wrong_card(self, tmp_path, card, expected):
        known = self.known(tmp_path)
        directory = tmp_path / "org" / "other"
        directory.mkdir(parents=True)
        (directory / "model_info.json").write_text(card)
        with pytest.raises(RegistryError, match=expected):
            read_model_info(known, known.resolve("other"), [tmp_path])


class TestCommands:
    def test_list_names_every_model(self):
        done = huddle("models", "list")
        assert done.returncode == 0
        assert all(name in done.stdout for name in registry.load().models)
        rows = json.loads(huddle("models", "list", "--json").stdout)
        assert [row["name"] for row in rows] == [served.name for served in registry.load().served]

    def test_show_gives_the_prompts_hash_but_not_its_text(self):
        known = registry.load()
        prompt = read_system_prompt(known, known.resolve("hl"))
        done = huddle("models", "show", "hl", "--json")
        shown = json.loads(done.stdout)
        assert prompt and shown["system_prompt"]["sha256"] == prompt.sha256
        assert prompt.text not in done.stdout

    def test_validate_and_an_unknown_name(self):
        assert huddle("models", "validate").returncode == 0
        unknown = huddle("models", "show", "qwen3-9b")
        assert unknown.returncode == 2
        assert unknown.stderr.count("\n") == 1 and "did you mean 'qwen3-8b'" in unknown.stderr

    @pytest.mark.parametrize("words", [("models", "validate"), ("models", "show", "hl"), ("plan", "llama-3.2-3b")])
    def test_a_store_that_is_not_there_is_refused_unless_another_is(self, tmp_path, words):
        gone = tmp_path / "gone"
        refused = huddle(*words, "--store", str(gone))
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.count("\n") == 1 and f"no model store at {gone}" in refused.stderr
        assert huddle(*words, "--store", str(gone), "--store", str(tmp_path)).returncode == 0

    def test_importing_the_registry_is_cheap(self):
        code = "import sys, huddle.registry; print(*sorted(m.partition('.')[0] for m in sys.modules))"
        loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        assert not {"typer", "rich", "httpx", "openai", "pulumi", "psutil"} & set(loaded)
