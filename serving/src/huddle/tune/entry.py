"""What a sweep found, in the registry's file: put in as text, so that comments and everything else stay as they are."""

import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from huddle import registry
from huddle.errors import Fault, InputError
from huddle.registry import Registry, Tuned
from huddle.tune import lock

_KEY = "tuned"


def put(file: Path, name: str, found: Tuned, *, afresh: bool = False) -> Tuned:
    """Write `found` into the entry of a model, in the place of one with the same conditions, and return which stands.

    One that more engines were measured for, or a whole sweep, stays, unless it is of other settings or `afresh`.

    Raises:
        InputError: the file cannot be written, or the entry is written in a way that leaves no place for it.
    """
    with _alone(file):
        known = registry.load(file)
        old = next((one for one in known.models[name].tuned if _conditions(one) == _conditions(found)), None)
        same = old is not None and old.digest == found.digest and not afresh
        if old and same and (old.engines > found.engines or (old.whole and not found.whole)):
            return old
        _write(known, name, found)
    return found


def look(file: Path, name: str) -> None:
    """See whether something could be written.

    Raises:
        InputError: as for `put`.
    """
    with _alone(file):
        _write(registry.load(file), name, None)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    try:
        with lock.registry(file.resolve()):
            yield
    except OSError as error:
        raise InputError(Fault(str(file), "", f"cannot be locked ({error.strerror})")) from None


def _write(known: Registry, name: str, found: Tuned | None) -> None:
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
            if found:
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
