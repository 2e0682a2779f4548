"""Resources as a tree: components with what they hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rich.text import Text
from rich.tree import Tree

from infra.reports.resource_graph import Registered


def short_type(resource_type: str) -> str:
    """`azure-native:network:VirtualNetwork` as `network/VirtualNetwork`; our components as their class name."""
    package, _, rest = resource_type.partition(":")
    return rest.rpartition(":")[2] if package == "h100" else rest.replace(":", "/")


def render(resources: Iterable[Registered], stack: str) -> Tree:
    """A tree for the terminal, siblings by name: registration and a checkpoint have orders of their own."""
    listed = sorted(resources, key=lambda resource: resource.name)
    known = {resource.urn for resource in listed}
    children: dict[str, list[Registered]] = defaultdict(list)
    for resource in listed:
        children[resource.parent if resource.parent in known else ""].append(resource)
    custom = sum(resource.custom for resource in listed)
    tree = Tree(Text.assemble((stack, "bold"), (f"  {custom} resources", "dim")))
    for resource in children[""]:
        _grow(tree, resource, children)
    return tree


def _grow(tree: Tree, resource: Registered, children: dict[str, list[Registered]]) -> None:
    style = "" if resource.custom else "bold"
    branch = tree.add(Text.assemble((resource.name, style), "  ", (short_type(resource.type), "dim")))
    for child in children[resource.urn]:
        _grow(branch, child, children)
