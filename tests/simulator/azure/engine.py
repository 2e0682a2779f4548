"""A client that talks to the provider as the engine does: Check before every Create and Update, old inputs along."""

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import yaml
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from simulator.azure.cloud.subscription import Cloud
from simulator.azure.state.store import State
from simulator.plugin.values import from_wire, reveal, to_wire
from tools.deadlines import scaled

LOCATION = "eastus"


class RefusedError(Exception):
    """The provider said no."""


class CheckRefusedError(RefusedError):
    """Check found failures."""


@dataclass
class PartialError(RefusedError):
    """The resource exists all the same."""

    resource: "Made"
    reasons: list[str]

    def __str__(self) -> str:
        return "; ".join(self.reasons)


@dataclass
class Made:
    """A resource as the engine remembers it."""

    type: str
    logical: str
    id: str
    inputs: dict[str, Any]
    outputs: dict[str, Any] = field(default_factory=dict)

    @property
    def plain(self) -> dict[str, Any]:
        return reveal(self.outputs)


@dataclass
class Diffed:
    changes: bool
    replaces: list[str]
    diffs: list[str]
    detailed: dict[str, int]
    delete_before_replace: bool


class Azure:
    """One simulated subscription."""

    def __init__(self, channel: grpc.Channel, cloud: Cloud, faults: Path) -> None:
        self.stub = provider_pb2_grpc.ResourceProviderStub(channel)
        self.cloud = cloud
        self._faults = faults

    def configure(self) -> Any:
        variables = {"azure-native:config:location": LOCATION}
        return self.stub.Configure(provider_pb2.ConfigureRequest(variables=variables, sends_old_inputs=True))

    def set_faults(self, document: Any) -> None:
        self._faults.write_text(document if isinstance(document, str) else yaml.safe_dump(document))

    @contextmanager
    def under_way(self, name: str, call: Callable[..., Any], *arguments: Any) -> Iterator[None]:
        """Run a call slowly in a thread; the body runs while that operation is in flight."""
        self.set_faults({"faults": [{"kind": "slow", "delay_s": scaled(1), "match": {"name": name}}]})
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(call, *arguments)
            while not self.state.running():
                assert not future.done(), future.result()
                time.sleep(0.01)
            yield
            future.result()

    @property
    def state(self) -> State:
        return self.cloud.store.read()

    def check(
        self, type_: str, logical: str, inputs: dict[str, Any], olds: dict[str, Any] | None = None, **kwargs: Any
    ):
        urn = _urn(type_, logical)
        request = provider_pb2.CheckRequest(
            urn=urn,
            news=to_wire(inputs),
            olds=to_wire(olds or {}),
            randomSeed=kwargs.pop("seed", hashlib.sha256(urn.encode()).digest()),
            **kwargs,
        )
        response = self.stub.Check(request)
        return from_wire(response.inputs), [failure.reason for failure in response.failures]

    def checked(self, type_: str, logical: str, inputs: dict[str, Any], olds: dict[str, Any] | None = None):
        news, failures = self.check(type_, logical, inputs, olds)
        if failures:
            raise CheckRefusedError("; ".join(failures))
        return news

    def create(self, type_: str, logical: str, inputs: dict[str, Any], timeout: float = 0.0) -> Made:
        news = self.checked(type_, logical, inputs)
        request = provider_pb2.CreateRequest(urn=_urn(type_, logical), properties=to_wire(news), timeout=timeout)
        try:
            response = self.stub.Create(request)
        except grpc.RpcError as error:
            raise _refusal(error, type_, logical, news) from error
        return Made(type_, logical, response.id, news, from_wire(response.properties))

    def preview(self, type_: str, logical: str, inputs: dict[str, Any]) -> dict[str, Any]:
        news = self.checked(type_, logical, inputs)
        request = provider_pb2.CreateRequest(urn=_urn(type_, logical), properties=to_wire(news), preview=True)
        response = self.stub.Create(request)
        assert response.id == ""
        return from_wire(response.properties)

    def preview_update(self, made: Made, inputs: dict[str, Any]) -> dict[str, Any]:
        response = self.stub.Update(self._update(made, inputs, preview=True))
        return from_wire(response.properties)

    def update(self, made: Made, inputs: dict[str, Any], timeout: float = 0.0) -> Made:
        request = self._update(made, inputs, timeout=timeout)
        try:
            response = self.stub.Update(request)
        except grpc.RpcError as error:
            raise _refusal(error, made.type, made.logical, from_wire(request.news)) from error
        return Made(made.type, made.logical, made.id, from_wire(request.news), from_wire(response.properties))

    def change(self, made: Made, **changes: Any) -> Made:
        """Update some top-level inputs."""
        return self.update(made, {**made.inputs, **changes})

    def _update(self, made: Made, inputs: dict[str, Any], **kwargs: Any) -> Any:
        news = self.checked(made.type, made.logical, inputs, made.inputs)
        return provider_pb2.UpdateRequest(
            id=made.id,
            urn=_urn(made.type, made.logical),
            olds=to_wire(made.outputs),
            news=to_wire(news),
            old_inputs=to_wire(made.inputs),
            **kwargs,
        )

    def diff(self, made: Made, inputs: dict[str, Any]) -> Diffed:
        news = self.checked(made.type, made.logical, inputs, made.inputs)
        response = self.stub.Diff(
            provider_pb2.DiffRequest(
                id=made.id,
                urn=_urn(made.type, made.logical),
                olds=to_wire(made.outputs),
                news=to_wire(news),
                old_inputs=to_wire(made.inputs),
            )
        )
        return Diffed(
            changes=response.changes == provider_pb2.DiffResponse.DIFF_SOME,
            replaces=list(response.replaces),
            diffs=list(response.diffs),
            detailed={path: change.kind for path, change in response.detailedDiff.items()},
            delete_before_replace=response.deleteBeforeReplace,
        )

    def refresh(self, made: Made) -> Made | None:
        return self._read(made.type, made.logical, made.id, made.inputs, made.outputs)

    def import_(self, type_: str, logical: str, resource_id: str) -> Made | None:
        return self._read(type_, logical, resource_id, {}, {})

    def _read(self, type_: str, logical: str, id_: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> Made | None:
        request = provider_pb2.ReadRequest(
            id=id_, urn=_urn(type_, logical), properties=to_wire(outputs), inputs=to_wire(inputs)
        )
        try:
            response = self.stub.Read(request)
        except grpc.RpcError as error:
            raise RefusedError(error.details()) from error
        if not response.id:
            return None
        return Made(type_, logical, response.id, from_wire(response.inputs), from_wire(response.properties))

    def delete(self, made: Made) -> None:
        request = provider_pb2.DeleteRequest(
            id=made.id,
            urn=_urn(made.type, made.logical),
            properties=to_wire(made.outputs),
            old_inputs=to_wire(made.inputs),
        )
        try:
            self.stub.Delete(request)
        except grpc.RpcError as error:
            raise RefusedError(error.details()) from error

    def invoke(self, token: str, **args: Any) -> dict[str, Any]:
        try:
            response = self.stub.Invoke(provider_pb2.InvokeRequest(tok=f"azure-native:{token}", args=to_wire(args)))
        except grpc.RpcError as error:
            raise RefusedError(error.details()) from error
        return from_wire(getattr(response, "return"))


def _urn(type_: str, logical: str) -> str:
    return f"urn:pulumi:dev::project::parent:index:Component$azure-native:{type_}::{logical}"


def _refusal(error: grpc.RpcError, type_: str, logical: str, inputs: dict[str, Any]) -> RefusedError:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            detail = provider_pb2.ErrorResourceInitFailed()
            status_pb2.Status.FromString(value).details[0].Unpack(detail)
            outputs = from_wire(detail.properties)
            return PartialError(Made(type_, logical, detail.id, inputs, outputs), list(detail.reasons))
    return RefusedError(error.details())
