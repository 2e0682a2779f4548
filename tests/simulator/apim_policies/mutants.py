"""Policies with one thing taken out or altered: an element, what is around one, an attribute, a number, a word."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """What was taken out, and the text without it."""
    root = ElementTree.fromstring(text)
    elements = list(root.iter())
    for number, element in enumerate(elements[1:], 1):
        path = _path(root, element)
        without = _without(root, number)
        yield f"{path} taken out", without
        if len(element) and path.count("/") > 1:
            yield f"{path} opened", _without(root, number, keep=True)
        for attribute in element.attrib:
            changed = copy.deepcopy(root)
            del list(changed.iter())[number].attrib[attribute]
            yield f"{path}@{attribute} taken out", ElementTree.tostring(changed, encoding="unicode")


def _without(root: Element, number: int, *, keep: bool = False) -> str:
    changed = copy.deepcopy(root)
    gone = list(changed.iter())[number]
    parent = next(element for element in changed.iter() if gone in list(element))
    at = list(parent).index(gone)
    parent[at : at + 1] = list(gone) if keep else []
    return ElementTree.tostring(changed, encoding="unicode")


def _path(root: Element, wanted: Element) -> str:
    """Where an element stands, such as `inbound/choose[1]/when`."""
    parents = {child: parent for parent in root.iter() for child in parent}
    steps: list[str] = []
    element = wanted
    while element is not root:
        alike = [child for child in parents[element] if child.tag == element.tag]
        name = element.get("name")
        number = f"[{alike.index(element) + 1}]" if len(alike) > 1 else ""
        steps.insert(0, f"{element.tag}[{name}]" if name else f"{element.tag}{number}")
        element = parents[element]
    return "/" + "/".join(steps)


def altered(text: str) -> Iterator[tuple[str, str]]:
    """What was altered, and the text with it: each number is one more, each word one letter longer."""
    root = ElementTree.fromstring(text)
    for number, element in enumerate(root.iter()):
        values = {**element.attrib, "": (element.text or "").strip()}
        for attribute, value in values.items():
            for changed in _alterations(value):
                copied = copy.deepcopy(root)
                target = list(copied.iter())[number]
                if attribute:
                    target.set(attribute, changed)
                else:
                    target.text = changed
                where = f"{_path(root, element)}{'@' if attribute else ''}{attribute}"
                yield f"{where}: {value} → {changed}", ElementTree.tostring(copied, encoding="unicode")


def _alterations(value: str) -> Iterator[str]:
    if value and not re.search(r"\d", value) and not value.startswith("@("):
        yield f"{value}x"
    for found in re.finditer(r"\d+", value):
        yield f"{value[: found.start()]}{int(found[0]) + 1}{value[found.end() :]}"
