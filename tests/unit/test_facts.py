"""docs/facts: every reference in the tree resolves, every fact says where it comes from and is cited somewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.lint.check_tree import tracked_files

ROOT = Path(__file__).parents[2]
FACTS = ROOT / "docs" / "facts"
PAGES = {path.name: path.read_text(encoding="utf-8") for path in FACTS.glob("*.md") if path.name != "README.md"}

REFERENCE = re.compile(r"(?:docs|\.\.)/facts/([\w-]+\.md)(?:#([\w-]*))?")
"""As code and documents write it; between pages of facts a link has no folder."""
NEIGHBOUR = re.compile(r"\]\(([\w-]+\.md)(?:#([\w-]*))?\)")
DATE = r"\d{4}-\d{2}(?:-\d{2})?"
SOURCE = re.compile(rf"^Source, seen {DATE}:(?:\s+\[[^]]+\]\(https://[^)\s]+\),?)+$", re.MULTILINE)
MEASURED = re.compile(rf"^Measured {DATE}: .*(?:`[^`]+`|\]\([^)]+\))", re.MULTILINE)
GIVEN = re.compile(rf"^Given, seen {DATE}: \w", re.MULTILINE)
OLD = re.compile(
    r"(?:azure|pulumi)_facts(?:\.md| sections?\b| \d)|field[ _]bugs?\b|(?:h100|wrapper)_measurements|azure_day_one"
    r"|anchors\.md|research/\w+\.md|\.\./shared/|\bF §|\| B \d"
    r"|\bseed 0\d\d\b|\bour seeds\b|\b(?:the|a) seeds?['’]s?\b",
    re.IGNORECASE,
)
"""Notes that are not in the repository."""


@dataclass(frozen=True)
class Reference:
    """A place that names a fact."""

    place: str
    page: str
    heading: str

    @property
    def in_document(self) -> bool:
        return self.place.partition(":")[0].endswith(".md")

    def __str__(self) -> str:
        return f"{self.place}: {self.page}#{self.heading}"


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def facts() -> Iterator[tuple[str, str, str]]:
    """Page, anchor and text of every fact."""
    for page, text in PAGES.items():
        for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            heading, _, body = part.partition("\n")
            yield page, slug(heading), body


def texts() -> Iterator[tuple[Path, str]]:
    """Every tracked text but this file, which spells what it forbids."""
    for path in tracked_files(ROOT):
        content = path.read_bytes()
        if b"\0" not in content and path != Path(__file__):
            yield path.relative_to(ROOT), content.decode("utf-8")


def references() -> Iterator[Reference]:
    for path, text in texts():
        pattern = NEIGHBOUR if (ROOT / path).parent == FACTS else REFERENCE
        for number, line in enumerate(text.splitlines(), start=1):
            for found in pattern.finditer(line):
                yield Reference(f"{path}:{number}", found[1], found[2] or "")


def test_every_reference_finds_its_fact() -> None:
    """A document may name a whole page, code names the fact."""
    known = {(page, anchor) for page, anchor, _ in facts()}
    found = list(references())
    assert len(found) > 50, "the pattern finds nothing any more"
    whole = {one for one in found if one.in_document and not one.heading and (FACTS / one.page).is_file()}
    assert [str(one) for one in found if one not in whole and (one.page, one.heading) not in known] == []


def test_nothing_cites_notes_that_are_not_here() -> None:
    places = [
        f"{path}:{number}: {match[0]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        for match in OLD.finditer(line)
    ]
    assert places == []


def test_every_fact_says_where_it_comes_from_and_when_it_was_seen() -> None:
    assert [
        f"{page}#{anchor}"
        for page, anchor, body in facts()
        if not any(mark.search(body) for mark in (SOURCE, MEASURED, GIVEN))
    ] == []


def test_every_fact_is_cited() -> None:
    cited = {(one.page, one.heading) for one in references()}
    assert [f"{page}#{anchor}" for page, anchor, _ in facts() if (page, anchor) not in cited] == [], (
        "cite it or delete it"
    )


def test_anchors_are_unique_and_pages_are_listed() -> None:
    counts = Counter((page, anchor) for page, anchor, _ in facts())
    assert [one for one, count in counts.items() if count > 1] == []
    listed = set(NEIGHBOUR.findall((FACTS / "README.md").read_text(encoding="utf-8")))
    assert {name for name, _ in listed} == set(PAGES)
