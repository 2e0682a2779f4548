"""Members of `context` and of other types that our policies use (Microsoft's page on policy expressions)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Kind: TypeAlias = str
STRING: Kind = "String"
NUMBER: Kind = "Int32"
BOOLEAN: Kind = "Boolean"
NULL: Kind = "null"


@dataclass(frozen=True)
class Member:
    """A property."""

    kind: Kind
    get: Callable[[Any], Any]


@dataclass(frozen=True)
class Method:
    """A method, with the types it takes and gives."""

    takes: tuple[Kind, ...]
    result: Kind
    call: Callable[..., Any]


MEMBERS: Mapping[Kind, Mapping[str, Member | Method]] = {
    "Context": {
        "Product": Member("Product", lambda exchange: exchange.product),
        "Subscription": Member("Subscription", lambda exchange: exchange.subscription),
        "Request": Member("Request", lambda exchange: exchange.request),
        "Response": Member("Response", lambda exchange: exchange.response),
        "RequestId": Member("Guid", lambda exchange: exchange.request_id),
    },
    "Product": {"Id": Member(STRING, lambda product: product.id)},
    "Subscription": {"Id": Member(STRING, lambda subscription: subscription.id)},
    "Guid": {"ToString": Method((), STRING, str)},
    "Request": {
        "Body": Member("Body", lambda request: request.body),
        "Headers": Member("Headers", lambda request: request.headers),
    },
    "Response": {
        "StatusCode": Member(NUMBER, lambda response: response.status),
        "Headers": Member("Headers", lambda response: response.headers),
    },
    "Headers": {
        "GetValueOrDefault": Method(
            (STRING, STRING), STRING, lambda headers, name, default: headers.get(name) or default
        )
    },
    "Regex": {
        "Replace": Method((STRING, STRING, STRING), STRING, lambda regex, text, old, new: regex.sub(old, new, text))
    },
}
