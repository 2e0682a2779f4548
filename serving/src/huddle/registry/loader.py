"""From `models.yaml` to a checked `Registry`: every problem in one pass, with file, line, key and what is allowed."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError

from huddle import yaml_source
from huddle.errors import HuddleError
from huddle.registry import reserved, schema
from huddle.registry.schema import Alias, AliasSpec, Entry, Model, ModelSpec

DEFAULT_PATH = Path(__file__).parent.parent / "data" / "models.yaml"
SECTIONS = ("models", "aliases")


class RegistryError(HuddleError):
    """The registry is wrong; `sentences` has one line for each problem."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence for each problem."""
        return self.problems


class UnknownModelError(RegistryError):
    """A name that the registry does not serve."""


@dataclass(frozen=True)
class Served:
    """What a served name stands for: the base model, and the alias when the name is one."""

    name: str
    model: Model
    alias: Alias | None = None

    @property
    def entry(self) -> Model | Alias:
        """The entry whose description, prompt and directory hold for this name."""
        return self.alias or self.model


@dataclass(frozen=True)
class Registry:
    """The checked content of one `models.yaml`."""

    path: Path
    models: Mapping[str, Model]
    aliases: Mapping[str, Alias]

    @property
    def served(self) -> tuple[Served, ...]:
        """Every served name, models first, in the file's order."""
        of_aliases = (Served(a.name, self.models[a.base], a) for a in self.aliases.values())
        return (*(Served(m.name, m) for m in self.models.values()), *of_aliases)

    def resolve(self, name: str) -> Served:
        """Find what a name stands for: a served name, a repository id or its last part (in any case).

        Raises:
            UnknownModelError: with the nearest names.
        """
        if name in self.models:
            return Served(name, self.models[name])
        if name in self.aliases:
            return Served(name, self.models[self.aliases[name].base], self.aliases[name])
        wanted = name.lower().rstrip("/")
        for served in self.served:
            if wanted in {served.name, served.model.model.lower(), served.entry.store_directory.lower()}:
                return served
        known = [s.name for s in self.served]
        near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else f"known: {', '.join(known)}"
        raise UnknownModelError(f"no model or alias {name!r} in {self.path}; {hint}")

    def served_names(self, name: str) -> tuple[str, ...]:
        """All names that the engine of `name` answers to: the asked one, its base, the base's aliases."""
        served = self.resolve(name)
        aliases = (a.name for a in self.aliases.values() if a.base == served.model.name)
        return tuple(dict.fromkeys((served.name, served.model.name, *aliases)))


def load(path: Path | None = None) -> Registry:
    """Read and check a registry (the shipped one when no path is given). Pure apart from reading that one file.

    Raises:
        RegistryError: one sentence for each problem.
    """
    path = path or DEFAULT_PATH
    try:
        document = yaml_source.parse(path)
    except OSError as error:
        raise RegistryError(f"{path}: cannot read the model registry ({error.strerror or error})") from error
    except yaml_source.YamlSourceError as error:
        raise RegistryError(f"{path}:{error.line}: the model registry {error}") from error
    problems = [
        f"{path}:{again}: {_dotted(key)}: given twice; the first is on line {first}, keep one"
        for key, first, again in document.duplicates
    ]
    if not isinstance(document.data, dict):
        raise RegistryError(*problems, f"{path}:1: the model registry must be a mapping with the key 'models'")
    problems += _unknown_sections(document)
    models, model_problems = _entries(document, "models", ModelSpec, Model)
    aliases, alias_problems = _entries(document, "aliases", AliasSpec, Alias)
    problems += model_problems + alias_problems
    if not models and not model_problems:
        problems.append(f"{path}:{document.line(('models',))}: models: names no model; give at least one")
    problems += _cross_checks(document, models, aliases, complete=not model_problems)
    if problems:
        raise RegistryError(*problems)
    return Registry(path, MappingProxyType(models), MappingProxyType(aliases))


S = TypeVar("S", bound=Entry)
N = TypeVar("N", Model, Alias)


def _entries(
    document: yaml_source.Document, section: str, spec: type[S], named: type[N]
) -> tuple[dict[str, N], list[str]]:
    """Check each entry of a section on its own, so that one wrong entry does not hide another's problems."""
    content = document.data.get(section)
    if content is None:
        return {}, []
    where = f"{document.path}:{document.line((section,))}"
    if not isinstance(content, dict):
        return {}, [f"{where}: {section}: must be a mapping of names, got {_kind(content)}"]
    entries: dict[str, N] = {}
    problems: list[str] = []
    for name, body in content.items():
        key: yaml_source.KeyPath = (section, str(name))
        at = _at(document, key)
        if not isinstance(name, str) or not schema.NAME_PATTERN.fullmatch(name):
            problems.append(f"{at}: a served name is {schema.NAME_RULE}")
        elif not isinstance(body, dict):
            problems.append(f"{at}: must be a mapping of settings, got {_kind(body)}")
        else:
            try:
                checked = spec.model_validate(body)
                entries[name] = named.model_validate({**dict(checked), "name": name}, by_name=True, by_alias=False)
            except ValidationError as error:
                problems += _sentences(document, key, spec, error)
    return entries, problems


def _sentences(
    document: yaml_source.Document, key: yaml_source.KeyPath, spec: type[Entry], error: ValidationError
) -> Iterator[str]:
    """Pydantic's findings in our words: where, what was found, what is allowed."""
    fields = {field.alias or name: field for name, field in spec.model_fields.items()}
    findings = {tuple(part for part in f["loc"] if part != "[key]"): f for f in reversed(error.errors())}
    for loc, finding in reversed(findings.items()):  # one sentence a place
        here = (*key, *loc)
        at = _at(document, here)
        if finding["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(loc[-1]).replace("_", "-"), fields, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(sorted(fields))}"
            yield f"{at}: unknown key; {hint}"
        elif finding["type"] == "missing":
            rule = _rule(fields[str(loc[0])])
            yield f"{at}: is missing; give {rule}"
        else:
            rule = _rule(fields[str(loc[0])], inner=len(loc) > 1)
            yield f"{at}: must be {rule}, got {_shown(finding['input'])}"


def _rule(field: Any, *, inner: bool = False) -> str:
    """What a field allows, in words: its description, or the values of its vocabulary."""
    options = (field.annotation, *getattr(field.annotation, "__args__", ()))
    for option in options:
        if isinstance(option, type) and issubclass(option, StrEnum):
            return "one of " + ", ".join(option)
    if inner:
        return "text in quotes, with upper-case variable names" if field.alias == "env" else "text in quotes"
    if field.description:
        return str(field.description)
    for option in options:
        for data in getattr(option, "__metadata__", ()):
            if getattr(data, "description", None):
                return str(data.description)
    return "of another type"


def _cross_checks(
    document: yaml_source.Document, models: Mapping[str, Model], aliases: Mapping[str, Alias], *, complete: bool
) -> Iterator[str]:
    """Rules between keys and entries, which a field alone cannot see."""
    for model in models.values():
        yield from _reserved_words(document, model)
    for alias in aliases.values():
        key: yaml_source.KeyPath = ("aliases", alias.name)
        if alias.name in models:
            yield f"{_at(document, key)}: is also a model's name; choose another"
        if alias.base not in models and complete:
            near = difflib.get_close_matches(alias.base, models, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(models)}"
            yield f"{_at(document, (*key, 'base'))}: no model {alias.base!r}; {hint}"
    yield from _shared_places(document, models, aliases)


def _shared_places(
    document: yaml_source.Document, models: Mapping[str, Model], aliases: Mapping[str, Alias]
) -> Iterator[str]:
    """Directories inside one another: whole versions of one would be taken for files of the other, and tidied away.

    Two models may have the same one, as two ways to serve the same files; an alias has files of its own.
    """
    entries: list[tuple[str, Model | Alias]] = [("models", model) for model in models.values()]
    entries += [("aliases", alias) for alias in aliases.values()]
    for number, (section, entry) in enumerate(entries):
        place = PurePosixPath(entry.store_directory)
        at = f"{_at(document, (section, entry.name, 'directory'))}: {entry.store_directory!r}"
        if any(part.startswith(".") for part in place.parts):
            yield f"{at} has a part that begins with '.'; stores keep versions under such names, choose another"
        for earlier_section, earlier in entries[:number]:
            other = PurePosixPath(earlier.store_directory)
            same = place == other and "aliases" in (section, earlier_section)
            if same or (place != other and (place.is_relative_to(other) or other.is_relative_to(place))):
                what = "is" if same else "lies in, or holds,"
                yield f"{at} {what} the directory of {earlier.name}; give each a directory of its own"


def _reserved_words(document: yaml_source.Document, model: Model) -> Iterator[str]:
    """Flags and variables that an entry's free part must not set."""
    key: yaml_source.KeyPath = ("models", model.name)
    keys = {field.alias for field in ModelSpec.model_fields.values()}
    for index, word in enumerate(model.extra_args):
        flag = word.partition("=")[0]
        at = f"{_at(document, (*key, 'extra-args', index))}: {flag}"
        if flag.startswith("--") and flag[2:] in keys:
            yield f"{at} is a key of its own; write {flag[2:]}: there"
        elif flag in reserved.FLAGS:
            yield f"{at} is set by the launcher; leave it out"
    for variable in model.env:
        at = _at(document, (*key, "env", variable))
        if variable in reserved.ENV:
            yield f"{at}: is set by the launcher from the node; leave it out"
        elif variable in reserved.DANGEROUS_ENV:
            yield f"{at}: opens vLLM's development or unsafe interfaces; leave it out"
        elif reserved.SECRET_ENV.search(variable):
            yield f"{at}: looks like a secret; secrets belong in the node's secret files, never in the registry"


def _unknown_sections(document: yaml_source.Document) -> Iterator[str]:
    for section in document.data:
        if section not in SECTIONS:
            key = (str(section),)
            near = difflib.get_close_matches(str(section), SECTIONS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(SECTIONS)}"
            yield f"{_at(document, key)}: unknown key; {hint}"


def _at(document: yaml_source.Document, key: yaml_source.KeyPath) -> str:
    return f"{document.path}:{document.line(key)}: {_dotted(key)}"


def _dotted(key: yaml_source.KeyPath) -> str:
    return ".".join(str(part) for part in key)


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, dict | list):
        return _kind(value)
    text = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
    return f"{text} ({_kind(value)})"
