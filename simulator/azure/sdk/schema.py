"""Names, required marks, types and enums of every azure-native resource, read from the Python SDK's source.

The SDK is 350 MB of generated code and importing one module's types takes seconds, so nothing is imported here: each
class is found in its file by a line index and only its few property lines are parsed, on first use. The SDK is the
only public machine-readable schema of azure-native 3 (docs/facts/pulumi.md#no-public-schema).
"""

from __future__ import annotations

import ast
import importlib.util
import re
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

PACKAGE: Final = "azure-native"


@dataclass(frozen=True)
class Prim:
    """`str`, `int`, `float`, `bool` or `any`."""

    kind: str


@dataclass(frozen=True)
class EnumRef:
    """An enum; an open one (`Union[str, Enum]` in the SDK) takes other texts as far as the SDK is concerned."""

    module: str
    name: str
    open: bool = False


@dataclass(frozen=True)
class Obj:
    """A nested object; `source` is `_inputs` or `outputs`."""

    module: str
    name: str
    source: str


@dataclass(frozen=True)
class Arr:
    """A list."""

    item: TypeExpr


@dataclass(frozen=True)
class Map:
    """A mapping from text."""

    value: TypeExpr


@dataclass(frozen=True)
class OneOf:
    """One of several objects."""

    options: tuple[TypeExpr, ...]


TypeExpr = Prim | EnumRef | Obj | Arr | Map | OneOf
ANY: Final = Prim("any")


@dataclass(frozen=True)
class Property:
    """One property of an object, by its wire name."""

    name: str
    type: TypeExpr
    required: bool


Properties = dict[str, Property]


@dataclass(frozen=True)
class ResourceSchema:
    """What the SDK says of one resource type."""

    token: str
    module: str
    name: str
    api_version: str
    inputs: Properties
    outputs: Properties
    path_params: tuple[str, ...]

    @property
    def key(self) -> str:
        """The token without the package: `compute:Disk`."""
        return f"{self.module}:{self.name}"


class UnknownTypeError(KeyError):
    """The SDK has no such type."""


_PARSING: Final = threading.Lock()
"""CPython 3.11 counts the depth of a syntax tree for all threads together: two at once can end in a SystemError."""
_PRIMS: Final = {"str": "str", "int": "int", "float": "float", "bool": "bool", "Any": "any"}
_CLASS: Final = re.compile(r"^class (\w+)\b", re.MULTILINE)
_GETTER: Final = re.compile(
    r"@pulumi\.getter(?:\(name=\"(?P<wire>\w+)\"\))?\n(?:    @[^\n]+\n)*"
    r"    def (?P<python>\w+)\(self\) -> (?P<type>[^\n]+):\n"
)
_MEMBER: Final = re.compile(r"^    [A-Z_0-9]+ = \"([^\"]*)\"$", re.MULTILINE)
_VERSION: Final = re.compile(r"Uses Azure REST API version (\S+?)\.(?:\s|$)")
_GET_ARG: Final = re.compile(r"^\s*__args__\['(\w+)'\] = (\w+)$", re.MULTILINE)


@cache
def sdk_root() -> Path:
    """Where pulumi_azure_native is installed (found, not imported)."""
    spec = importlib.util.find_spec("pulumi_azure_native")
    if spec is None or not spec.submodule_search_locations:
        raise UnknownTypeError("the package pulumi_azure_native is not installed beside the simulator")
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def sdk_version() -> str:
    """Version of the azure-native SDK that the schema was read from."""
    found = re.search(r'"version": "([^"]+)"', (sdk_root() / "pulumi-plugin.json").read_text())
    return found.group(1) if found else "3.0.0"


def split_token(token: str) -> tuple[str, str]:
    """`azure-native:compute:Disk`, or with a version or `/` in the middle, → (`compute`, `Disk`)."""
    package, module, name = token.split(":")
    if not package.startswith(PACKAGE):
        raise UnknownTypeError(token)
    return module.split("/")[0], name


@cache
def resource(token: str) -> ResourceSchema:
    """Schema of a resource type.

    Raises:
        UnknownTypeError: the SDK does not have it.
    """
    module, name = split_token(token)
    path = _files(module).get(name.lower())
    if path is None:
        raise UnknownTypeError(token)
    text = path.read_text()
    classes = _classes(text)
    # The SDK says `InitArgs` where plain `Args` is already the name of a nested type (VirtualNetwork, Subnet, …).
    where = classes.get(f"{name}InitArgs") or classes.get(f"{name}Args")
    if where is None or name not in classes:
        raise UnknownTypeError(token)
    version = _VERSION.search(text)
    args = text[slice(*where)]
    body = text[slice(*classes[name])]
    return ResourceSchema(
        token=f"{PACKAGE}:{module}:{name}",
        module=module,
        name=name,
        api_version=version.group(1) if version else "",
        inputs=_properties(module, args),
        outputs=_properties(module, body, only="pulumi.Output["),
        path_params=_path_params(module, name),
    )


@cache
def object_properties(ref: Obj) -> Properties:
    """Properties of a nested object type; empty when the SDK lacks it."""
    text, classes = _source(ref.module, ref.source)
    where = classes.get(f"{ref.name}Args" if ref.source == "_inputs" else ref.name)
    return _properties(ref.module, text[slice(*where)]) if where else {}


@cache
def enum_values(module: str, name: str) -> tuple[str, ...]:
    """Values of an enum; empty when the SDK lacks it."""
    text, classes = _source(module, "_enums")
    where = classes.get(name)
    return tuple(_MEMBER.findall(text[slice(*where)])) if where else ()


@cache
def _files(module: str) -> dict[str, Path]:
    folder = sdk_root() / module
    return {path.stem.replace("_", ""): path for path in folder.glob("*.py")} if folder.is_dir() else {}


@cache
def _source(module: str, stem: str) -> tuple[str, dict[str, tuple[int, int]]]:
    path = sdk_root() / module / f"{stem}.py"
    text = path.read_text() if path.exists() else ""
    return text, _classes(text)


def _classes(text: str) -> dict[str, tuple[int, int]]:
    starts = [(match.group(1), match.start()) for match in _CLASS.finditer(text)]
    ends = [start for _, start in starts[1:]] + [len(text)]
    return {name: (start, end) for (name, start), end in zip(starts, ends, strict=True)}


def _properties(module: str, body: str, only: str = "") -> Properties:
    required = _required(body)
    found: Properties = {}
    for match in _GETTER.finditer(body):
        annotation = match.group("type")
        if only and not annotation.startswith(only):
            continue
        wire = match.group("wire") or match.group("python")
        found[wire] = Property(wire, _parse(module, annotation), match.group("python") in required)
    return found


def _required(body: str) -> frozenset[str]:
    """Arguments of the first `__init__` that have no default."""
    start = body.find("    def __init__(")
    end = body.find("):\n", start)
    if start < 0 or end < 0:
        return frozenset()
    with _PARSING:
        signature = ast.parse(f"{body[start:end].strip()}): pass").body[0]
    assert isinstance(signature, ast.FunctionDef)  # noqa: S101 - generated code
    pairs = zip(signature.args.kwonlyargs, signature.args.kw_defaults, strict=True)
    return frozenset(argument.arg for argument, default in pairs if default is None)


def _path_params(module: str, name: str) -> tuple[str, ...]:
    """Arguments a getter cannot do without: they are the resource's path (research: getter = GET on the ARM path)."""
    path = _files(module).get(f"get{name.lower()}")
    if path is None:
        return ()
    text = path.read_text()
    start = text.find("_output(")
    signature = text[start : text.find(") ->", start)]
    optional = set(re.findall(r"(\w+): pulumi\.Input\[Optional\[Optional\[", signature))
    return tuple(wire for wire, python in dict(_GET_ARG.findall(text)).items() if python not in optional)


@cache
def _parse(module: str, annotation: str) -> TypeExpr:
    with _PARSING:
        tree = ast.parse(annotation, mode="eval")
    return _convert(module, tree.body)


def _convert(module: str, node: ast.expr) -> TypeExpr:
    if isinstance(node, ast.Constant):
        return _named(module, str(node.value))
    if isinstance(node, ast.Attribute):
        return Prim(_PRIMS.get(node.attr, "any"))
    if isinstance(node, ast.Name):
        return Prim(_PRIMS.get(node.id, "any"))
    if isinstance(node, ast.Subscript):
        return _generic(module, ast.unparse(node.value).split(".")[-1], node.slice)
    return ANY


def _generic(module: str, head: str, argument: ast.expr) -> TypeExpr:
    if head in {"Input", "Output", "Optional"}:
        return _convert(module, argument)
    if head == "Sequence":
        return Arr(_convert(module, argument))
    if head == "Mapping" and isinstance(argument, ast.Tuple):
        return Map(_convert(module, argument.elts[1]))
    if head == "Union" and isinstance(argument, ast.Tuple):
        return _union([_convert(module, option) for option in argument.elts])
    return ANY


def _union(options: list[TypeExpr]) -> TypeExpr:
    enums = [option for option in options if isinstance(option, EnumRef)]
    if enums and any(isinstance(option, Prim) for option in options):
        return EnumRef(enums[0].module, enums[0].name, open=True)
    objects = tuple(option for option in options if isinstance(option, Obj))
    return OneOf(objects) if objects and len(objects) == len(options) else ANY


def _named(module: str, name: str) -> TypeExpr:
    if name.startswith("outputs."):
        return Obj(module, name.removeprefix("outputs."), "outputs")
    if name.endswith("Args"):
        return Obj(module, name.removesuffix("Args"), "_inputs")
    return EnumRef(module, name)
