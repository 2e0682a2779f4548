"""What a version of vLLM accepts, recorded from the real one (`record.py`), and which version a `vllm` program is."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from huddle import data_file, versions
from huddle.errors import Fault, InputError
from huddle.registry import Model, Registry

_DATA = Path(__file__).parent.parent / "data" / "engine"


class Interface(BaseModel):
    """Options (with their choices, or None where any value goes), variables and parser names of one vLLM version."""

    model_config = ConfigDict(frozen=True)

    version: str
    flags: dict[str, list[str] | None]
    variables: frozenset[str]
    tool_parsers: frozenset[str]
    reasoning_parsers: frozenset[str]
    quantizations: frozenset[str]

    def objections(self, words: Sequence[str]) -> Iterator[str]:
        """Sentences about options that this version lacks and about values that it does not know."""
        named = {"--tool-call-parser": self.tool_parsers, "--reasoning-parser": self.reasoning_parsers}
        for word, following in zip_longest(words, words[1:], fillvalue=""):
            if not word.startswith("--"):
                continue
            flag, given, value = word.partition("=")
            if flag not in self.flags:
                yield f"vLLM {self.version} has no option {flag}"
                continue
            value = value if given else following
            allowed = named.get(flag) or self.flags[flag]
            if allowed and value not in allowed:
                yield f"vLLM {self.version} does not know {flag} {value}; it knows {', '.join(sorted(allowed))}"


@cache
def interface(version: str) -> Interface | None:
    """The record of a version, or None where it was not recorded; raises InputError for a wrong file."""
    path = _DATA / f"vllm-{version}.json"
    return data_file.load(path, Interface) if path.is_file() else None


@cache
def pinned() -> Interface:
    """What the vLLM of the nodes accepts; raises InputError where its record is missing or wrong."""
    return data_file.load(_DATA / f"vllm-{versions.load().engine.vllm}.json", Interface)


def refuse_options(registry: Registry, model: Model) -> None:
    """Ask the pinned vLLM's record about a model's `extra-args`.

    Raises:
        InputError: a fault for each option that it lacks and each value that it does not know.
    """
    key = f"models.{model.name}.extra-args"
    if faults := [Fault(str(registry.path), key, said) for said in pinned().objections(model.extra_args)]:
        raise InputError(*faults)


def installed_version(program: Path) -> str | None:
    """The version of the vLLM behind a `vllm` program, read from its environment's metadata; None when it does not say.

    Starting `vllm --version` would import torch, which takes 20 s on a GPU node.
    """
    try:
        first = program.open("rb").readline().decode(errors="replace")
    except OSError:
        return None
    interpreter = re.match(r"#!\s*(\S+)", first)
    if not interpreter:
        return None
    environment = Path(interpreter[1]).parent.parent
    for info in sorted(environment.glob("lib/python3*/site-packages/vllm-*.dist-info")):
        return info.name.removeprefix("vllm-").removesuffix(".dist-info").partition("+")[0]
    return None
