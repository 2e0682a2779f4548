"""The gateway's diagnostics: metadata of every request, no bytes of a body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_azure_native import apimanagement, monitor

from components.gateway.chain import Chain
from components.scope import StackScope
from gateway_policies.entities import Entity, KeyParameter
from plan.azure.gateway_model import GatewayPlan

SAMPLING_PERCENT = 100
"""All requests, because usage is counted from them. Model requests are few, and a record without a body is small."""


@dataclass(frozen=True)
class ObservabilityArgs:
    """`insights_connection_string` is a secret; `after`: what must be written before.

    In an existing service only our API is configured: its own diagnostic and logs are its owner's.
    """

    scope: StackScope
    service_name: pulumi.Input[str]
    service_id: pulumi.Input[str]
    gateway: GatewayPlan
    api_id: pulumi.Input[str]
    insights_id: pulumi.Input[str]
    insights_connection_string: pulumi.Input[str]
    workspace_id: pulumi.Input[str]
    after: Sequence[pulumi.Resource]


class Observability(pulumi.ComponentResource):
    """Logger, diagnostics of service and API, and the export of gateway logs. `tail` is the last thing written."""

    logger_id: pulumi.Output[str]
    tail: list[pulumi.Resource]

    def __init__(self, name: str, args: ObservabilityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:Observability", name, None, opts)
        gateway, chain = args.gateway, Chain(args.after, shared=args.gateway.shared)
        connection = gateway.entity_id(Entity.INSIGHTS_CONNECTION)
        here: dict[str, Any] = {
            "resource_group_name": args.scope.resource_group_name,
            "service_name": args.service_name,
        }
        # A named value of our own: given the text itself, the service hides it behind one with a random name, and
        # every refresh would see a change.
        chain.add(
            apimanagement.NamedValue(
                f"{name}-connection",
                **here,
                named_value_id=connection,
                display_name=connection,
                secret=True,
                value=pulumi.Output.secret(args.insights_connection_string),
                opts=chain.link(self),
            )
        )
        logger = chain.add(
            apimanagement.Logger(
                f"{name}-logger",
                **here,
                logger_id=gateway.entity_id(Entity.LOGGER),
                logger_type=apimanagement.LoggerType.APPLICATION_INSIGHTS,
                resource_id=args.insights_id,
                credentials={"connectionString": f"{{{{{connection}}}}}"},
                is_buffered=True,
                opts=chain.link(self),
            )
        )
        # The API's own diagnostic overrides the service's; the service's holds for any API that is added later.
        if not gateway.shared:
            chain.add(
                apimanagement.Diagnostic(
                    f"{name}-service",
                    **here,
                    diagnostic_id=Entity.DIAGNOSTIC.value,
                    **diagnostic_settings(logger.id),
                    opts=chain.link(self),
                )
            )
            self._export(name, args)
        chain.add(
            apimanagement.ApiDiagnostic(
                f"{name}-api",
                **here,
                api_id=args.api_id,
                diagnostic_id=Entity.DIAGNOSTIC.value,
                **diagnostic_settings(logger.id),
                opts=chain.link(self),
            )
        )
        self.logger_id, self.tail = logger.id, chain.tail
        self.register_outputs({})

    def _export(self, name: str, args: ObservabilityArgs) -> None:
        """Gateway logs to Log Analytics. Not `allLogs`: a category that Azure adds later could hold prompts."""
        monitor.DiagnosticSetting(
            f"{name}-logs",
            name="gateway-logs",
            resource_uri=args.service_id,
            workspace_id=args.workspace_id,
            log_analytics_destination_type="Dedicated",
            logs=[monitor.DiagnosticsLogSettingsArgs(category="GatewayLogs", enabled=True)],
            metrics=[monitor.DiagnosticsMetricSettingsArgs(category="AllMetrics", enabled=True)],
            opts=pulumi.ResourceOptions(parent=self),
        )


def diagnostic_settings(logger_id: pulumi.Output[str]) -> dict[str, Any]:
    """What every diagnostic records: metadata of each request, nothing of its bodies."""
    return {
        "logger_id": logger_id,
        "always_log": apimanagement.AlwaysLog.ALL_ERRORS,
        "sampling": apimanagement.SamplingSettingsArgs(
            sampling_type=apimanagement.SamplingType.FIXED, percentage=SAMPLING_PERCENT
        ),
        "frontend": _both_ways(),
        "backend": _both_ways(),
        "http_correlation_protocol": apimanagement.HttpCorrelationProtocol.W3_C,
        "verbosity": apimanagement.Verbosity.ERROR,
        "log_client_ip": False,
        "metrics": True,
    }


def _both_ways() -> apimanagement.PipelineDiagnosticSettingsArgs:
    return apimanagement.PipelineDiagnosticSettingsArgs(request=_message(), response=_message())


def _message() -> apimanagement.HttpMessageDiagnosticArgs:
    """No body bytes: they would hold back streams and show prompts. A key in a URL is hidden."""
    return apimanagement.HttpMessageDiagnosticArgs(
        body=apimanagement.BodyDiagnosticSettingsArgs(bytes=0),
        headers=[],
        data_masking=apimanagement.DataMaskingArgs(
            query_params=[
                apimanagement.DataMaskingEntityArgs(
                    mode=apimanagement.DataMaskingMode.HIDE, value=KeyParameter.QUERY.value
                )
            ]
        ),
    )
