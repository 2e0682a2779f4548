"""From the SDK's inputs to the body that is sent.

azure-native moves what ARM keeps in `properties` one level up and writes every name in camel case
(docs/facts/pulumi.md#names-and-places-of-inputs). Its metadata is not public; the shapes show the way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulator.azure.contracts.shapes import Contract, ObjectShape, Shape

INSIDE: Final = "properties"
_RENAMED: Final = {
    "apiType": "type",
    "enableHttpsTrafficOnly": "supportsHttpsTrafficOnly",
    "enableNfsV3": "isNfsV3Enabled",
    "encryptionFederatedIdentityClientId": "federatedIdentityClientId",
    "encryptionIdentity": "identity",
    "encryptionUserAssignedIdentity": "userAssignedIdentity",
    "expires": "exp",
    "iPAddressOrRange": "value",
    "networkRuleSet": "networkAcls",
    "notBefore": "nbf",
    "odataType": "odata.type",
    "soapApiType": "apiType",
    "translateRequiredQueryParametersConduct": "translateRequiredQueryParameters",
    "virtualNetworkResourceId": "id",
}
"""The SDK's names that are other words in the body; a test finds those that are missing here."""


def body_of(contract: Contract, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The body for inputs whose path parameters are taken out already."""
    return _object(contract, contract.body, inputs)


def _object(contract: Contract, shape: ObjectShape, values: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in values.items():
        place = place_of(contract, shape, key)
        if place is None:
            made[key] = _value(contract, shape.others, value) if shape.others else value
        else:
            target = made.setdefault(INSIDE, {}) if place.inside else made
            target[place.name] = _value(contract, place.shape, value)
    return made


@dataclass(frozen=True)
class Place:
    """Where an input goes: its name in the body, and whether it stands in `properties`."""

    name: str
    shape: Shape
    inside: bool


def place_of(contract: Contract, shape: ObjectShape, key: str) -> Place | None:
    """The place of an SDK's name; what only Azure writes is meant when nothing else can be."""
    inside = shape.properties.get(INSIDE)
    inner = contract.shapes[inside.name].properties if inside and inside.name else {}
    levels = ((shape.properties, False), (inner, True))
    found = [
        Place(name, one, is_inner)
        for properties, is_inner in levels
        for name, one in properties.items()
        if _is(key, name)
    ]
    # The renamed first: `apiType` is `type`, and something else is called `apiType`.
    return min(found, key=lambda place: (place.shape.read_only, place.name != _RENAMED.get(key)), default=None)


def _is(key: str, name: str) -> bool:
    """Whether an SDK's name means a name of the body."""
    return name == _RENAMED.get(key) or _folded(key) == _folded(name)


def _folded(name: str) -> str:
    """`Application_Type` and `applicationType` are one name, so are `keyVaultUri` and `keyvaulturi`."""
    return name.replace("_", "").lower()


def _value(contract: Contract, shape: Shape, value: Any) -> Any:
    if shape.kind == "object" and isinstance(value, Mapping):
        return _object(contract, contract.shapes[shape.name], value)
    if shape.kind == "variant" and isinstance(value, Mapping):
        found = shape.variants.get(str(next((one for key, one in value.items() if _is(key, shape.by)), "")))
        return _object(contract, contract.shapes[found], value) if found else dict(value)
    if shape.kind == "list" and shape.of and isinstance(value, list):
        return [_value(contract, shape.of, item) for item in value]
    if shape.kind == "map" and shape.of and isinstance(value, Mapping):
        return {key: _value(contract, shape.of, item) for key, item in value.items()}
    if shape.kind == "map" and isinstance(value, list):  # a set of ids, which ARM writes as a mapping to nothing
        return {item: {} for item in value}
    return value
