"""Monitoring for operators: a workbook and alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import applicationinsights, monitor

from components import queries
from components.alert_rules import Alert, Metric, alerts, workbook
from components.scope import StackScope

_EVERY_MINUTES = 5
_GLOBAL = "global"
_VMS = "Microsoft.Compute/virtualMachines"


@dataclass(frozen=True)
class AlertsArgs:
    """`emails` get the alerts. `gateway_logs`: whether the workspace has the gateway's logs, which queries ask.

    `vm_ids` are the nodes' VMs; `peers` as `alert_rules.peers` tells them.
    """

    scope: StackScope
    workspace_id: pulumi.Input[str]
    vm_ids: Sequence[pulumi.Input[str]]
    peers: Mapping[str, str]
    emails: tuple[str, ...]
    gateway_logs: bool


class Alerts(pulumi.ComponentResource):
    """Workbook, action group and alert rules."""

    def __init__(self, name: str, args: AlertsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:watch:Watch", name, None, opts)
        self._name, self._args = name, args
        self._workbook()
        groups = [self._action_group().id] if args.emails else []
        for alert in alerts():
            self._watch(alert, groups)
        self.register_outputs({})

    def _watch(self, alert: Alert, groups: Sequence[pulumi.Input[str]]) -> None:
        if alert.metric is not None:
            self._metric(alert, alert.metric, groups)
        elif alert.operation is not None:
            self._operation(alert, alert.operation, groups)
        elif alert.query is not None and self._args.gateway_logs:
            if not queries.asks_for_nodes(alert.query):
                self._rule(alert, queries.query(alert.query), groups)
            elif self._args.peers:  # a node without an equal cannot be told by it
                self._rule(alert, queries.of_nodes(alert.query, self._args.peers), groups)

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
            location=_GLOBAL,
            group_short_name=scope.names.prefix,  # shown in the messages; at most 12 characters, as the prefix is
            enabled=True,
            email_receivers=[
                monitor.MicrosoftCommonEmailReceiverArgs(name=email, email_address=email, use_common_alert_schema=True)
                for email in self._args.emails
            ],
            tags=dict(scope.tags),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _metric(self, alert: Alert, metric: Metric, groups: Sequence[pulumi.Input[str]]) -> None:
        """One rule over all VMs: it fires and clears for each by itself."""
        scope = self._args.scope
        monitor.MetricAlert(
            f"{self._name}-{alert.name}",
            resource_group_name=scope.resource_group_name,
            rule_name=scope.names.alert(alert.name),
            location=_GLOBAL,
            description=alert.description,
            enabled=True,
            severity=alert.severity,
            scopes=list(self._args.vm_ids),
            target_resource_type=_VMS,
            target_resource_region=scope.location,
            evaluation_frequency="PT1M",
            window_size=window(alert.minutes),
            criteria=monitor.MetricAlertMultipleResourceMultipleMetricCriteriaArgs(
                odata_type="Microsoft.Azure.Monitor.MultipleResourceMultipleMetricCriteria",
                all_of=[
                    monitor.MetricCriteriaArgs(
                        criterion_type="StaticThresholdCriterion",
                        name=alert.name,
                        metric_namespace=_VMS,
                        metric_name=metric.name,
                        time_aggregation=monitor.AggregationTypeEnum.AVERAGE,
                        operator=monitor.Operator.LESS_THAN,
                        threshold=metric.below,
                        dimensions=[
                            monitor.MetricDimensionArgs(name=name, operator="Include", values=list(values))
                            for name, values in metric.only.items()
                        ],
                    )
                ],
            ),
            auto_mitigate=True,
            actions=[monitor.MetricAlertActionArgs(action_group_id=group) for group in groups],
            tags=dict(scope.tags),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _operation(self, alert: Alert, operation: str, groups: Sequence[pulumi.Input[str]]) -> None:
        scope = self._args.scope
        wanted = {"category": "Administrative", "operationName": operation, "status": "Failed"}
        monitor.ActivityLogAlert(
            f"{self._name}-{alert.name}",
            resource_group_name=scope.resource_group_name,
            activity_log_alert_name=scope.names.alert(alert.name),
            location=_GLOBAL,
            description=alert.description,
            enabled=True,
            scopes=list(self._args.vm_ids),
            condition=monitor.AlertRuleAllOfConditionArgs(
                all_of=[
                    monitor.AlertRuleAnyOfOrLeafConditionArgs(field=field, equals=value)
                    for field, value in wanted.items()
                ]
            ),
            actions=monitor.ActionListArgs(
                action_groups=[monitor.ActionGroupArgs(action_group_id=group) for group in groups]
            ),
            tags=dict(scope.tags),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _rule(self, alert: Alert, query: str, groups: Sequence[pulumi.Input[str]]) -> None:
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
                        query=query,
                        time_aggregation=monitor.TimeAggregation.COUNT,
                        # The SDK's enum of this name is another API's; this is the rule's own word.
                        operator="GreaterThan",
                        threshold=0,
                        dimensions=[_each(alert.by)] if alert.by is not None else None,
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


def _each(column: str) -> monitor.DimensionArgs:
    """Every value of a column by itself. Without it the workspace has one alarm, which is silent for the next value."""
    return monitor.DimensionArgs(name=column, operator=monitor.DimensionOperator.INCLUDE, values=["*"])


def window(minutes: int) -> str:
    """A duration as Azure gives it back: an hour is PT1H, not PT60M (docs/facts/azure.md#forms-that-read-back)."""
    hours, rest = divmod(minutes, 60)
    return "PT" + (f"{hours}H" if hours else "") + (f"{rest}M" if rest else "")
