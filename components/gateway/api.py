"""The API: its routes from an OpenAPI document, its policy, and the backend key that the policy sends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import apimanagement

from components.gateway.chain import Chain
from components.scope import StackScope
from gateway_policies import openapi
from gateway_policies.entities import Entity, KeyParameter
from plan.azure.gateway_model import GatewayPlan


@dataclass(frozen=True)
class ApiArgs:
    """`backend_key` is a secret; `key_after`: nodes that must take it first. `after`: what must be written before."""

    scope: StackScope
    service_name: pulumi.Input[str]
    gateway: GatewayPlan
    policy: str
    backend_key: pulumi.Input[str]
    after: Sequence[pulumi.Resource]
    key_after: Sequence[pulumi.Resource] = ()


class Api(pulumi.ComponentResource):
    """Named value, API and policy. `api_id` names the API; `tail` is the last thing written."""

    api_id: pulumi.Output[str]
    tail: list[pulumi.Resource]

    def __init__(self, name: str, args: ApiArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:Api", name, None, opts)
        gateway, chain = args.gateway, Chain(args.after, shared=args.gateway.shared)
        chain.add(
            apimanagement.NamedValue(
                f"{name}-backend-key",
                resource_group_name=args.scope.resource_group_name,
                service_name=args.service_name,
                named_value_id=gateway.entity_id(Entity.BACKEND_KEY),
                display_name=gateway.entity_id(Entity.BACKEND_KEY),
                # By value: API Management keeps it encrypted, and a rotated key is here with the same `up`.
                value=pulumi.Output.secret(args.backend_key),
                secret=True,
                opts=pulumi.ResourceOptions.merge(
                    chain.link(self), pulumi.ResourceOptions(depends_on=list(args.key_after))
                ),
            )
        )
        api = chain.add(
            apimanagement.Api(
                f"{name}-api",
                resource_group_name=args.scope.resource_group_name,
                service_name=args.service_name,
                api_id=gateway.entity_id(Entity.API),
                display_name="OpenAI-compatible inference",
                path=gateway.api_path,
                protocols=[apimanagement.Protocol.HTTPS],
                subscription_required=True,
                subscription_key_parameter_names=apimanagement.SubscriptionKeyParameterNamesContractArgs(
                    header=KeyParameter.HEADER.value, query=KeyParameter.QUERY.value
                ),
                format=apimanagement.ContentFormat.OPENAPI_JSON,
                value=openapi_document(),
                opts=chain.link(self, alone=True),  # under another id it would want the same path
            )
        )
        self.api_id = api.name
        chain.add(
            apimanagement.ApiPolicy(
                f"{name}-policy",
                resource_group_name=args.scope.resource_group_name,
                service_name=args.service_name,
                api_id=self.api_id,
                policy_id=Entity.POLICY.value,
                format=apimanagement.PolicyContentFormat.RAWXML,
                value=args.policy,
                opts=chain.link(self),
            )
        )
        self.tail = chain.tail
        self.register_outputs({"api_id": self.api_id})


def openapi_document() -> str:
    """The API's description as it is imported: compact, so that another layout of the file changes nothing in Azure."""
    return json.dumps(openapi.document(), ensure_ascii=False, separators=(",", ":"))
