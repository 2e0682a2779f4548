"""Policies and fragments as resources: what they name must exist; what they name cannot be deleted."""

# ruff: noqa: D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

from typing import Any, Final

from simulator.azure.errors import bad_request
from simulator.azure.rules.apim import policy_xml
from simulator.azure.rules.apim.names import named_values_by_display_name, service_of, used_by
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.plugin.values import dig

_POLICY_TYPES: Final = (
    "apimanagement:Policy",
    "apimanagement:ProductPolicy",
    "apimanagement:ApiPolicy",
    "apimanagement:ApiOperationPolicy",
)


def resolve(op: Op, document: policy_xml.PolicyDocument) -> list[str]:
    """Ids of everything a policy names.

    Raises:
        ArmError: ValidationError for what does not exist.
    """
    service = service_of(op.id)
    found: list[str] = []
    for element in ("set-backend-service", "llm-semantic-cache-lookup"):
        for attribute in ("backend-id", "embeddings-backend-id"):
            for name in document.attribute(element, attribute):
                found.append(_existing(op, f"{service}/backends/{name}", element, f"Backend with id '{name}'"))
    for name in document.attribute("include-fragment", "fragment-id"):
        what = f"Policy fragment with id '{name}'"
        found.append(_existing(op, f"{service}/policyFragments/{name}", "include-fragment", what))
    known = named_values_by_display_name(op.state, service)
    for name in sorted(document.named_values):
        if name.lower() not in known:
            raise policy_xml.validation_error(f"Cannot find a property '{name}'.")
        found.append(known[name.lower()].id)
    return found


def _existing(op: Op, resource_id: str, element: str, what: str) -> str:
    if op.state.get(resource_id) is None:
        raise policy_xml.validation_error(f"Error in element '{element}': {what} could not be found.")
    return resource_id


def require_tier(op: Op, document: policy_xml.PolicyDocument) -> None:
    """Policies the service's tier has not got.

    Raises:
        ArmError: ValidationError.
    """
    service = op.state.get(service_of(op.id))
    tier = dig(service.properties if service else {}, "sku.name")
    for statement in document.statements:
        if tier == "Consumption" and statement.name in policy_xml.NOT_ON_CONSUMPTION:
            raise policy_xml.validation_error(
                f"Error in element '{statement.name}': this policy is not supported in tier 'Consumption'."
            )


class _Document(Rules):
    root = "policies"
    typical_seconds = 3.0

    def create(self, op: Op) -> None:
        policy_format = str(op.inputs.get("format", "xml"))
        if policy_format.endswith("-link"):
            return
        is_global = op.key == "apimanagement:Policy"
        document = policy_xml.read(str(op.inputs["value"]), policy_format, self.root, is_global=is_global)
        require_tier(op, document)
        op.extra_refs = resolve(op, document)

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        """What a GET shows: the service's layout, always in format `xml`."""
        policy_format = str(op.inputs.get("format", "xml"))
        if not policy_format.endswith("-link"):
            document = policy_xml.read(str(op.inputs["value"]), policy_format, self.root)
            outputs["value"] = document.text
        outputs["format"] = "xml"


@imitates(*_POLICY_TYPES)
class PolicyDocumentRules(_Document):
    """Policies of the service, a product, an API or an operation."""

    def create(self, op: Op) -> None:
        if op.inputs.get("policyId", "policy") != "policy":
            raise bad_request("ValidationError", f"The policy's id must be 'policy', not '{op.name}'.")
        super().create(op)


@imitates("apimanagement:PolicyFragment")
class PolicyFragment(_Document):
    """Reusable parts."""

    root = "fragment"

    def delete(self, op: Op) -> None:
        if error := used_by(op, f"The Policy Fragment '{op.name}'"):
            raise error
