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
from huddle.errors import Fault, InputError
from huddle.findings import Finding, findings, hint, sentence, written
from huddle.registry import reserved, schema
from huddle.registry.schema import Alias, AliasSpec, Entry, Model, ModelSpec

DEFAULT_PATH = Path(__file__).parent.parent / "data" / "models.yaml"
SECTIONS = ("models", "aliases")


class RegistryError(InputError):
    """The registry, or a file that it names, is wrong."""


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
        longer = [each for each in known if each.startswith(wanted)] if wanted else []
        near = longer or difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
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
    document = yaml_source.read(path, "the model registry", RegistryError)
    if not isinstance(document.data, dict):
        raise RegistryError(
            *document.twice(), document.fault((), "the model registry must be a mapping with the key 'models'")
        )
    strays = list(_unknown_sections(document))
    problems = [*document.twice(), *strays]
    models, model_problems = _entries(document, "models", ModelSpec, Model)
    aliases, alias_problems = _entries(document, "aliases", AliasSpec, Alias)
    problems += model_problems + alias_problems
    if not models and not model_problems and not strays:  # `modles:` would be told twice
        problems.append(document.fault(("models",), "names no model; give at least one"))
    problems += _cross_checks(document, models, aliases, complete=bool(models) and not model_problems)
    if problems:
        raise RegistryError(*problems)
    return Registry(path, MappingProxyType(models), MappingProxyType(aliases))


S = TypeVar("S", bound=Entry)
N = TypeVar("N", Model, Alias)


def _entries(
    document: yaml_source.Document, section: str, spec: type[S], named: type[N]
) -> tuple[dict[str, N], list[Fault]]:
    """Check each entry of a section on its own, so that one wrong entry does not hide another's problems."""
    content = document.data.get(section)
    if content is None:
        return {}, []
    if not isinstance(content, dict):
        return {}, [document.fault((section,), f"must be a mapping of names, got {_kind(content)}")]
    entries: dict[str, N] = {}
    problems: list[Fault] = []
    for name, body in content.items():
        key: yaml_source.KeyPath = (section, str(name))
        if not isinstance(name, str) or not schema.NAME_PATTERN.fullmatch(name):
            problems.append(document.fault(key, f"a served name is {schema.NAME_RULE}"))
        elif not isinstance(body, dict):
            problems.append(document.fault(key, f"must be a mapping of settings, got {_kind(body)}"))
        else:
            try:
                checked = spec.model_validate(body)
                entries[name] = named.model_validate({**dict(checked), "name": name}, by_name=True, by_alias=False)
            except ValidationError as error:
                problems += _broken_rules(document, key, spec, error)
    return entries, problems


def _broken_rules(
    document: yaml_source.Document, key: yaml_source.KeyPath, spec: type[Entry], error: ValidationError
) -> Iterator[Fault]:
    for finding in findings(error, spec):
        yield document.fault((*key, *finding.path), _broken_rule(finding, spec))


def _broken_rule(finding: Finding, spec: type[Entry]) -> str:
    """The description of a registry's key is the rule for its value."""
    fields = {field.alias or name: field for name, field in spec.model_fields.items()}
    field = fields.get(str(finding.path[0]))
    if field is None:
        return sentence(finding)
    rule = _rule(field, inner=len(finding.path) > 1)
    return f"is required: {rule}" if finding.kind == "missing" else f"must be {rule}, got {_shown(finding.value)}"


def _rule(field: Any, *, inner: bool = False) -> str:
    """What a field allows, in words: its description, or the values of its vocabulary."""
    options = (field.annotation, *getattr(field.annotation, "__args__", ()))
    for option in options:
        if isinstance(option, type) and issubclass(option, StrEnum):
            return "one of " + ", ".join(option)
    if inner and field.alias != "tuned":
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
) -> Iterator[Fault]:
    """Rules between keys and entries, which a field alone cannot see."""
    for model in models.values():
        yield from _reserved_words(document, model)
    for alias in aliases.values():
        key: yaml_source.KeyPath = ("aliases", alias.name)
        if alias.name in models:
            yield document.fault(key, "is also a model's name; choose another")
        if alias.base not in models and complete:
            near = difflib.get_close_matches(alias.base, models, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(models)}"
            yield document.fault((*key, "base"), f"no model {alias.base!r}; {hint}")
    yield from _shared_places(document, models, aliases)


def _shared_places(
    document: yaml_source.Document, models: Mapping[str, Model], aliases: Mapping[str, Alias]
) -> Iterator[Fault]:
    """Directories inside one another: whole versions of one would be taken for files of the other, and tidied away.

    Two models may have the same one, as two ways to serve the same files; an alias has files of its own.
    """
    entries: list[tuple[str, Model | Alias]] = [("models", model) for model in models.values()]
    entries += [("aliases", alias) for alias in aliases.values()]
    for number, (section, entry) in enumerate(entries):
        place = PurePosixPath(entry.store_directory)
        key, shown = (section, entry.name, "directory"), repr(entry.store_directory)
        if any(part.startswith(".") for part in place.parts):
            reason = "has a part that begins with '.'; stores keep versions under such names, choose another"
            yield document.fault(key, f"{shown} {reason}")
        for earlier_section, earlier in entries[:number]:
            other = PurePosixPath(earlier.store_directory)
            same = place == other and "aliases" in (section, earlier_section)
            if same or (place != other and (place.is_relative_to(other) or other.is_relative_to(place))):
                what = "is" if same else "lies in, or holds,"
                reason = f"{what} the directory of {earlier.name}; give each a directory of its own"
                yield document.fault(key, f"{shown} {reason}")


def _reserved_words(document: yaml_source.Document, model: Model) -> Iterator[Fault]:
    """Flags and variables that an entry's free part must not set."""
    key: yaml_source.KeyPath = ("models", model.name)
    keys = {field.alias for field in ModelSpec.model_fields.values()}
    for index, word in enumerate(model.extra_args):
        flag = word.partition("=")[0]
        at = (*key, "extra-args", index)
        if flag.startswith("--") and flag[2:] in keys:
            yield document.fault(at, f"{flag} is a key of its own; write {flag[2:]}: there")
        elif flag in reserved.FLAGS:
            yield document.fault(at, f"{flag} is set by the launcher; leave it out")
    for variable in model.env:
        at = (*key, "env", variable)
        if variable in reserved.ENV:
            yield document.fault(at, "is set by the launcher from the node; leave it out")
        elif variable in reserved.DANGEROUS_ENV:
            yield document.fault(at, "opens vLLM's development or unsafe interfaces; leave it out")
        elif reserved.SECRET_ENV.search(variable):
            yield document.fault(
                at, "looks like a secret; secrets belong in the node's secret files, never in the registry"
            )


def _unknown_sections(document: yaml_source.Document) -> Iterator[Fault]:
    for section in document.data:
        if section not in SECTIONS:
            yield document.fault((str(section),), f"is not a known key; {hint(str(section), SECTIONS)}")


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, dict | list):
        return _kind(value)
    text = written(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"{text} ({_kind(value)})"
