"""Functions: `get…` of any resource by its path, and the `list…` functions that hand out keys.

Results carry no secret marks, as with the real provider: the program has to add them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simulator.azure.cloud.subscription import Cloud
from simulator.azure.errors import PlainError, not_found
from simulator.azure.sdk import schema
from simulator.azure.sdk.paths import path_of
from simulator.azure.state.redaction import MARK
from simulator.plugin.values import transform

Function = Callable[[Cloud, Mapping[str, Any]], dict[str, Any]]
_FUNCTIONS: dict[str, Function] = {}


def function(*keys: str) -> Callable[[Function], Function]:
    """Decorator: the answer to these functions (`storage:listStorageAccountKeys`)."""

    def register(body: Function) -> Function:
        for key in keys:
            _FUNCTIONS[key] = body
        return body

    return register


def invoke(cloud: Cloud, token: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a function call.

    Raises:
        ArmError: what it asks about does not exist.
        PlainError: the simulator does not imitate this function.
    """
    module, name = schema.split_token(token)
    known = _FUNCTIONS.get(f"{module}:{name}")
    if known is not None:
        return known(cloud, args)
    if name.startswith("get"):
        return _get(cloud, module, name.removeprefix("get"), args)
    raise PlainError(f"the function {token} is not imitated; simulator/README.md lists those that are")


def _get(cloud: Cloud, module: str, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    resource = schema.resource(f"{schema.PACKAGE}:{module}:{name}")
    resource_id = path_of(resource).build(args, cloud.settings.subscription)
    with cloud.store.reading() as state:
        found = state.get(resource_id)
        if found is None:
            raise not_found(resource_id)
        shown = dict(found.properties)
        if args.get("expand") != "instanceView":
            shown.pop("instanceView", None)
        return {"id": found.id, **_readable(shown)}


def _readable(properties: Mapping[str, Any]) -> dict[str, Any]:
    visible = {key: value for key, value in properties.items() if not (isinstance(value, Mapping) and MARK in value)}
    result: dict[str, Any] = transform(visible, lambda leaf: leaf)
    return result
