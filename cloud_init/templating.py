"""Template files, rendered strictly: an unknown name is an error, and the same plan always gives the same text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - shell, units and YAML, never HTML
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: Any) -> str:
    """Fill in `templates/<template>`.

    Raises:
        jinja2.UndefinedError: the template asks for a value that was not given.
    """
    return _environment().get_template(template).render(**values)


def text(file: str) -> str:
    """A file of `templates/` that goes to the node as it is."""
    return (TEMPLATES / file).read_text(encoding="utf-8")
