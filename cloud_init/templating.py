"""Template files, rendered strictly: an unknown name is an error, and the same plan always gives the same text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateNotFound, select_autoescape

from huddle import data_file
from huddle.errors import Fault, InputError

TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment(folder: Path) -> Environment:
    """The templates of a folder; values in SVG are escaped."""
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=select_autoescape(("svg.j2",), default=False),  # shell, units and YAML are never HTML
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: Any) -> str:
    """Fill in `templates/<template>`.

    Raises:
        InputError: the file, or one that it includes, is missing.
        jinja2.UndefinedError: the template asks for a value that was not given.
    """
    try:
        return environment(TEMPLATES).get_template(template).render(**values)
    except TemplateNotFound as error:
        raise InputError(Fault(str(TEMPLATES / str(error.name)), "", "this file of the program is missing")) from None


def text(file: str) -> str:
    """A file of `templates/` that goes to the node as it is; raises InputError where it cannot be read."""
    return data_file.text(TEMPLATES / file)
