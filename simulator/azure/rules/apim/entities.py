"""APIs, products, subscriptions and their links: one write at a time per entity.

Facts: docs/facts/api-management.md#subscriptions-and-products,
docs/facts/api-management.md#one-write-at-a-time.
"""

# ruff: noqa: ARG002, D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import yaml

from simulator.azure.errors import ArmError, bad_request, conflict
from simulator.azure.rules.apim.names import absolute, relative, service_of, used_by
from simulator.azure.rules.apim.service import lock_of
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.azure.state.store import Resource
from simulator.plugin.values import dig, fill

_METHODS: Final = ("get", "put", "post", "delete", "patch", "head", "options", "trace")


def require_quiet_service(op: Op) -> None:
    """A service in transition takes no writes inside.

    Raises:
        ArmError: 409.
    """
    key = lock_of(service_of(op.id))
    if any(key in other.locks for other in op.state.running()):
        raise conflict(
            "ServiceLocked",
            f"The API Service {service_of(op.id).rsplit('/', 1)[-1]} is transitioning at this time. Please try the "
            "request "
            "again later.",
        )


def in_progress(what: str) -> ArmError:
    """Two writes of one API or product at a time."""
    return conflict("PessimisticConcurrencyConflict", f"Operation on the {what} is in progress")


class Entity(Rules):
    """Anything inside a service."""

    typical_seconds = 3.0

    def create(self, op: Op) -> None:
        require_quiet_service(op)


@imitates("apimanagement:Api")
class Api(Entity):
    """APIs; a definition in `value` brings its operations."""

    defaults: ClassVar[dict[str, Any]] = {
        "apiRevision": "1",
        "isCurrent": True,
        "isOnline": True,
        "apiType": "http",
        "protocols": ["https"],
        "subscriptionRequired": True,
        "authenticationSettings": {},
        "subscriptionKeyParameterNames": {"header": "Ocp-Apim-Subscription-Key", "query": "subscription-key"},
    }
    hidden = ("value", "format", "wsdlSelector")
    typical_seconds = 10.0

    def exclusive(self, op: Op) -> tuple[str, ...]:
        return (f"apim-api:{op.id}",)

    def busy(self, op: Op, key: str) -> ArmError:
        return in_progress("API")

    def create(self, op: Op) -> None:
        require_quiet_service(op)
        path = str(op.inputs.get("path", "")).strip("/").lower()
        for other in op.state.inside(service_of(op.id)):
            same_path = str(other.properties.get("path", "")).strip("/").lower() == path
            # ProductApi shows an API too; only APIs themselves own a path.
            if other.key == "apimanagement:Api" and same_path and other.id.lower() != op.id.lower():
                if other.properties.get("apiVersionSetId") and op.inputs.get("apiVersionSetId"):
                    continue
                raise bad_request(
                    "ValidationError",
                    f"One or more fields contain incorrect values: Cannot create API '{op.name}': API path '{path}' is "
                    f"already used by '{relative(other.id)}'.",
                )
        definition(op)

    def delete(self, op: Op) -> None:
        if error := used_by(op, f"The API '{op.name}'"):
            raise error

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        document = definition(op) or {}
        info = document.get("info") or {}
        fill(outputs, {"displayName": info.get("title") or op.name, "description": info.get("description")})
        kept = op.old.properties.get("serviceUrl") if op.old else None
        fill(outputs, {"serviceUrl": dig(document, "servers.0.url") or kept})

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        document = definition(op)
        if document is None:
            return None
        wanted = {operation["name"]: operation for operation in _operations(document)}
        prefix = f"{op.id}/operations/"
        for child in op.state.inside(op.id):
            imported = child.key == "apimanagement:ApiOperation" and child.managed_by == op.id
            if imported and child.name not in wanted:
                op.state.remove(child.id)
        for name, body in wanted.items():
            if op.state.get(prefix + name) is None or op.state.resources[(prefix + name).lower()].managed_by:
                op.state.put(
                    Resource(
                        id=prefix + name,
                        token="azure-native:apimanagement:ApiOperation",  # noqa: S106 - a type
                        created=op.now,
                        managed_by=op.id,
                        properties=body,
                    )
                )
        return None


def definition(op: Op) -> dict[str, Any] | None:
    """The API definition of a request, parsed; `None` without one or for links.

    Raises:
        ArmError: ValidationError for a text that is not one.
    """
    value, kind = op.inputs.get("value"), str(op.inputs.get("format", ""))
    if value is None or kind.endswith("-link") or not kind:
        return None
    if kind.startswith(("wsdl", "wadl", "graphql", "grpc", "odata")):
        return None
    try:
        document = json.loads(value) if kind.endswith("+json") or kind == "swagger-json" else yaml.safe_load(value)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(
            "ValidationError",
            f"One or more fields contain incorrect values: Parsing error(s): the {kind} text is not valid.",
        ) from error
    if not isinstance(document, dict) or not (document.get("openapi") or document.get("swagger")):
        raise bad_request(
            "ValidationError", "One or more fields contain incorrect values: Parsing error(s): 'openapi' is missing."
        )
    return document


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, item in (document.get("paths") or {}).items():
        for method in _METHODS:
            body = (item or {}).get(method)
            if body is None:
                continue
            generated = f"{method}-{path.strip('/').replace('/', '-').replace('{', '').replace('}', '')}"
            yield {
                "name": str(body.get("operationId") or generated),
                "displayName": str(body.get("summary") or body.get("operationId") or generated),
                "method": method.upper(),
                "urlTemplate": path,
                "type": "Microsoft.ApiManagement/service/apis/operations",
            }


@imitates("apimanagement:ApiOperation", "apimanagement:ApiSchema", "apimanagement:ApiVersionSet")
class Plain(Entity):
    """Entities without rules of their own."""


@imitates("apimanagement:Product")
class Product(Entity):
    """Products: not published until told so."""

    defaults: ClassVar[dict[str, Any]] = {"state": "notPublished", "subscriptionRequired": True}

    def exclusive(self, op: Op) -> tuple[str, ...]:
        return (f"apim-product:{op.id}",)

    def busy(self, op: Op, key: str) -> ArmError:
        return in_progress("Product")

    def create(self, op: Op) -> None:
        require_quiet_service(op)
        name = str(op.inputs["displayName"]).lower()
        for other in op.state.inside(service_of(op.id)):
            same = str(other.properties.get("displayName", "")).lower() == name and other.id.lower() != op.id.lower()
            if other.key == "apimanagement:Product" and same:
                raise conflict(
                    "ValidationError", f"A product with the name '{op.inputs['displayName']}' already exists."
                )
        if op.inputs.get("subscriptionRequired") is False:
            for field in ("approvalRequired", "subscriptionsLimit"):
                if op.inputs.get(field):
                    raise bad_request(
                        "ValidationError",
                        f"One or more fields contain incorrect values: {field} needs subscriptionRequired.",
                    )

    def delete(self, op: Op) -> None:
        holders = [
            user for user in op.state.referrers(op.id, exclude_inside=op.id) if user.key.endswith(":Subscription")
        ]
        if holders:
            raise bad_request(
                "ValidationError",
                f"Product '{op.name}' has subscriptions ({relative(holders[0].id)}). Delete them first.",
            )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        if outputs.get("subscriptionRequired"):
            fill(outputs, {"approvalRequired": False})


@imitates("apimanagement:ProductApi", "apimanagement:ProductGroup")
class ProductLink(Entity):
    """APIs and groups of a product."""

    def exclusive(self, op: Op) -> tuple[str, ...]:
        return (f"apim-product:{op.parent_id}",)

    def busy(self, op: Op, key: str) -> ArmError:
        return in_progress("Product")

    def create(self, op: Op) -> None:
        require_quiet_service(op)
        collection = "apis" if op.key.endswith("ProductApi") else "groups"
        target = f"{service_of(op.id)}/{collection}/{op.name}"
        if op.state.get(target) is None:
            kind = "API" if collection == "apis" else "Group"
            raise ArmError(404, "ResourceNotFound", f"{kind} not found: '{op.name}'.")
        op.extra_refs = [target]

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        target = op.state.get(op.extra_refs[0]) if op.extra_refs else None
        for key, value in (target.properties if target else {}).items():
            if key in op.schema.outputs and key not in {"type", "azureApiVersion", "etag"}:
                outputs.setdefault(key, value)


@imitates("apimanagement:Subscription")
class Subscription(Entity):
    """Subscriptions: `submitted` until told otherwise, keys only by `listSubscriptionSecrets`."""

    defaults: ClassVar[dict[str, Any]] = {"state": "submitted", "allowTracing": False}
    hidden = ("primaryKey", "secondaryKey", "notify", "appType")

    def exclusive(self, op: Op) -> tuple[str, ...]:
        return (f"apim-subscriptions:{service_of(op.id)}",)

    def busy(self, op: Op, key: str) -> ArmError:
        return ArmError(
            412,
            "PreconditionFailed",
            "Resource was modified since last retrieval: a concurrent operation on the same user or product is in "
            "progress.",
        )

    def create(self, op: Op) -> None:
        require_quiet_service(op)
        scope = absolute(op, op.inputs["scope"])
        if relative(scope).lower() != "/apis":
            if op.state.get(scope) is None:
                raise ArmError(404, "ResourceNotFound", f"Subscription scope '{relative(scope)}' not found.")
            op.extra_refs = [scope]
        limit = product.properties.get("subscriptionsLimit") if (product := op.state.get(scope)) else None
        if limit is not None and op.old is None:
            present = [other for other in op.state.referrers(scope) if other.key == op.key]
            if len(present) >= limit:
                raise bad_request(
                    "ValidationError", f"Subscriptions limit of product '{relative(scope)}' is reached: {limit}."
                )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        outputs["scope"] = absolute(op, op.inputs["scope"])
        outputs["createdDate"] = op.old.properties["createdDate"] if op.old else op.timestamp
        if outputs["state"] == "active":
            fill(outputs, {"startDate": outputs["createdDate"]})
        for key in ("primaryKey", "secondaryKey"):
            if op.inputs.get(key) is not None:
                op.notes[key] = op.digest(op.inputs[key])
