"""Kinds of values in a stack file, and the base of every section: a misspelt key is an error."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from huddle.forms import Form
from huddle.wrapper.routes import EngineRoute


def network_of(value: object) -> IPv4Network:
    """Accept only text in CIDR form with no host bits, such as 10.0.0.0/24.

    Raises:
        ValueError: anything else.
    """
    if not isinstance(value, str | IPv4Network):
        raise ValueError("must be an IPv4 network in CIDR form, such as 10.0.0.0/24")
    try:
        return IPv4Network(value)
    except ValueError as error:
        raise ValueError(f"must be an IPv4 network in CIDR form, such as 10.0.0.0/24 ({error})") from error


def text_of(value: object) -> object:
    """Let a bare YAML number stand for its text: `zone: 1`."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def line_of(text: str) -> str:
    """Accept only text that portals and tables can show: not blank, no line breaks, no control characters.

    Raises:
        ValueError: anything else.
    """
    if not text.isprintable() or not text.strip():
        raise ValueError("must be printable text on one line, and not blank")
    return text


def number_of(value: object) -> object:
    """Refuse the key `yes`, which Python would count as 1.

    Raises:
        ValueError: a boolean.
    """
    if isinstance(value, bool):
        raise ValueError("must be a node's number, not a switch")
    return value


def defaults_of(value: object) -> object:
    """Let a key with nothing after it stand for its defaults: `llama-3.1-8b:`."""
    return {} if value is None else value


def nothing_of(value: object) -> object:
    """Let a key with nothing after it count as one that is not there."""
    return "" if value is None else value


def named(value: object) -> object:
    """Let a bare name stand for an entry without further facts: `subscriptions: [web, {name: app, owner: Ada}]`."""
    return {"name": value} if isinstance(value, str) else value


Cidr = Annotated[IPv4Network, BeforeValidator(network_of)]
Line = Annotated[str, AfterValidator(line_of)]
Slug = Annotated[
    str,
    Form(
        r"[a-z][a-z0-9-]{0,48}[a-z0-9]",
        "2 to 50 lower-case letters, digits and hyphens, starting with a letter, not ending with a hyphen",
    ),
]
IdPrefix = Annotated[
    str,
    Form(
        r"([a-z]([a-z0-9-]{0,18}[a-z0-9])?)?",
        "at most 20 lower-case letters, digits and hyphens, starting with a letter, not ending with a hyphen",
    ),
]
TagKey = Annotated[str, Form(r"[^<>%&\\?/]{1,512}", "1 to 512 characters, none of them < > % & \\ ? or /")]
TagValue = Annotated[str, StringConstraints(max_length=256)]
SshPublicKey = Annotated[
    str,
    Form(
        r"(ssh|ecdsa|sk)-\S+ [A-Za-z0-9+/=]+( .*)?",
        "a public key on one line: ssh-ed25519 or ssh-rsa, a blank, the key",
    ),
]
ZoneNumber = Annotated[Literal["1", "2", "3"], BeforeValidator(text_of)]
Port = Annotated[int, Field(ge=1024, le=65_535)]
NodeNumber = Annotated[int, Field(ge=1, strict=True)]
NodeKey = Annotated[int, BeforeValidator(number_of)]
"""A node's number where Pulumi's config has text: as the key of a mapping."""
Origin = Annotated[
    str,
    Form(
        r"https?://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?",
        "an origin such as https://app.example.com, in lower case, without a path",
    ),
]
VnetId = Annotated[
    str,
    Form(
        r"(?i)/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]+/providers/Microsoft\.Network/virtualNetworks/[^/]+",
        "/subscriptions/GUID/resourceGroups/NAME/providers/Microsoft.Network/virtualNetworks/NAME",
    ),
]
PrivateZoneId = Annotated[
    str,
    Form(
        r"(?i)/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]+/providers/Microsoft\.Network/privateDnsZones/[^/]+",
        "/subscriptions/GUID/resourceGroups/NAME/providers/Microsoft.Network/privateDnsZones/NAME",
    ),
]
GatewayId = Annotated[
    str,
    Form(
        r"(?i)/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]+/providers/Microsoft\.ApiManagement/service/[^/]+",
        "/subscriptions/GUID/resourceGroups/NAME/providers/Microsoft.ApiManagement/service/NAME",
    ),
]
Email = Annotated[
    str,
    StringConstraints(max_length=254),
    Form(r"[^@\s]+@[^@\s]+\.[^@\s]+", "an e-mail address such as ops@example.com"),
]
Routes = Annotated[
    tuple[EngineRoute, ...] | None,
    Field(min_length=1, description="Routes of the engine that it offers; none means all."),
]
Guid = Annotated[
    str,
    Form(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "a GUID: 32 hexadecimal digits in the form 8-4-4-4-12"),
]


class Section(BaseModel):
    """Base of every settings section: frozen, and a misspelt key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse `count: yes`, which Python would count as 1."""
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, bool) and field.annotation in (int, float, int | None):
            raise ValueError("must be a number, not a switch")
        return value
