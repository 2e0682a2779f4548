"""What a person can mend is one line for each fault and exit code 2, whatever command finds it: never a traceback.

The model registry and what lies beside it are a copy here, made wrong in every way that an author may.
"""

from __future__ import annotations

import json
import random
import shutil
import string
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest
import yaml

from cloud_init import user_data
from cloud_init.bundle import shipped_registry
from cloud_init.delivery import run_command
from huddle import cli, registry, shapes
from huddle.errors import ExitCode, Fault, HuddleError, InputError
from huddle.registry import loader
from infra import graph, program
from infra.cli import deploy, main
from plan import stack_file
from tests.unit.infra import stack_commands
from tests.unit.stack_values import MODEL, changed, write

COMMANDS = tuple(stack_commands.of(main.app))
"""Every command that reads a stack, with what else it needs: a new one is here by itself."""
HUDDLE_COMMANDS = (("models", "list"), ("models", "validate"), ("plan", MODEL), ("launch", MODEL, "--dry-run"))
DIRECTORY = "Llama-3.2-3B-Instruct"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the shipped registry and its files, in place of the shipped ones."""
    copy = tmp_path / "data"
    shutil.copytree(loader.DEFAULT_PATH.parent, copy)
    monkeypatch.setattr(loader, "DEFAULT_PATH", copy / "models.yaml")
    monkeypatch.setattr(shapes, "_BUNDLED", copy / "models")
    shipped_registry.load.cache_clear()
    yield copy
    shipped_registry.load.cache_clear()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command's exit code, stdout and stderr; faults alone, without the warnings that `validate` adds."""
    monkeypatch.setattr(program, "warnings", lambda stack: [])

    def run_main(main: Callable[[], Any], *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["program", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return run_main


def replaced(old: str, new: str) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        text = (data / "models.yaml").read_text(encoding="utf-8")
        assert old in text
        (data / "models.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def written(content: str | bytes) -> Callable[[Path], None]:
    text = content if isinstance(content, bytes) else content.encode()
    return lambda data: (data / "models.yaml").write_bytes(text) and None


def no_file(data: Path) -> None:
    (data / "models.yaml").unlink()


def a_directory(data: Path) -> None:
    no_file(data)
    (data / "models.yaml").mkdir()


def no_shape(data: Path) -> None:
    (data / "models" / DIRECTORY / "shape.json").unlink()


WRONG_REGISTRIES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a key with a typo": (
        replaced("licence:", "license:"),
        f":8: models.{MODEL}.license: is not a known key; did you mean licence? allowed:",
    ),
    "a list": (written("- a\n"), ":1: the model registry must be a mapping with the key 'models'"),
    "a section with a typo": (
        replaced("models:\n", "modles:\n"),
        ": modles: is not a known key; did you mean models? allowed: models, aliases",
    ),
    "a wrong section": (written("models: 3\n"), ":1: models: must be a mapping of names, got a number"),
    "a wrong entry": (written(f"models:\n  {MODEL}: 3\n"), f":2: models.{MODEL}: must be a mapping of settings, got"),
    "a wrong type": (
        replaced("max-model-len: 4096", "max-model-len: many"),
        f"models.{MODEL}.max-model-len: must be a whole number from 16 to 16,777,216, got 'many' (text)",
    ),
    "a wrong item": (
        replaced("extra-args: [--enable", "extra-args: [3, --enable"),
        f"models.{MODEL}.extra-args[0]: must be text in quotes, got 3 (a number)",
    ),
    "a key given twice": (
        replaced("    max-model-len: 4096\n", "    max-model-len: 4096\n    max-model-len: 8192\n"),
        f"models.{MODEL}.max-model-len: given twice; the first is on line",
    ),
    "no YAML": (written("models: [\n"), ":2: the model registry is not YAML: while parsing a flow node expected"),
    "no text": (written(b"models: \xff\n"), ":1: the model registry is not YAML: it is not UTF-8 text"),
    "no file": (no_file, ": cannot read the model registry (No such file or directory)"),
    "a directory": (a_directory, ": cannot read the model registry (Is a directory)"),
}


@pytest.mark.parametrize("wrong", WRONG_REGISTRIES)
def test_a_wrong_registry_is_one_sentence_of_every_command(data: Path, run: Run, wrong: str) -> None:
    change, sentence = WRONG_REGISTRIES[wrong]
    change(data)
    for command in COMMANDS:
        code, out, err = run(main.main, *command, "-s", "dev")
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith(f"error: {data / 'models.yaml'}") and sentence in err
    for words in HUDDLE_COMMANDS:
        code, out, err = run(cli.main, *words)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith(f"huddle: {data / 'models.yaml'}") and sentence in err


def test_a_model_without_its_shape(data: Path, run: Run) -> None:
    no_shape(data)
    for command in COMMANDS:
        code, out, err = run(main.main, *command, "-s", "dev")
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert f"the shape of '{MODEL}' is not known: looked for " in err
    assert run(cli.main, "plan", MODEL)[0] == ExitCode.BAD_INPUT


def spoilt(name: str, content: bytes | None) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        path = data / "models" / DIRECTORY / name
        path.unlink() if content is None else path.write_bytes(content)

    return change


def as_directory(name: str) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        path = data / "models" / DIRECTORY / name
        path.unlink()
        path.mkdir()

    return change


WRONG_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no prompt": (spoilt("system_prompt.txt", None), f"the system prompt of '{MODEL}' is missing; looked for"),
    "an empty prompt": (spoilt("system_prompt.txt", b" \n"), f"the system prompt of '{MODEL}' is empty; write one"),
    "a prompt of bytes": (spoilt("system_prompt.txt", b"\xff"), f"cannot read the system prompt of '{MODEL}' as UTF-8"),
    "no template": (spoilt("chat_template.jinja", None), f"the chat template of '{MODEL}' is missing; looked for"),
    "an empty template": (spoilt("chat_template.jinja", b"\n"), f"the chat template of '{MODEL}' is empty; write one"),
    "a prompt that is a directory": (
        as_directory("system_prompt.txt"),
        f"system_prompt.txt: cannot read the system prompt of '{MODEL}' (Is a directory)",
    ),
    "a template that is a directory": (
        as_directory("chat_template.jinja"),
        f"chat_template.jinja: cannot read the chat template of '{MODEL}' (Is a directory)",
    ),
    "a template that is no Jinja": (
        spoilt("chat_template.jinja", b"a\n{% if x %}"),
        f"the chat template of '{MODEL}' is not Jinja: Unexpected end of template.",
    ),
    "a template of bytes": (spoilt("chat_template.jinja", b"\xff"), f"cannot read the chat template of '{MODEL}' as"),
}


@pytest.mark.parametrize("wrong", WRONG_FILES)
def test_a_wrong_file_of_a_model_is_refused_before_anything_is_created(data: Path, run: Run, wrong: str) -> None:
    change, sentence = WRONG_FILES[wrong]
    change(data)
    for command in COMMANDS:
        code, out, err = run(main.main, *command, "-s", "dev")
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("error: ") and sentence in err
    code, out, _ = run(main.main, "validate", "-s", "dev", "--json")
    (fault,) = json.loads(out)["faults"]
    assert code == ExitCode.BAD_INPUT and sentence in fault["message"]
    assert sentence in run(cli.main, "models", "validate")[2] or "is not Jinja" in sentence, "nodes have no Jinja"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--foo", "has no option --foo"),
        ("--tool-call-parser, nope", "does not know --tool-call-parser nope; it knows "),
    ],
)
def test_options_that_the_pinned_engine_lacks_are_refused(data: Path, run: Run, words: str, said: str) -> None:
    replaced("extra-args: [--enable", f"extra-args: [{words}, --enable")(data)
    for command in COMMANDS:
        code, out, err = run(main.main, *command, "-s", "dev")
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert f"models.yaml: models.{MODEL}.extra-args: vLLM " in err and said in err
    for command in (("models", "validate"), ("plan", MODEL)):
        code, _, err = run(cli.main, *command)
        assert code == ExitCode.BAD_INPUT and said in err


def test_tags_that_transformers_adds_to_jinja_pass(data: Path) -> None:
    text = b"{% for m in messages %}{% generation %}{{ m }}{% endgeneration %}{% break %}{% endfor %}"
    spoilt("chat_template.jinja", text)(data)
    assert program.load_plan("dev").nodes


def test_with_json_every_command_tells_its_faults_in_one_shape(run: Run) -> None:
    for command in COMMANDS:
        code, out, err = run(main.main, *command, "-s", "nope", "--json")
        (fault,) = json.loads(out)["faults"]
        assert (code, fault["file"], fault["key"]) == (2, "stacks/Pulumi.nope.yaml", "")
        assert err == f"error: {fault['file']}: {fault['message']}\n"


def refused_by_the_program(monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]) -> str:
    """What `pulumi up` prints, and that it ends before a resource is registered."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    monkeypatch.setattr(pulumi, "get_stack", lambda: "dev")
    monkeypatch.setattr("pulumi.runtime.config.CONFIG", SimpleNamespace(get=lambda: texts))
    with pytest.raises(pulumi.RunError) as refused:
        program.main()
    return str(refused.value)


def refused_by_validate(monkeypatch: pytest.MonkeyPatch, root: Path, run: Run) -> str:
    load_plan = program.load_plan
    monkeypatch.setattr(program, "load_plan", lambda stack: load_plan(stack, root))
    code, out, err = run(main.main, "validate", "-s", "dev")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    return err.removeprefix("error: ").strip()


def test_prompts_that_make_too_large_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    prompts = ("".join(random.Random(n).choices(string.printable[:62], k=30_000)) for n in range(9))
    products = {f"p{n}": {"display_name": f"P{n}", "system_prompt": prompt} for n, prompt in enumerate(prompts)}
    config = changed(gateway={"products": products})
    said = refused_by_validate(monkeypatch, write(tmp_path, config), run)
    assert f"allowed: {run_command.SCRIPT_LIMIT_BYTES}. Largest files of the bundle: " in said
    assert said.endswith("shorten system prompts, or set access.delivery to ssh")
    assert refused_by_the_program(monkeypatch, config) == said


def test_day_zero_that_azure_would_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(user_data, "CUSTOM_DATA_LIMIT", 5_000)
    config = changed()
    said = refused_by_validate(monkeypatch, write(tmp_path, config), run)
    assert "Azure allows 5000; give fewer access.ssh_public_keys" in said
    assert refused_by_the_program(monkeypatch, config) == said


def test_the_program_and_validate_refuse_the_same_file(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    spoilt("chat_template.jinja", None)(data)
    config = changed()
    said = refused_by_validate(monkeypatch, write(tmp_path, config), run)
    assert refused_by_the_program(monkeypatch, config) == said


def test_deploy_ends_with_the_sentence_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> int:
        raise InputError(Fault("a", "b", "is wrong"), "and this too")

    monkeypatch.setattr(deploy, "main", refuse)
    assert deploy.run() == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == "error: a: b: is wrong\nerror: and this too\n"


def test_what_failed_is_told_apart_from_what_was_wrong() -> None:
    assert (HuddleError("x").exit_code, InputError("x").exit_code) == (ExitCode.FAILED, ExitCode.BAD_INPUT)
    assert issubclass(registry.RegistryError, InputError) and issubclass(shapes.ShapeError, InputError)


def test_the_copy_is_right_before_it_is_made_wrong(data: Path) -> None:
    assert program.load_plan("dev").nodes
    assert shipped_registry.load().path == data / "models.yaml"
    assert stack_file.names() == ["dev", "prod", "proof"]


def test_delivery_over_ssh_without_its_key_is_refused_before_anything(tmp_path: Path, run: Run) -> None:
    (tmp_path / "stacks").mkdir()
    values = changed(access={"delivery": "ssh"})
    path = tmp_path / "stacks" / "Pulumi.dev.yaml"
    path.write_text(yaml.safe_dump({"config": values}), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        stack_file.load("dev", tmp_path)
    assert str(caught.value) == (
        f"{path}: access.delivery: needs ssh_private_key; "
        "run `make pulumi ARGS='config set --secret ssh_private_key -s dev'`"
    )
    values[f"{stack_file.PROJECT}:ssh_private_key"] = {"secure": "v1:xyz"}
    path.write_text(yaml.safe_dump({"config": values}), encoding="utf-8")
    plan = program.load_plan("dev", tmp_path)
    assert any(resource.name.endswith("-ssh") for resource in graph.registered(plan))


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("num_hidden_layers", 0, "num_hidden_layers must be a whole number of 1 or more, got 0"),
        ("num_attention_heads", 0, "num_attention_heads must be a whole number of 1 or more, got 0"),
        ("num_key_value_heads", 7, "num_key_value_heads 7 does not divide num_attention_heads 24"),
    ],
)
def test_a_shape_that_no_model_has(key: str, value: int, sentence: str, data: Path, run: Run) -> None:
    path = data / "models" / DIRECTORY / "shape.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    for command in COMMANDS:
        code, out, err = run(main.main, *command, "-s", "dev")
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert sentence in err


def test_all_faults_of_a_stack_are_told_at_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    for name in ("system_prompt.txt", "chat_template.jinja"):
        spoilt(name, None)(data)
    config = changed(nodes={"quota_vcpus": 1}, gateway={"policy_fragments": {"inbound": ["a.xml", "b.xml"]}})
    root, load_plan = write(tmp_path, config), program.load_plan
    monkeypatch.setattr(program, "load_plan", lambda stack: load_plan(stack, root))
    code, out, err = run(main.main, "validate", "-s", "dev")
    assert (code, out, err.count("\n")) == (2, "", 5), err
    for said in (
        "nodes.",
        "'a.xml' can't be read",
        "'b.xml' can't be read",
        "the system prompt of",
        "the chat template",
    ):
        assert said in err
    assert len(refused_by_the_program(monkeypatch, config).splitlines()) == 5


def test_a_missing_shape_does_not_hide_a_missing_prompt(data: Path, run: Run) -> None:
    no_shape(data)
    spoilt("system_prompt.txt", None)(data)
    code, _, err = run(main.main, "plan", "-s", "dev")
    assert (code, err.count("\n")) == (2, 2) and "the shape of" in err and "the system prompt of" in err
