"""The API's description, for developers and API Management: openapi.json, which `infra docs` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from huddle import data_file

_DATA = Path(__file__).with_name("openapi.json")


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")

    openapi: str
    info: dict[str, Any]
    tags: list[dict[str, str]]
    paths: dict[str, dict[str, dict[str, Any]]]
    components: dict[str, Any]


def document() -> dict[str, Any]:
    """The document, new at each call; raises InputError for a wrong file."""
    return data_file.load(_DATA, _Document).model_dump()
