"""Logs and metrics: a Log Analytics workspace and the Application Insights that writes into it."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import applicationinsights, operationalinsights

from components.scope import StackScope
from plan.settings.azure import Monitoring as MonitoringSettings


@dataclass(frozen=True)
class MonitoringArgs:
    """Retention in days and the daily cap in GB come from the stack file."""

    scope: StackScope
    settings: MonitoringSettings


class Monitoring(pulumi.ComponentResource):
    """Workspace and insights. `insights_connection_string` is a secret: whoever has it can write telemetry."""

    workspace_id: pulumi.Output[str]
    insights_id: pulumi.Output[str]
    insights_connection_string: pulumi.Output[str]

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:monitoring:Monitoring", name, None, opts)
        scope = args.scope
        workspace = operationalinsights.Workspace(
            f"{name}-workspace",
            resource_group_name=scope.resource_group_name,
            workspace_name=scope.names.workspace,
            location=scope.location,
            sku=operationalinsights.WorkspaceSkuArgs(name=operationalinsights.WorkspaceSkuNameEnum.PER_GB2018),
            retention_in_days=args.settings.retention_days,
            workspace_capping=operationalinsights.WorkspaceCappingArgs(daily_quota_gb=args.settings.daily_cap_gb),
            tags=dict(scope.tags),
            opts=pulumi.ResourceOptions(parent=self),
        )
        insights = applicationinsights.Component(
            f"{name}-insights",
            resource_group_name=scope.resource_group_name,
            resource_name_=scope.names.insights,
            location=scope.location,
            kind="web",
            application_type=applicationinsights.ApplicationType.WEB,
            workspace_resource_id=workspace.id,
            ingestion_mode=applicationinsights.IngestionMode.LOG_ANALYTICS,
            tags=dict(scope.tags),
            opts=pulumi.ResourceOptions(
                parent=self, additional_secret_outputs=["connection_string", "instrumentation_key"]
            ),
        )
        self.workspace_id = workspace.id
        self.insights_id = insights.id
        self.insights_connection_string = pulumi.Output.secret(insights.connection_string)
        self.register_outputs({"workspace_id": self.workspace_id, "insights_id": self.insights_id})
