"""All generated documents: what each must say now, and writing them. `infra docs` calls `write_all`."""

from __future__ import annotations

from pathlib import Path

from infra import program, targets
from infra.proof import page as proof
from infra.reports import openapi_doc, ports_view, settings_doc
from plan import stack_file
from plan.targets import TARGETS

PORTS_STACK = "dev"
"""The stack whose ports stand in the reference."""


def documents(root: Path = stack_file.ROOT) -> dict[str, str]:
    """Every generated file's text by its path from the root.

    Raises:
        InputError: a stack file is wrong.
    """
    plans = {stack: program.load_plan(stack, root) for stack in stack_file.names(root)}
    pictures = {f"docs/pictures/{stack}.svg": targets.of(plan.target).picture(plan) for stack, plan in plans.items()}
    return {
        **{f"docs/reference/settings/{name}.md": settings_doc.page(target) for name, target in TARGETS.items()},
        "docs/reference/ports.md": ports_view.to_markdown(program.load_azure_plan(PORTS_STACK, root)),
        "docs/reference/assumptions.md": proof.reference(),
        openapi_doc.PATH: openapi_doc.text(),
        **pictures,
    }


def write_all(root: Path = stack_file.ROOT) -> list[str]:
    """Write every generated file; returns the paths whose text changed."""
    changed = []
    for name, text in documents(root).items():
        path = root / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(name)
    return changed
