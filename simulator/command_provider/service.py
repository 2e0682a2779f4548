"""Pulumi's provider protocol for the command resources."""

import os
import secrets
from collections.abc import Callable, Mapping
from functools import wraps
from importlib.metadata import version
from types import ModuleType
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc

from simulator.command_provider import hosts, local
from simulator.command_provider.command import (
    INPUTS,
    LOCAL_COMMAND,
    LOCAL_RUN,
    OUTPUTS,
    REMOTE_COPY,
    TRIGGERS,
    CommandFailedError,
    Say,
    Stage,
    automatic_variables,
    changed,
    command_for,
    failures,
    with_defaults,
)
from simulator.plugin.values import UNKNOWN, Secret, from_wire, has_unknown, reveal, secrets_in, to_wire

Method = Callable[[Any, Any, grpc.ServicerContext], Any]
QUIET = "none"


def told_as_error(method: Method) -> Method:
    """A failed command becomes the operation's error."""

    @wraps(method)
    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except CommandFailedError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))

    return call


class CommandProvider(provider_pb2_grpc.ResourceProviderServicer):
    """The methods that the engine calls for these resources; the rest answers UNIMPLEMENTED."""

    def __init__(self, engine: str) -> None:
        self._engine = engine_pb2_grpc.EngineStub(grpc.insecure_channel(engine)) if engine else None

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """The version that this stands in for."""
        return plugin_pb2.PluginInfo(version=version("pulumi-command"))

    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        """The provider has no settings."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """So nothing differs."""
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.ConfigureResponse:
        """Secrets arrive marked, so that the marks can be handed back."""
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """The engine ends this process next."""
        return empty_pb2.Empty()

    def Check(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        """Defaults and plain mistakes."""
        kind, inputs = _kind(request), from_wire(request.news)
        if kind not in INPUTS:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"this stand-in for pulumi-resource-command has no {kind}")
        found = [
            provider_pb2.CheckFailure(property=name, reason=reason) for name, reason in failures(kind, reveal(inputs))
        ]
        if "connection" in inputs:
            inputs["connection"] = reveal(inputs["connection"])
        filled = with_defaults(kind, inputs)
        if isinstance(filled.get("connection"), Mapping):
            filled["connection"] = Secret(filled["connection"])
        return provider_pb2.CheckResponse(inputs=to_wire(filled), failures=found)

    def Diff(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Any changed input is an update, changed triggers a replacement."""
        names = changed(reveal(from_wire(request.old_inputs)), reveal(from_wire(request.news)))
        names = [name for name in names if name not in request.ignoreChanges]
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if names else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=names,
            replaces=[name for name in names if name == TRIGGERS],
        )

    @told_as_error
    def Create(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        """Run the `create` command."""
        state = self._apply(request, Stage.CREATE, request.properties, {}, preview=request.preview)
        return provider_pb2.CreateResponse(id=f"cmd{secrets.token_hex(4)}", properties=to_wire(state))

    @told_as_error
    def Update(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.UpdateResponse:
        """Run the `update` command, or `create` where there is none."""
        state = self._apply(request, Stage.UPDATE, request.news, from_wire(request.olds), preview=request.preview)
        return provider_pb2.UpdateResponse(properties=to_wire(state))

    @told_as_error
    def Delete(self, request: Any, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Run the `delete` command of the old state, over the old state's connection."""
        old = from_wire(request.properties)
        if _kind(request) != REMOTE_COPY:
            self._run(request, Stage.DELETE, reveal(old), reveal(old))
        return empty_pb2.Empty()

    def Read(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        """Nothing can be read back: the state is what it was."""
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    @told_as_error
    def Invoke(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.InvokeResponse:
        """`local.run`, which runs at every preview, too."""
        if request.tok != LOCAL_RUN:
            context.abort(
                grpc.StatusCode.UNIMPLEMENTED, f"this stand-in for pulumi-resource-command has no {request.tok}"
            )
        arguments = reveal(from_wire(request.args))
        result = local.run(arguments.get("command", ""), arguments, {}, lambda _: None)
        return provider_pb2.InvokeResponse(**{"return": to_wire({**arguments, **vars(result)})})

    def _apply(
        self, request: Any, stage: Stage, properties: Any, old: Mapping[str, Any], *, preview: bool
    ) -> dict[str, Any]:
        """The new state: inputs as they came, with outputs that are secret when an input that feeds them is."""
        kind, inputs = _kind(request), from_wire(properties)
        if preview or has_unknown(inputs):
            return {**inputs, **dict.fromkeys(OUTPUTS[kind], UNKNOWN)}
        plain = reveal(inputs)
        if kind == REMOTE_COPY:
            _remote().copy(plain, self._speaker(request, plain))
            return inputs
        outputs = self._run(request, stage, plain, reveal(old))
        feeding = {name: value for name, value in inputs.items() if name != "connection"}
        if secrets_in(feeding):
            outputs = {name: Secret(value) for name, value in outputs.items()}
        return {**inputs, **outputs}

    def _run(
        self, request: Any, stage: Stage, inputs: Mapping[str, Any], previous: Mapping[str, Any]
    ) -> dict[str, Any]:
        command = command_for(stage, inputs)
        if command is None:
            return {"stdout": "", "stderr": ""}
        runner = local if _kind(request) == LOCAL_COMMAND else _remote()
        result = runner.run(command, inputs, automatic_variables(inputs, previous), self._speaker(request, inputs))
        return dict(vars(result))

    def _speaker(self, request: Any, inputs: Mapping[str, Any]) -> Say:
        """Lines of output go to the engine's display as they come, secrets or not, unless `logging: none`."""
        if self._engine is None or inputs.get("logging") == QUIET:
            return lambda _: None
        engine = self._engine

        def say(line: str) -> None:
            engine.Log(engine_pb2.LogRequest(severity=engine_pb2.INFO, message=line, urn=request.urn, ephemeral=True))

        return say


def _remote() -> ModuleType:
    """Imported when needed: the SSH library takes longer to load than all else here."""
    if os.environ.get(hosts.VARIABLE):
        return hosts
    from simulator.command_provider import remote  # noqa: PLC0415

    return remote


def _kind(request: Any) -> str:
    """The resource's type, from its URN."""
    kind: str = request.urn.split("::")[2].rsplit("$", 1)[-1]
    return kind
