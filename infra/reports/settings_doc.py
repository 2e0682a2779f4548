"""The reference page of the stack file, generated from the settings' schema, so it cannot differ from the code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cloud_init import templating
from infra.reports import TEMPLATES
from plan import stack_file
from plan.azure_facts import GATEWAY_TIERS, REFUSED_TIERS, SHARED_DISKS, VM_SIZES, max_shares
from plan.targets import Target
from plan.vocabulary import DiskSku

Schema = Mapping[str, Any]
MINIMAL_STACK = TEMPLATES / "minimal_stack.yaml"


@dataclass(frozen=True)
class Key:
    """One line of a section's table, ready for Markdown."""

    key: str
    allowed: str
    default: str
    text: str


@dataclass(frozen=True)
class Section:
    """One settings model and its place in the file: `serving.models.<name>`."""

    heading: str
    level: int
    intro: str
    rows: tuple[Key, ...]


def page(target: Target) -> str:
    """The text of docs/reference/settings/<target>.md, in Markdown."""
    return (
        templating.environment(TEMPLATES)
        .get_template("settings.md.j2")
        .render(
            project=stack_file.PROJECT,
            target=target.name,
            outside=target.settings.outside,
            example=MINIMAL_STACK.read_text(encoding="utf-8"),
            secrets=target.settings.secrets,
            sections=sections(target),
            sizes=list(VM_SIZES.values()),
            disks=_disks(),
            tiers=list(GATEWAY_TIERS.values()),
            refused_tiers=list(REFUSED_TIERS.items()),
        )
    )


def _disks() -> list[tuple[str, str]]:
    """Each shareable disk SKU with how many nodes may attach it, by size."""
    return [(sku.value, _shares(sku)) for sku in DiskSku]


def _shares(sku: DiskSku) -> str:
    steps = {size: max_shares(sku, size) for size in (512, 4096, SHARED_DISKS[sku].max_size_gib)}
    if len(set(steps.values())) == 1:
        return f"{min(steps.values())}"
    return ", ".join(f"{most} up to {size} GiB" for size, most in steps.items())


def sections(target: Target) -> tuple[Section, ...]:
    """Every section, parents before children, in the models' order."""
    schema = target.settings.model_json_schema()
    return tuple(_sections(schema, schema, "", 2))


def _sections(schema: Schema, whole: Schema, path: str, level: int) -> Iterator[Section]:
    rows, nested = [], []
    for name, field in schema["properties"].items():
        required = name in schema.get("required", ()) or field.get("required", False)
        rows.append(_row(name, field, whole, required=required))
        inner, suffix = _inner(field, whole)
        if inner is not None:
            nested.append((inner, f"{path}.{name}{suffix}".lstrip("."), level))
    heading = f"`{path}`" if path else "Top level"
    intro = schema["description"] if path else f"Each under `{stack_file.PROJECT}:<key>`."
    yield Section(heading, level, " ".join(intro.split()), tuple(rows))
    for inner, inner_path, inner_level in nested:
        yield from _sections(inner, whole, inner_path, inner_level + (1 if path else 0))


def _inner(field: Schema, whole: Schema) -> tuple[Schema | None, str]:
    """The settings model that a field holds, and what is between: nothing, a place in a list, a mapping's key."""
    target = _resolved(field, whole)
    if "properties" in target:
        return target, ""
    if target.get("type") == "array":
        item = _resolved(target["items"], whole)
        return (item, "[]") if "properties" in item else (None, "")
    values = _values(target, whole)
    return (values, ".<name>") if values and "properties" in values else (None, "")


def _values(target: Schema, whole: Schema) -> Schema | None:
    """What a mapping maps to."""
    values = target.get("additionalProperties")
    return _resolved(values, whole) if isinstance(values, Mapping) else None


def _resolved(field: Schema, whole: Schema) -> Schema:
    """Follow a reference; of `X or nothing`, take X. What the field itself says wins over what it refers to."""
    if "anyOf" in field:
        (field_type,) = [option for option in field["anyOf"] if option.get("type") != "null"]
        field = {**field_type, **{key: value for key, value in field.items() if key != "anyOf"}}
    if "$ref" in field:
        target: Schema = whole["$defs"][field["$ref"].rpartition("/")[2]]
        return {**target, **{key: value for key, value in field.items() if key not in ("$ref", "description")}}
    return field


def _row(name: str, field: Schema, whole: Schema, *, required: bool) -> Key:
    target = _resolved(field, whole)
    return Key(
        key=field.get("key", name),
        allowed=_allowed(target, whole),
        default="**required**" if required else _default(field, target),
        text=_cell(field.get("description") or target["description"]),  # left out where both are the same
    )


def _allowed(target: Schema, whole: Schema) -> str:
    """What a value may be, in a few words."""
    if "const" in target:
        return f"`{target['const']}`"
    if "enum" in target:
        return ", ".join(f"`{value}`" for value in target["enum"])
    match target.get("type"):
        case "boolean":
            return "`true`, `false`"
        case "integer" | "number" as kind:
            return _range("whole number" if kind == "integer" else "number", target)
        case "array":
            item = _allowed(_resolved(target["items"], whole), whole)
            return f"list ({target['minItems']} or more) of {item}" if target.get("minItems") else f"list of {item}"
        case "object" if "properties" in target:
            return "a section, see below"
        case "object":
            return _mapping(target, whole)
        case "string":
            return _text(target)
    raise TypeError(f"no words for {target}")


def _range(what: str, target: Schema) -> str:
    low, high = target.get("minimum"), target.get("maximum")
    if low is not None and high is not None:
        return f"{what}, {low} to {high}"
    if low is not None:
        return f"{what}, {low} or more"
    if "exclusiveMinimum" in target:
        return f"{what}, more than {target['exclusiveMinimum']:g}"
    return what


def _mapping(target: Schema, whole: Schema) -> str:
    inner = _values(target, whole) or {}
    if "properties" in inner:
        return "a section for each name, see below"
    most = f", {target['maxProperties']} or fewer" if "maxProperties" in target else ""
    return f"mapping of name to {_allowed(inner, whole)}{most}"


def _text(target: Schema) -> str:
    if target.get("format") == "ipv4network":
        return "IPv4 range (CIDR)"
    if target.get("format") == "ipv4":
        return "IPv4 address"
    if "form" in target:
        return _cell(target["form"])
    least, most = target.get("minLength"), target.get("maxLength")
    if least and most:
        return f"text, {least} to {most} characters"
    return f"text, up to {most} characters" if most else "text"


def _default(field: Schema, target: Schema) -> str:
    value = field.get("default")
    if "properties" in target:
        return "as below"
    if value is None or value in ("", [], {}):
        return "none"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _cell(text: str) -> str:
    """Text that may stand in a table's cell."""
    return text.replace("|", "\\|")
