"""The resource graph of a stack without an engine: the program runs once under Pulumi's mocks and is written down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.runtime import mocks, run_pulumi_func, set_mocks
from pulumi.runtime.proto import resource_pb2

from infra import program, stack_file
from infra.plan import Plan
from infra.settings import SECRET_KEYS


@dataclass(frozen=True)
class Registered:
    """One resource as the program registered it. `parent` and `depends_on` are URNs; empty parent: the stack."""

    urn: str
    type: str
    name: str
    parent: str
    depends_on: tuple[str, ...]
    custom: bool


class _Echo(mocks.Mocks):
    """Answers with what it was asked; whatever only a cloud can know stays unknown, as in a preview."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        return dict(args.args)


class _Recorder(mocks.MockMonitor):
    """Keeps every registration, options included."""

    def __init__(self) -> None:
        super().__init__(_Echo())
        self.seen: list[Registered] = []

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> Any:  # noqa: N802 - gRPC's name
        if not request.type.startswith("pulumi:"):
            self.seen.append(
                Registered(
                    urn=self.make_urn(request.parent, request.type, request.name),
                    type=request.type,
                    name=request.name,
                    parent=request.parent,
                    depends_on=tuple(request.dependencies),
                    custom=request.custom,
                )
            )
        return super().RegisterResource(request)


def registered(plan: Plan) -> tuple[Registered, ...]:
    """Every resource of the plan, in the order in which the program registers them."""
    recorder = _Recorder()
    set_mocks(recorder.mocks, project=plan.project, stack=plan.stack, preview=True, monitor=recorder)
    placeholders = {f"{stack_file.PROJECT}:{key}": "not-a-secret" for key in SECRET_KEYS}
    pulumi.runtime.set_all_config(placeholders, secret_keys=list(placeholders))
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(run_pulumi_func(lambda: program.register(plan)))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return tuple(recorder.seen)


def from_checkpoint(resources: Iterable[dict[str, Any]]) -> tuple[Registered, ...]:
    """The same shape from a checkpoint (`pulumi stack export`, deployment.resources)."""
    return tuple(
        Registered(
            urn=resource["urn"],
            type=resource["type"],
            name=resource["urn"].rsplit("::", 1)[-1],
            parent=resource.get("parent", ""),
            depends_on=tuple(resource.get("dependencies") or ()),
            custom=bool(resource.get("custom")),
        )
        for resource in resources
        if not resource["type"].startswith("pulumi:")
    )


def as_json(resources: Iterable[Registered]) -> str:
    """For scripts."""
    return json.dumps([vars(resource) for resource in resources], indent=2)
