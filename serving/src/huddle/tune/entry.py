"""What a sweep found, in the registry's file: put in as text, so that comments and everything else stay as they are."""

import shutil
import textwrap
from typing import Any

import yaml

from huddle import registry
from huddle.errors import Fault, InputError
from huddle.registry import Registry, Tuned

_KEY = "tuned"


def put(known: Registry, name: str, found: Tuned | None, *, dry: bool = False) -> None:
    """Write `found` into the entry of a model, in the place of one with the same conditions; `dry`: only see if it can.

    Raises:
        InputError: the file cannot be written, or the entry is written in a way that leaves no place for it.
    """
    path = known.path.resolve()
    model = known.models[name]
    kept = [one for one in model.tuned if found is None or _conditions(one) != _conditions(found)]
    tuned = (*kept, *([found] if found else []))
    expected = {**known.models, name: model.model_copy(update={_KEY: tuned})}
    trial = path.with_name(f".{path.name}.tuned")
    try:
        trial.write_text(_text(path.read_text(encoding="utf-8"), name, tuned), encoding="utf-8")
        try:
            if dict(registry.load(trial).models) != expected:
                raise ValueError("its entry would come out differently")
            if not dry:
                shutil.copymode(path, trial)
                trial.replace(path)
        finally:
            trial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            Fault(str(known.path), "", f"cannot write what is found ({error.strerror or error}); copy the registry and "
                  "the folder models/ beside it, and name the copy with --registry")
        ) from None  # fmt: skip
    except (ValueError, InputError) as error:
        raise InputError(
            Fault(str(known.path), f"models.{name}", f"has no place for what is found ({error}); write it without "
                  "braces, anchors and aliases, a key in each line")
        ) from None  # fmt: skip


def block(tuned: tuple[Tuned, ...]) -> str:
    """The key with its value, as YAML."""
    content = [one.model_dump(mode="json", by_alias=True, exclude_defaults=True) for one in tuned]
    return yaml.safe_dump({_KEY: content}, sort_keys=False, default_flow_style=None, width=120) if tuned else ""


def _conditions(tuned: Tuned) -> tuple[Any, ...]:
    return (tuned.load, tuned.gpu, tuned.vllm, tuned.tensor_parallel_size, tuned.pipeline_parallel_size)


def _text(text: str, name: str, tuned: tuple[Tuned, ...]) -> str:
    entry = _value(_value(yaml.compose(text, Loader=yaml.SafeLoader), "models"), name)
    first_key = entry.value[0][0].start_mark
    lines = text.splitlines(keepends=True)
    old = next((pair for pair in entry.value if pair[0].value == _KEY), None)
    begin = old[0].start_mark.line if old else _end(entry)
    end = _end(old[1]) if old else begin
    if begin and not lines[begin - 1].endswith("\n"):
        lines[begin - 1] += "\n"
    return "".join([*lines[:begin], textwrap.indent(block(tuned), " " * first_key.column), *lines[end:]])


def _value(node: Any, key: str) -> Any:
    found = next((value for name, value in node.value if name.value == key), None)
    if not isinstance(found, yaml.MappingNode) or found.flow_style:
        raise ValueError("it is not a key in each line")
    return found


def _end(node: yaml.Node) -> int:
    """The line after a node's last one. A block's own end mark is where the next thing begins, behind its comments."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        return max(map(_end, parts))
    return node.end_mark.line + (1 if node.end_mark.column else 0)
