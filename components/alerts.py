"""Monitoring for operators: a workbook and alerts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import applicationinsights, monitor

from components import queries
from components.alert_rules import Alert, alerts, workbook
from components.scope import StackScope

_EVERY_MINUTES = 5


@dataclass(frozen=True)
class AlertsArgs:
    """`emails` get the alerts. `gateway_logs`: whether the workspace has the gateway's logs, which alerts ask."""

    scope: StackScope
    workspace_id: pulumi.Input[str]
    emails: tuple[str, ...]
    gateway_logs: bool


class Alerts(pulumi.ComponentResource):
    """Workbook, action group and alert rules."""

    def __init__(self, name: str, args: AlertsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:watch:Watch", name, None, opts)
        self._name, self._args = name, args
        self._workbook()
        if args.gateway_logs:
            groups = [self._action_group().id] if args.emails else []
            for alert in alerts():
                self._rule(alert, groups)
        self.register_outputs({})

    def _workbook(self) -> None:
        scope = self._args.scope
        applicationinsights.Workbook(
            f"{self._name}-workbook",
            resource_group_name=scope.resource_group_name,
            resource_name_=scope.names.workbook,
            location=scope.location,
            display_name=scope.names.workbook_title,
            kind=applicationinsights.WorkbookSharedTypeKind.SHARED,
            category="workbook",
            version="Notebook/1.0",
            # As Azure gives it back: in lower case (docs/facts/azure.md#forms-that-read-back).
            source_id=pulumi.Output.from_input(self._args.workspace_id).apply(str.lower),
            serialized_data=workbook(scope.names.workbook_title),
            tags={**scope.tags, "hidden-title": scope.names.workbook_title},  # Azure adds it, if nobody does
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _action_group(self) -> monitor.ActionGroup:
        scope = self._args.scope
        return monitor.ActionGroup(
            f"{self._name}-people",
            resource_group_name=scope.resource_group_name,
            action_group_name=scope.names.action_group,
            location="global",
            group_short_name=scope.names.prefix,  # shown in the messages; at most 12 characters, as the prefix is
            enabled=True,
            email_receivers=[
                monitor.MicrosoftCommonEmailReceiverArgs(name=email, email_address=email, use_common_alert_schema=True)
                for email in self._args.emails
            ],
            tags=dict(scope.tags),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _rule(self, alert: Alert, groups: Sequence[pulumi.Input[str]]) -> None:
        scope = self._args.scope
        monitor.ScheduledQueryRule(
            f"{self._name}-{alert.name}",
            resource_group_name=scope.resource_group_name,
            rule_name=scope.names.alert(alert.name),
            location=scope.location,
            kind=monitor.Kind.LOG_ALERT,
            display_name=scope.names.alert(alert.name),
            description=alert.description,
            enabled=True,
            severity=alert.severity,
            scopes=[self._args.workspace_id],
            evaluation_frequency=f"PT{_EVERY_MINUTES}M",
            window_size=window(alert.minutes),
            criteria=monitor.ScheduledQueryRuleCriteriaArgs(
                all_of=[
                    monitor.ConditionArgs(
                        query=queries.query(alert.query),
                        time_aggregation=monitor.TimeAggregation.COUNT,
                        # The SDK's enum of this name is another API's; this is the rule's own word.
                        operator="GreaterThan",
                        threshold=0,
                        failing_periods=monitor.ConditionFailingPeriodsArgs(
                            number_of_evaluation_periods=1, min_failing_periods_to_alert=1
                        ),
                    )
                ]
            ),
            auto_mitigate=True,
            # A new workspace does not know the tables until the first rows arrive, and Azure checks queries beforehand.
            skip_query_validation=True,
            actions=monitor.ActionsArgs(action_groups=list(groups)) if groups else None,
            tags=dict(scope.tags),
            opts=pulumi.ResourceOptions(parent=self),
        )


def window(minutes: int) -> str:
    """A duration as Azure gives it back: an hour is PT1H, not PT60M (docs/facts/azure.md#forms-that-read-back)."""
    hours, rest = divmod(minutes, 60)
    return "PT" + (f"{hours}H" if hours else "") + (f"{rest}M" if rest else "")
