"""The facts in `data/`, as shapes that a body may have. Read once for each namespace and version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from huddle import data_file

_FOLDER: Final = Path(__file__).parent
DATA: Final = _FOLDER / "data"


class Shape(BaseModel):
    """What one value may be. `min` and `max` are a text's or list's length, or a number's range.

    A `variant` is one of several objects: the property `by` tells which, and `variants` names each by its value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["any", "choice", "flag", "list", "map", "number", "object", "text", "variant"] = Field(
        "any", alias="is"
    )
    required: bool = False
    read_only: bool = False
    min: int | None = None
    max: int | None = None
    pattern: str | None = None
    values: tuple[str, ...] = ()
    open: bool = False
    of: Shape | None = None
    name: str = ""
    by: str = ""
    variants: dict[str, str] = Field(default_factory=dict)


class ObjectShape(BaseModel):
    """Properties by name; `others` is what properties of any other name may be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    properties: dict[str, Shape]
    others: Shape | None = None


class Document(BaseModel):
    """A file of `data/`, with where it comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    licence: str
    commit: str
    date: str
    shapes: dict[str, ObjectShape]


@dataclass(frozen=True)
class Contract:
    """The body of one type: `arm_type` names the outermost of the shapes."""

    arm_type: str
    shapes: Mapping[str, ObjectShape]

    @property
    def body(self) -> ObjectShape:
        """The outermost object, which holds `properties`, `tags`, `sku` and so on, and the resource's `name`."""
        return self.shapes[self.arm_type]


@cache
def arm_types() -> dict[str, str]:
    """ARM type of each type that has a contract, by the SDK's name: `compute:Disk` → `Microsoft.Compute/disks`."""
    return data_file.load(_FOLDER / "types.yaml", dict[str, str])


def file_of(arm_type: str, api_version: str) -> Path:
    """The file that holds a type's shapes."""
    return DATA / f"{arm_type.partition('/')[0]}@{api_version}.json"


@cache
def contract(key: str, api_version: str) -> Contract | None:
    """The contract of a type (`compute:Disk`) at an API version; None for a type that the program does not make."""
    arm_type = arm_types().get(key)
    if arm_type is None:
        return None
    return Contract(arm_type, _document(file_of(arm_type, api_version)).shapes)


@cache
def _document(path: Path) -> Document:
    return data_file.load(path, Document)
