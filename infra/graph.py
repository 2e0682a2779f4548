"""The resource graph of a stack without an engine: the program runs once under Pulumi's mocks and is written down."""

from __future__ import annotations

from typing import Any

from pulumi.runtime import mocks
from pulumi.runtime.proto import resource_pb2

from infra import program
from infra.engine import offline
from infra.reports.resource_graph import Registered
from plan import stack_file
from plan.model import FleetPlan
from plan.secrets import Secret


class _Nothing(mocks.Mocks):
    """Never asked: the recorder answers by itself."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        return args.name, {}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        return dict(args.args), None


class _Recorder(mocks.MockMonitor):
    """Keeps every registration and answers nothing but its URN: in a preview, what is not answered is unknown."""

    def __init__(self) -> None:
        super().__init__(_Nothing())
        self.seen: list[Registered] = []

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> Any:  # noqa: N802 - gRPC's name
        urn = self.make_urn(request.parent, request.type, request.name)
        if not request.type.startswith("pulumi:"):
            self.seen.append(
                Registered(
                    urn=urn,
                    type=request.type,
                    name=request.name,
                    parent=request.parent,
                    depends_on=tuple(request.dependencies),
                    custom=request.custom,
                )
            )
        return resource_pb2.RegisterResourceResponse(urn=urn)

    def Invoke(self, _: resource_pb2.ResourceInvokeRequest) -> Any:  # noqa: N802 - gRPC's name
        return resource_pb2.ResourceInvokeResponse()


def registered(plan: FleetPlan) -> tuple[Registered, ...]:
    """Every resource of the plan, in the order in which the program registers them."""
    recorder = _Recorder()
    # Those that are optional and would make a resource of their own are left out.
    needed = [secret for secret in Secret if secret.required or not secret.on_nodes]
    placeholders = {f"{stack_file.PROJECT}:{secret.key}": "not-a-secret" for secret in needed}
    offline.run(
        lambda: program.register(plan),
        recorder,
        stack=plan.stack,
        preview=True,
        config=placeholders,
        secret_keys=placeholders,
    )
    return tuple(recorder.seen)
