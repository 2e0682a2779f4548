"""Pulumi's provider protocol: gRPC requests in, decisions of the other modules out.

Everything on the wire is used as the azure-native provider uses it: old inputs for Diff, the engine's automatic names,
preview flags, custom timeouts, partial failures.
"""

# ruff: noqa: ARG002, N802 - the names and arguments are gRPC's
from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import any_pb2, empty_pb2, struct_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from simulator.azure import fault_injection
from simulator.azure.cloud.functions import invoke
from simulator.azure.cloud.subscription import Cloud, ResourceRequest
from simulator.azure.errors import SIMULATED, ArmError, InitFailedError, PlainError, SimulatorError
from simulator.azure.provider.check import apply_defaults, failures
from simulator.azure.provider.diff import Change, Kind, diff
from simulator.azure.provider.preview import preview_outputs
from simulator.azure.provider.projection import imported_inputs, refreshed_inputs
from simulator.azure.provider.retries import persistently
from simulator.azure.sdk import schema
from simulator.azure.sdk.naming import Autonaming, AutonamingMode
from simulator.azure.sdk.paths import path_of
from simulator.azure.state.redaction import private_texts, scrub
from simulator.plugin.values import UNKNOWN, Secret, from_wire, reveal, to_wire

_KINDS: Final = {
    (Kind.ADD, False): provider_pb2.PropertyDiff.ADD,
    (Kind.ADD, True): provider_pb2.PropertyDiff.ADD_REPLACE,
    (Kind.DELETE, False): provider_pb2.PropertyDiff.DELETE,
    (Kind.DELETE, True): provider_pb2.PropertyDiff.DELETE_REPLACE,
    (Kind.UPDATE, False): provider_pb2.PropertyDiff.UPDATE,
    (Kind.UPDATE, True): provider_pb2.PropertyDiff.UPDATE_REPLACE,
}
_MODES: Final = {
    provider_pb2.CheckRequest.AutonamingOptions.PROPOSE: AutonamingMode.PROPOSE,
    provider_pb2.CheckRequest.AutonamingOptions.ENFORCE: AutonamingMode.ENFORCE,
    provider_pb2.CheckRequest.AutonamingOptions.DISABLE: AutonamingMode.DISABLE,
}

Method = Callable[[Any, Any, grpc.ServicerContext], Any]


def _guarded(method: Method) -> Method:
    """Turn refusals into gRPC errors whose text says that they are simulated and holds no secret."""

    @wraps(method)
    def call(self: SimulatedAzureNative, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except InitFailedError as failure:
            _abort_partial(request, context, failure)
        except schema.UnknownTypeError as error:
            context.abort(grpc.StatusCode.UNKNOWN, f"{SIMULATED} Resource type {error.args[0]} not found")
        except (ArmError, PlainError, SimulatorError) as error:
            context.abort(grpc.StatusCode.UNKNOWN, f"{SIMULATED} {scrub(str(error), _texts(request))}")
        except Exception as error:
            if context.code() is not None:  # one of the aborts above
                raise
            # Values may be secret: only the place of the fault is told.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            context.abort(grpc.StatusCode.INTERNAL, f"{SIMULATED} simulator fault: {type(error).__name__} at {place}")

    return call


def _texts(request: Any) -> list[str]:
    found: list[str] = []
    for field in ("news", "olds", "properties", "inputs", "old_inputs", "args"):
        value = getattr(request, field, None)
        if isinstance(value, struct_pb2.Struct):
            found += private_texts(from_wire(value))
    return found


def _abort_partial(request: Any, context: grpc.ServicerContext, failure: InitFailedError) -> None:
    reason = f"{SIMULATED} {scrub(failure.reason, _texts(request))}"
    inputs = request.properties if isinstance(request, provider_pb2.CreateRequest) else request.news
    detail = provider_pb2.ErrorResourceInitFailed(
        id=failure.resource_id, properties=to_wire(failure.outputs), reasons=[reason], inputs=inputs
    )
    packed = any_pb2.Any()
    packed.Pack(detail)
    code = grpc.StatusCode.UNKNOWN
    status = status_pb2.Status(code=code.value[0], message=reason, details=[packed])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, reason)


class SimulatedAzureNative(provider_pb2_grpc.ResourceProviderServicer):  # type: ignore[misc]
    """The servicer behind `pulumi-resource-azure-native`."""

    def __init__(self, cloud: Cloud, engine_address: str = "") -> None:
        self.cloud = cloud
        self._config: dict[str, str] = {}
        self._engine = _engine(engine_address)

    # --- the provider itself

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Tell the engine what this provider understands."""
        self._engine = _engine(request.engine_address) or self._engine
        return provider_pb2.ProviderHandshakeResponse(
            accept_secrets=True, supports_autonaming_configuration=True, accept_resources=False, accept_outputs=False
        )

    def Attach(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Attached to a provider that was already running."""
        self._engine = _engine(request.address)
        return empty_pb2.Empty()

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Same version as the SDK in use, so that the engine takes it for the right plugin."""
        return plugin_pb2.PluginInfo(version=schema.sdk_version())

    def GetSchema(self, request: Any, context: grpc.ServicerContext) -> Any:
        """The simulated provider has no package schema of its own."""
        return provider_pb2.GetSchemaResponse(schema='{"name":"azure-native","description":"simulated"}')

    def GetMapping(self, request: Any, context: grpc.ServicerContext) -> Any:
        """No converter mapping."""
        return provider_pb2.GetMappingResponse()

    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Any configuration will do: nothing is contacted."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Configuration never replaces anything."""
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_UNKNOWN)

    @_guarded
    def Configure(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Take the default location; say on the screen that nothing here is real."""
        self._config = {key.split(":")[-1]: value for key, value in request.variables.items()}
        fault_injection.check()
        self._log(
            f"azure-native is simulated: nothing is created in a cloud; its state is {self.cloud.store.path.name}"
        )
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, supports_autonaming_configuration=True
        )

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Interrupt waits."""
        self.cloud.cancel()
        return empty_pb2.Empty()

    # --- resources

    @_guarded
    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Defaults, then validation."""
        resource = schema.resource(_type_of(request))
        olds, news = from_wire(request.olds), from_wire(request.news)
        apply_defaults(
            resource,
            olds,
            news,
            logical_name=_logical_name(request.urn),
            seed=bytes(request.randomSeed) or request.urn.encode(),
            autonaming=_autonaming(request),
            default_location=self._default_location,
        )
        found = [
            provider_pb2.CheckFailure(property=item.property, reason=f"{SIMULATED} {item.reason}")
            for item in failures(resource, news)
        ]
        return provider_pb2.CheckResponse(inputs=to_wire(news), failures=found)

    @_guarded
    def Diff(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Old inputs against new inputs."""
        resource = schema.resource(_type_of(request))
        result = diff(resource, from_wire(request.old_inputs), from_wire(request.news))
        changed = provider_pb2.DiffResponse.DIFF_SOME if result.changes else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(
            changes=changed,
            replaces=result.replaces,
            diffs=result.properties,
            deleteBeforeReplace=result.delete_before_replace,
            detailedDiff={change.path: _property_diff(change) for change in result.changes},
            hasDetailedDiff=True,
        )

    @_guarded
    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Create, or foretell the outputs."""
        resource = schema.resource(_type_of(request))
        inputs = from_wire(request.properties)
        if request.preview:
            return provider_pb2.CreateResponse(properties=to_wire(preview_outputs(resource, inputs)))
        asked = ResourceRequest(resource, request.urn, inputs, request.timeout)
        resource_id, outputs = persistently(lambda: self.cloud.create(asked), self.cloud.wait)
        return provider_pb2.CreateResponse(id=resource_id, properties=to_wire(outputs))

    @_guarded
    def Update(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Update, or foretell the outputs."""
        resource = schema.resource(_type_of(request))
        inputs, olds = from_wire(request.news), from_wire(request.olds)
        if request.preview:
            return provider_pb2.UpdateResponse(properties=to_wire(preview_outputs(resource, inputs, olds)))
        asked = ResourceRequest(
            resource,
            request.urn,
            inputs,
            request.timeout,
            id=request.id,
            old_inputs=from_wire(request.old_inputs),
            old_outputs=olds,
        )
        outputs = persistently(lambda: self.cloud.update(asked), self.cloud.wait)
        return provider_pb2.UpdateResponse(properties=to_wire(outputs))

    @_guarded
    def Read(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Refresh, import and `get`."""
        resource = schema.resource(_type_of(request))
        inputs, olds = from_wire(request.inputs), from_wire(request.properties)
        asked = ResourceRequest(resource, request.urn, inputs, id=request.id, old_outputs=olds)
        found = self.cloud.read(asked)
        if found is None:
            return provider_pb2.ReadResponse(id="")
        canonical, outputs = found
        if inputs:
            inputs = refreshed_inputs(resource, inputs, olds, outputs)
        else:
            inputs = imported_inputs(resource, path_of(resource).parse(canonical), outputs)
        return provider_pb2.ReadResponse(id=canonical, properties=to_wire(outputs), inputs=to_wire(inputs))

    @_guarded
    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Delete; gone already is fine."""
        resource = schema.resource(_type_of(request))
        inputs = from_wire(request.old_inputs)
        asked = ResourceRequest(resource, request.urn, inputs, request.timeout, id=request.id)
        persistently(lambda: self.cloud.delete(asked), self.cloud.wait)
        return empty_pb2.Empty()

    @_guarded
    def Invoke(self, request: Any, context: grpc.ServicerContext) -> Any:
        """`get…` and `list…` functions."""
        result = invoke(self.cloud, request.tok, reveal(from_wire(request.args)))
        return provider_pb2.InvokeResponse(**{"return": to_wire(result)})

    # --- helpers

    def _default_location(self, group: Any) -> Any:
        if "location" in self._config:
            return self._config["location"]
        if isinstance(group, Secret):
            group = group.value
        if group is UNKNOWN:
            return UNKNOWN
        return self.cloud.location_of_group(group) if isinstance(group, str) else None

    def _log(self, message: str) -> None:
        if self._engine is None:
            return
        severity = engine_pb2.LogSeverity.INFO
        try:
            self._engine.Log(engine_pb2.LogRequest(severity=severity, message=message, urn=""), timeout=2)
        except grpc.RpcError:
            self._engine = None  # an engine that does not listen loses nothing but this line


def _engine(address: str) -> Any:
    return engine_pb2_grpc.EngineStub(grpc.insecure_channel(address)) if address else None


def _type_of(request: Any) -> str:
    """`…::project::parent$azure-native:compute:Disk::name` → `azure-native:compute:Disk`."""
    return str(request.urn).split("::")[2].split("$")[-1]


def _logical_name(urn: str) -> str:
    return urn.rsplit("::", 1)[-1]


def _autonaming(request: Any) -> Autonaming:
    if not request.HasField("autonaming"):
        return Autonaming()
    return Autonaming(_MODES[request.autonaming.mode], request.autonaming.proposed_name)


def _property_diff(change: Change) -> Any:
    return provider_pb2.PropertyDiff(kind=_KINDS[change.kind, change.replaces], inputDiff=True)


def register(cloud: Cloud, server: grpc.Server, engine_address: str = "") -> None:
    """Put the provider on a gRPC server."""
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(SimulatedAzureNative(cloud, engine_address), server)
