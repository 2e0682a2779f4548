"""Monitoring and auto-shutdown: the few rules that hurt."""

# ruff: noqa: D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from simulator.azure.errors import bad_request
from simulator.azure.rules.base import Failure, Op, Rules, imitates
from simulator.azure.state.redaction import derived
from simulator.plugin.values import fill

_CLOCK: Final = re.compile(r"^([01]\d|2[0-3])[0-5]\d$")


@imitates("devtestlab:GlobalSchedule")
class GlobalSchedule(Rules):
    """Microsoft.DevTestLab/schedules: auto-shutdown is recognised by its name only."""

    typical_seconds = 3.0

    def create(self, op: Op) -> None:
        if op.inputs.get("taskType") != "ComputeVmShutdownTask":
            return
        vm = op.get(op.inputs.get("targetResourceId"))
        wanted = f"shutdown-computevm-{vm.name if vm else str(op.inputs.get('targetResourceId')).rsplit('/', 1)[-1]}"
        if op.name.lower() != wanted.lower():
            raise bad_request(
                "InvalidScheduleName", f"The schedule for a VM must be named '{wanted}', not '{op.name}'."
            )
        if vm is not None and vm.location != op.location:
            raise bad_request("InvalidScheduleLocation", f"The schedule must be in the VM's location '{vm.location}'.")
        clock = str((op.inputs.get("dailyRecurrence") or {}).get("time", ""))
        if not _CLOCK.match(clock):
            raise bad_request("InvalidScheduleTime", f"The daily time '{clock}' is not of the form HHMM.")

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        fill(
            outputs,
            {"status": "Enabled", "uniqueIdentifier": str(uuid.UUID(derived(op.state.salt, op.id, "schedule")))},
        )
        outputs["createdDate"] = op.old.properties["createdDate"] if op.old else op.timestamp


@imitates("operationalinsights:Workspace")
class Workspace(Rules):
    """Microsoft.OperationalInsights/workspaces."""

    defaults: ClassVar[dict[str, Any]] = {
        "retentionInDays": 30,
        "sku": {"name": "PerGB2018"},
        "publicNetworkAccessForIngestion": "Enabled",
        "publicNetworkAccessForQuery": "Enabled",
    }
    typical_seconds = 20.0

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        outputs["customerId"] = str(uuid.UUID(derived(op.state.salt, op.id, "workspace")))
        outputs["createdDate"] = op.old.properties["createdDate"] if op.old else op.timestamp


@imitates("applicationinsights:Component")
class Component(Rules):
    """Microsoft.Insights/components."""

    defaults: ClassVar[dict[str, Any]] = {
        "retentionInDays": 90,
        "applicationType": "web",
        "flowType": "Bluefield",
        "requestSource": "rest",
    }
    typical_seconds = 10.0

    def create(self, op: Op) -> None:
        if op.inputs.get("ingestionMode", "LogAnalytics") == "LogAnalytics" and not op.inputs.get(
            "workspaceResourceId"
        ):
            raise bad_request("BadRequest", "Components with ingestion mode LogAnalytics need a WorkspaceResourceId.")

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        key = str(uuid.UUID(derived(op.state.salt, op.id, "ikey")))
        app = str(uuid.UUID(derived(op.state.salt, op.id, "app")))
        host = f"https://{op.location}-1.in.applicationinsights.azure.com/"
        outputs.update(instrumentationKey=key, appId=app, applicationId=op.name, tenantId=op.tenant)
        outputs["connectionString"] = f"InstrumentationKey={key};IngestionEndpoint={host};ApplicationId={app}"
        outputs["creationDate"] = op.old.properties["creationDate"] if op.old else op.timestamp


@imitates("monitor:ActionGroup")
class ActionGroup(Rules):
    """Microsoft.Insights/actionGroups."""

    def check(self, inputs: dict[str, Any]) -> Iterator[Failure]:
        short = inputs.get("groupShortName")
        if isinstance(short, str) and not 1 <= len(short) <= 12:
            yield "groupShortName", f"'groupShortName' is too long ({len(short)}): at most 12 characters allowed"


@imitates("monitor:MetricAlert")
class MetricAlert(Rules):
    """Microsoft.Insights/metricAlerts: a global resource."""

    def create(self, op: Op) -> None:
        if op.location != "global":
            raise bad_request(
                "LocationNotAvailableForResourceType",
                f"The provided location '{op.location}' is not available for resource type "
                "'Microsoft.Insights/metricAlerts'. "
                "List of available regions for the resource type is 'global'.",
            )


@imitates("monitor:DiagnosticSetting")
class DiagnosticSetting(Rules):
    """Microsoft.Insights/diagnosticSettings, an extension of any resource."""

    def create(self, op: Op) -> None:
        places = ("workspaceId", "storageAccountId", "eventHubAuthorizationRuleId", "marketplacePartnerId")
        if not any(op.inputs.get(place) for place in places):
            raise bad_request("BadRequest", "At least one data sink needs to be specified.")
