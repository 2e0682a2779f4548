"""The answers as a page to keep: Markdown for people, JSON for scripts. And the table itself, for the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cloud_init import templating
from infra.proof import answers, assumptions
from infra.proof.answers import Answer
from plan.azure.model import AzurePlan

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Page:
    """When, of which stack, and whether a stand-in answered instead of Azure."""

    asked_at: datetime
    plan: AzurePlan
    stand_in: bool
    answers: tuple[Answer, ...]


def to_json(page: Page) -> dict[str, Any]:
    """For scripts. `simulated`: no word of it is Azure's."""
    table = assumptions.load()
    return {
        "simulated": page.stand_in,
        "asked_at": page.asked_at.isoformat(timespec="seconds"),
        "stack": page.plan.stack,
        "region": page.plan.location,
        "answers": [
            {
                "id": one.id,
                "claim": table[one.id].claim,
                "verdict": one.verdict.value,
                "seen": one.seen,
                "follows": one.follows,
            }
            for one in page.answers
        ],
    }


def to_markdown(page: Page) -> str:
    """For people, and to commit beside the facts that it settles."""
    size = page.plan.compute.size.name
    return _render("page.md.j2", page=page, table=assumptions.load(), size=size, count=answers.count(page.answers))


def reference() -> str:
    """docs/reference/assumptions.md: the table without answers."""
    table = assumptions.load()
    asked: Sequence[tuple[str, assumptions.Assumption]] = [(name, one) for name, one in table.items() if not one.person]
    people = [(name, one) for name, one in table.items() if one.person]
    return _render("assumptions.md.j2", asked=asked, people=people)


def _render(name: str, **values: Any) -> str:
    text: str = templating.environment(_TEMPLATES).get_template(name).render(**values)
    return text
