"""A pull request's comment from `pulumi preview --json`: operations, types and names, never a property's value."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

UNCHANGED = "same"
LONGEST_LIST = 100
# The engine tells a replacement as three steps; the one that is called so stands for all.
PARTS_OF_A_REPLACEMENT = {"create-replacement", "delete-replaced"}


def summary(stack: str, preview: Mapping[str, Any]) -> str:
    """Markdown: a count for each operation, then the resources that would change."""
    changes = [change for step in preview.get("steps", ()) if (change := _change(step))]
    counts = Counter(operation for operation, _, _ in changes)
    told = ", ".join(f"{count} to {operation}" for operation, count in sorted(counts.items())) or "no changes"
    lines = [f"**Preview of stack `{stack}`**: {told}"]
    if changes:
        lines += ["", "| operation | type | name |", "| --- | --- | --- |"]
        lines += [f"| {operation} | `{kind}` | `{name}` |" for operation, kind, name in changes[:LONGEST_LIST]]
    if len(changes) > LONGEST_LIST:
        lines += ["", f"{len(changes) - LONGEST_LIST} more are not listed."]
    return "\n".join(lines) + "\n"


def _change(step: Mapping[str, Any]) -> tuple[str, str, str] | None:
    operation = step["op"]
    if operation == UNCHANGED or operation in PARTS_OF_A_REPLACEMENT:
        return None
    # urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME
    _, _, types, name = step["urn"].split("::", 3)
    return operation, types.rsplit("$", 1)[-1], name


def main(arguments: Iterable[str]) -> int:
    """`python -m tools.preview_summary STACK FILE`."""
    stack, file = arguments
    print(summary(stack, json.loads(Path(file).read_text(encoding="utf-8"))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
