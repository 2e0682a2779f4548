"""What all targets use knows nothing of Azure: every module but those that are Azure's, a new one too."""

from __future__ import annotations

import grimp

EXCEPTIONS = {
    "plan.targets": "the table of all targets",
    "plan.settings.validation": "says why a tier of API Management can't work here",
}
"""They may know Azure; who imports them knows no more by that."""


def knows_azure(graph: grimp.ImportGraph) -> list[str]:
    """The shared modules from which a chain of imports leads to one of Azure's."""
    for name in EXCEPTIONS:
        graph.remove_module(name)
    azure = {name for name in graph.modules if "azure" in name}
    return sorted(name for name in graph.modules - azure if graph.find_upstream_modules(name) & azure)


def test_no_shared_module_knows_azure() -> None:
    graph = grimp.build_graph("huddle", "plan", "cloud_init")
    assert set(EXCEPTIONS) <= graph.modules
    assert knows_azure(graph) == []


def test_a_new_module_is_seen_without_being_listed() -> None:
    graph = grimp.build_graph("plan")
    graph.add_module("plan.new")
    graph.add_import(importer="plan.new", imported="plan.azure_facts")
    assert knows_azure(graph) == ["plan.new"]
