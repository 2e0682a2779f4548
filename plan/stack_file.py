"""Reading a stack's values: from its YAML file (the command line) or from Pulumi's config (the program)."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from huddle import yaml_source
from huddle.errors import Fault, InputError
from huddle.findings import show
from plan.settings.service import ServiceSettings
from plan.settings.validation import parse
from plan.targets import DEFAULT, TARGETS, Targets

PROJECT = "h100-inference"
ROOT = Path(__file__).resolve().parent.parent
STACK_NAME = re.compile(r"(?=.{1,30}$)[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
"""A stack's name becomes part of resource names, which Azure compares without case."""
SECRET_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bpul-[0-9a-f]{30,}|PRIVATE KEY-----"
)
"""How tokens of model hubs, OpenAI, GitHub and Pulumi look, and private keys."""
SECRET_NAMES = re.compile(r"(?:^|[_-])(?:password|passwd|secret|token|api_?key)s?$", re.IGNORECASE)


def path_of(stack: str, root: Path = ROOT) -> Path:
    """Where the stack's file stands: stacks/Pulumi.<stack>.yaml."""
    return root / "stacks" / f"Pulumi.{stack}.yaml"


def names(root: Path = ROOT) -> list[str]:
    """All stacks that have a file, sorted."""
    return sorted(
        path.name.removeprefix("Pulumi.").removesuffix(".yaml")
        for path in (root / "stacks").glob("Pulumi.*.yaml")
        if path.is_file()
    )


def load(stack: str, root: Path = ROOT, targets: Targets = TARGETS, *, rehearsed: bool = False) -> ServiceSettings:
    """Read and check one stack file. A rehearsal brings the secrets that only a person can bring otherwise.

    Raises:
        InputError: the stack is missing, is not YAML, holds a secret in plain text, or has a wrong key.
    """
    config = read(stack, root)
    encrypted = (key for key, value in config.items() if _is_encrypted(value))
    refuse_plain_secrets(encrypted, config, stack, targets, root=root)
    refuse_what_looks_secret(config, stack, root)
    settings = from_values(config, stack, targets, root=root)
    if not rehearsed:
        refuse_lacking_secrets(settings, config, stack, root)
    return settings


def refuse_lacking_secrets(settings: ServiceSettings, keys: Iterable[str], stack: str, root: Path = ROOT) -> None:
    """`make up` makes the secrets that a stack lacks, but for those that only a person can bring.

    Raises:
        InputError: with one fault for each setting that asks for such a secret.
    """
    present = set(keys)
    faults = [
        Fault(label(stack, root), setting, f"needs {secret.key}; run {setting_secret(secret.key, stack)}")
        for setting, secret in settings.brought_secrets
        if f"{PROJECT}:{secret.key}" not in present
    ]
    if faults:
        raise InputError(*faults)


def secret_keys(targets: Targets = TARGETS) -> tuple[str, ...]:
    """Every config key that is a secret on some target."""
    return tuple(dict.fromkeys(secret.key for target in targets.values() for secret in target.settings.secrets))


def setting_secret(key: str, stack: str) -> str:
    """The command by which a person sets a secret; Pulumi asks for its value."""
    return f"`make pulumi ARGS='config set --secret {key} -s {stack}'`"


def refuse_plain_secrets(
    encrypted: Iterable[str], keys: Iterable[str], stack: str, targets: Targets = TARGETS, *, root: Path = ROOT
) -> None:
    """Let a secret stand in a config in no other way than encrypted.

    Raises:
        InputError: with one fault for each secret in plain text; its value is not repeated.
    """
    safe, present = set(encrypted), set(keys)
    exposed = [key for key in secret_keys(targets) if f"{PROJECT}:{key}" in present - safe]
    if exposed:
        step = "is a secret in plain text; remove it and run"
        raise InputError(*(Fault(label(stack, root), key, f"{step} {setting_secret(key, stack)}") for key in exposed))


def refuse_what_looks_secret(config: Mapping[str, Any], stack: str, root: Path = ROOT) -> None:
    """Find tokens in free text, and texts under a name that promises a secret (`tags: {password: …}`).

    Raises:
        InputError: with one fault for each; no value is repeated.
    """
    own = {key: value for key, value in config.items() if not _is_encrypted(value)}
    faults = [
        Fault(label(stack, root), where.removeprefix(f"{PROJECT}:"), "looks like a secret in plain text; remove it")
        for where, name, text in _texts(own)
        if SECRET_SHAPES.search(text) or SECRET_NAMES.search(name)
    ]
    if faults:
        raise InputError(*faults)


def _texts(value: Any, where: str = "", name: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text below a value, with its path and the key that it stands under."""
    if isinstance(value, str):
        yield where, name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, f"{where}.{key}" if where else str(key), str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{where}[{index}]", name)


def read(stack: str, root: Path = ROOT) -> dict[str, Any]:
    """The `config` mapping of a stack file, as written, keys with their namespace.

    Raises:
        InputError: no such stack, a file that cannot be read, or no mapping of settings in it.
    """
    if not STACK_NAME.fullmatch(stack):
        allowed = "lower-case letters, digits and single hyphens, starting with a letter, at most 30"
        raise InputError(f"{stack[:60]!r} is not allowed as a stack's name; allowed: {allowed}")
    path, file = path_of(stack, root), label(stack, root)
    if not path.exists():
        known = names(root)
        close = difflib.get_close_matches(stack, known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(Fault(file, "", f"there is no such stack; {hint}stacks here: {', '.join(known) or 'none'}"))
    try:
        document = _parsed(path.read_bytes(), file)
    except OSError as error:
        raise InputError(Fault(file, "", f"can't be read: {error.strerror}")) from None
    if not isinstance(document, dict) or not isinstance(document.get("config"), dict):
        raise InputError(Fault(file, "config", "is required: a mapping of settings"))
    return {str(key): value for key, value in document["config"].items()}


def from_pulumi(config: Mapping[str, str], stack: str, targets: Targets = TARGETS) -> ServiceSettings:
    """Settings from Pulumi's own config, where objects arrive as JSON text.

    Raises:
        InputError: a key is wrong.
    """
    return from_values({key: _decode(value) for key, value in config.items()}, stack, targets)


def from_values(
    config: Mapping[str, Any], stack: str, targets: Targets = TARGETS, *, root: Path = ROOT
) -> ServiceSettings:
    """Settings of the class that `target` names, from namespaced values.

    Other providers' keys are left alone; ours must be known.

    Raises:
        InputError: a key is wrong, or belongs to another target.
    """
    secrets = secret_keys(targets)
    own = {
        key.removeprefix(f"{PROJECT}:"): value
        for key, value in config.items()
        if key.startswith(f"{PROJECT}:") and key.removeprefix(f"{PROJECT}:") not in secrets
    }
    file = label(stack, root)
    if strays := tuple(_strays(config, file)):
        raise InputError(*strays)
    target = own.setdefault("target", DEFAULT)
    if not isinstance(target, str) or target not in targets:
        raise InputError(Fault(file, "target", f"{show(target)} is not allowed; allowed: {', '.join(targets)}"))
    model = targets[target].settings
    for name, key in model.outside.items():
        if name in own:
            raise InputError(Fault(file, name, f"is not a known key; set it as `{key}`"))
        if key in config:
            own[name] = config[key]
    return parse(own, file, model, [other.settings for other in targets.values() if other.name != target])


def _strays(config: Mapping[str, Any], file: str) -> Iterator[Fault]:
    """Keys that were meant for us but stand outside our namespace, where they would be ignored without a word."""
    for key in config:
        namespace, colon, name = key.partition(":")
        if not colon:
            yield Fault(file, key, f"has no namespace; write it as `{PROJECT}:{key}`")
        elif namespace != PROJECT and difflib.get_close_matches(namespace.casefold(), [PROJECT], cutoff=0.8):
            yield Fault(file, key, f"has an unknown namespace; did you mean `{PROJECT}:{name}`?")


def label(stack: str, root: Path = ROOT) -> str:
    """What errors call the stack's file: its path, from the project's directory where it lies there."""
    path = path_of(stack, root)
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _is_encrypted(value: object) -> bool:
    return isinstance(value, dict) and set(value) == {"secure"}


def _decode(text: str) -> Any:
    """Objects and lists come as JSON; everything else as plain text that pydantic converts."""
    if text[:1] in "{[":
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text
    return text


def _parsed(text: bytes, file: str) -> Any:
    """The YAML's content. Azure's names are case-insensitive, so keys that differ only in case count as equal."""
    try:
        document = yaml_source.parse(text, file, same=str.casefold)
    except yaml_source.YamlSourceError as error:
        place = f" (line {error.line}, column {error.column})" if error.column else ""
        raise InputError(Fault(file, "", f"is not valid YAML: {error}{place}")) from None
    if document.repeated:
        raise InputError(*(Fault(file, "", _repeated(key)) for key in document.repeated))
    return document.data


def _repeated(key: yaml_source.Repeated) -> str:
    return (
        f"is not valid YAML: the key {key.path[-1]!r} on line {key.line} repeats line {key.first_line}"
        " (names are compared without case)"
    )
