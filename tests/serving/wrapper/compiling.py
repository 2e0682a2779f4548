"""Requests with schemas that an engine compiles, for seconds or at once."""

import json
from typing import Any

from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.prepare import Prepared, Preparer, Served
from huddle.wrapper.routes import Route

USER = [{"role": "user", "content": "hi"}]


def prepared(**fields: Any) -> Prepared:
    body = json.dumps({"model": "m", "messages": USER, **fields}).encode()
    return Preparer({"m": Served("m", "m")}, Caps()).prepare(Route.CHAT, body, "salt")


def schema(value: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}


def lengths(count: int, most: int) -> dict[str, Any]:
    """A schema whose `count` texts each cost seconds with a large vocabulary."""
    properties = {f"a{i}": {"type": "string", "maxLength": most + i} for i in range(count)}
    return schema({"type": "object", "properties": properties})
