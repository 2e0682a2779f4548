"""Elements of API Management's policies, from a checkout of github.com/microsoft/vscode-apimanagement: facts only.

There, XML Schemas say what each policy may hold. Here, each policy is one object: its attributes with their kinds and
allowed values, its children in their order, whether it holds text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lxml import etree

from tools.contracts.arm import UnknownFormError

_XS = "{http://www.w3.org/2001/XMLSchema}"
_FOLDER = "resources/policySchemas"
_DOCUMENT = "policies"
"""The outermost element, whose sections are other rules' work."""


def distil(checkout: Path) -> dict[str, Any]:
    """Every policy by name.

    Raises:
        UnknownFormError: there are no schemas, or one has a form that is new.
    """
    roots = [etree.parse(path).getroot() for path in sorted((checkout / _FOLDER).glob("*.xsd"))]
    if not roots:
        raise UnknownFormError(f"{checkout.name} has no {_FOLDER}")
    return _Schemas(roots).policies()


class _Schemas:
    def __init__(self, roots: list[etree._Element]) -> None:
        named = [(entry.tag.removeprefix(_XS), entry.get("name"), entry) for root in roots for entry in _parts(root)]
        self._types = {name: entry for tag, name, entry in named if tag in ("complexType", "simpleType")}
        self._elements = {name: entry for tag, name, entry in named if tag == "element" and name != _DOCUMENT}

    def policies(self) -> dict[str, Any]:
        return {name: self._element(entry) for name, entry in sorted(self._elements.items())}

    def _element(self, entry: etree._Element) -> dict[str, Any]:
        made: dict[str, Any] = {}
        kind, inline = entry.get("type"), entry.find(f"{_XS}complexType")
        if inline is None and kind in self._types and self._types[kind].tag == f"{_XS}complexType":
            inline = self._types[kind]
        if inline is not None:
            self._complex(inline, made)
        elif kind:
            made["text"] = self._simple(kind)
        elif entry.getparent().tag != f"{_XS}schema":
            # A child without a type is the policy of that name, or says nothing about itself.
            made["content"] = "the policy" if entry.get("name") in self._elements else "anything"
        return made

    def _complex(self, entry: etree._Element, made: dict[str, Any]) -> None:
        if entry.get("mixed") == "true":
            made["text"] = {}
        for part in _parts(entry):
            match part.tag.removeprefix(_XS):
                case "attribute":
                    made.setdefault("attributes", {})[part.get("name")] = self._attribute(part)
                case "sequence" | "choice" | "all":
                    self._content(part, made)
                case "simpleContent" | "complexContent":
                    (extension,) = _parts(part)
                    self._extended(extension, made)
                case other:
                    raise UnknownFormError(f"{entry.get('name')}: {other}")

    def _extended(self, extension: etree._Element, made: dict[str, Any]) -> None:
        base = extension.get("base")
        if base in self._types and self._types[base].tag == f"{_XS}complexType":
            self._complex(self._types[base], made)
        else:
            made["text"] = self._simple(base)
        self._complex(extension, made)

    def _content(self, group: etree._Element, made: dict[str, Any]) -> None:
        """`sequence`: children in this order; `all`: in any; `choice`, repeated: any of them, as often as wanted."""
        repeated = group.get("maxOccurs") == "unbounded"
        for part in _parts(group):
            if part.tag == f"{_XS}any":
                made["content"] = "anything" if "text" in made else "policies"
                continue
            if part.tag != f"{_XS}element":
                raise UnknownFormError(f"a {group.tag.removeprefix(_XS)} in a {part.tag.removeprefix(_XS)}")
            child = self._element(part)
            if part.get("maxOccurs", "1") != "1" or repeated:
                child["many"] = True
            if part.get("minOccurs", "1") != "0" and not repeated:
                child["required"] = True
            made.setdefault("children", {})[part.get("name")] = child
        if group.tag == f"{_XS}sequence":
            made.setdefault("content", "in order")
        elif repeated and group.get("minOccurs", "1") != "0":
            made.setdefault("content", "at least one")

    def _attribute(self, entry: etree._Element) -> dict[str, Any]:
        inline = entry.find(f"{_XS}simpleType")
        value = self._type(inline) if inline is not None else self._simple(entry.get("type", "xs:string"))
        return {**value, **({"required": True} if entry.get("use") == "required" else {})}

    def _simple(self, name: str) -> dict[str, Any]:
        if name.startswith("xs:"):
            return {} if name == "xs:string" else {"kind": name.removeprefix("xs:")}
        return {"expression": True} if name == "expression" else self._type(self._types[name])

    def _type(self, entry: etree._Element) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for part in _parts(entry):
            match part.tag.removeprefix(_XS):
                case "union":
                    members = [self._simple(name) for name in part.get("memberTypes", "").split()]
                    for member in [*members, *(self._type(inside) for inside in _parts(part))]:
                        if made.keys() & member.keys():
                            raise UnknownFormError(f"a union of two {', '.join(made.keys() & member.keys())}")
                        made |= member
                case "restriction":
                    made |= self._simple(part.get("base")) | self._restricted(part)
                case other:
                    raise UnknownFormError(f"{entry.get('name')}: {other}")
        return made

    def _restricted(self, entry: etree._Element) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for facet in _parts(entry):
            match facet.tag.removeprefix(_XS):
                case "enumeration":
                    made.setdefault("values", []).append(facet.get("value"))
                case "pattern":
                    made["pattern"] = facet.get("value")
                case "minLength":
                    made["shortest"] = int(facet.get("value"))
                case other:
                    raise UnknownFormError(f"a restriction by {other}")
        return made


def _parts(entry: etree._Element) -> Iterator[etree._Element]:
    return (part for part in entry if isinstance(part.tag, str) and part.tag != f"{_XS}annotation")
