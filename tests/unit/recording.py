"""Run a component, or the whole program, without an engine, and record everything that it registers.

Pulumi's own mocks show inputs only. The monitor here also keeps what the engine would act on (replacement, protection,
timeouts, dependencies), checks every resource against the SDK's types, gives ARM ids, and refuses outputs that
nobody declared.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pulumi import export
from pulumi.runtime import mocks
from pulumi.runtime.proto import resource_pb2

from infra.engine import offline
from plan import stack_file
from plan.settings.azure import LOCATION_KEY
from plan.stack_file import secret_keys
from simulator.azure.provider import check
from simulator.azure.sdk import schema
from simulator.azure.sdk.paths import path_of
from simulator.plugin.values import UNKNOWN, Secret, dig, from_wire, reveal, to_wire, walk
from tests.unit import azure_outputs
from tests.unit.azure_outputs import CANARY, Outputs
from tests.unit.older_types import leave_out_older_types

UNDECLARED = "UNDECLARED-OUTPUT"
STACK_TYPE = "pulumi:pulumi:Stack"
AZURE = "azure-native:"
_MISSING = re.compile(r"\A(?!None\Z).{0,200}(?<![A-Za-z])None(?![A-Za-z]).{0,200}\Z")
"""The word that an output without a value leaves in a name or an address; alone it is one of Azure's own values."""
_OUTPUT_TEXT = ("Calling __str__", "pulumi.output", "Output object at")


@dataclass(frozen=True)
class Recorded:
    """One registered resource: inputs as the engine gets them (wire names; `Secret` and `UNKNOWN` marked), options."""

    urn: str
    request: resource_pb2.RegisterResourceRequest
    inputs: Mapping[str, Any]
    id: str

    @property
    def type(self) -> str:
        return str(self.request.type)

    @property
    def name(self) -> str:
        return str(self.request.name)

    @property
    def parent(self) -> str:
        return str(self.request.parent)

    @property
    def custom(self) -> bool:
        return bool(self.request.custom)

    @cached_property
    def plain(self) -> dict[str, Any]:
        """Inputs without secret marks."""
        plain: dict[str, Any] = reveal(self.inputs)
        return plain

    def __getitem__(self, dotted: str) -> Any:
        """An input by path (`osProfile.adminUsername`, `subnets.0.name`), without secret marks; None if absent."""
        return dig(self.plain, dotted)

    @property
    def secret_paths(self) -> set[str]:
        return {".".join(map(str, path)) for path, leaf in walk(self.inputs) if isinstance(leaf, Secret)}

    @property
    def protect(self) -> bool:
        return bool(self.request.protect)

    @property
    def retain_on_delete(self) -> bool:
        return bool(self.request.retainOnDelete)

    @property
    def delete_before_replace(self) -> bool | None:
        """None when the program leaves it to the provider."""
        return bool(self.request.deleteBeforeReplace) if self.request.deleteBeforeReplaceDefined else None

    @property
    def replace_on_changes(self) -> tuple[str, ...]:
        return tuple(self.request.replaceOnChanges)

    @property
    def ignore_changes(self) -> tuple[str, ...]:
        return tuple(self.request.ignoreChanges)

    @property
    def additional_secret_outputs(self) -> tuple[str, ...]:
        return tuple(self.request.additionalSecretOutputs)

    @property
    def timeouts(self) -> dict[str, str]:
        timeouts = self.request.customTimeouts
        return {key: value for key in ("create", "update", "delete") if (value := getattr(timeouts, key))}

    @property
    def dependencies(self) -> frozenset[str]:
        """URNs it waits for, from inputs and from `depends_on`."""
        return frozenset(self.request.dependencies)

    def property_dependencies(self, name: str) -> frozenset[str]:
        """URNs that one top-level input was made from."""
        return frozenset(self.request.propertyDependencies[name].urns)

    @property
    def deleted_with(self) -> str:
        return str(self.request.deletedWith)

    @property
    def aliases(self) -> tuple[Any, ...]:
        """Aliases that the program gave; the SDK's own, for older API versions of the type, are not recorded."""
        return tuple(self.request.aliases)


@dataclass
class Recording:
    """Everything that one run registered, in order."""

    stack: str
    preview: bool
    resources: list[Recorded] = field(default_factory=list)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)  # by URN, of components and the stack
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def exports(self) -> dict[str, Any]:
        """Stack outputs, with `Secret` and `UNKNOWN` marked."""
        return next((values for urn, values in self.outputs.items() if urn.split("::")[2] == STACK_TYPE), {})

    def of(self, kind: str) -> list[Recorded]:
        """All resources of a type, such as `network:VirtualNetwork` or `h100:network:Network`."""
        return [resource for resource in self.resources if resource.type in (kind, f"azure-native:{kind}")]

    def one(self, kind: str, name: str | None = None) -> Recorded:
        """The only resource of a type, or the one whose logical name ends with `name`."""
        found = [resource for resource in self.of(kind) if name is None or resource.name.endswith(name)]
        assert len(found) == 1, f"{len(found)} of {kind}: {[resource.name for resource in found]}"
        return found[0]

    def by_urn(self, urn: str) -> Recorded | None:
        return next((resource for resource in self.resources if resource.urn == urn), None)

    def waits_for(self, later: Recorded, earlier: Recorded) -> bool:
        """Whether `later` is only created once `earlier` is, directly or through others."""
        seen: set[str] = set()
        frontier = set(later.dependencies)
        while frontier:
            urn = frontier.pop()
            if urn == earlier.urn:
                return True
            if urn not in seen and (resource := self.by_urn(urn)):
                frontier |= set(resource.dependencies)
            seen.add(urn)
        return False

    def everything(self) -> Iterator[tuple[str, Any]]:
        """Every value that leaves the program, with a label that says where it was."""
        for resource in self.resources:
            yield from _labelled(f"{resource.type} {resource.name}", resource.inputs)
        for urn, values in self.outputs.items():
            yield from _labelled(f"outputs of {urn.rsplit('::', 1)[-1]}", values)


def _labelled(label: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for path, leaf in walk(values):
        yield f"{label}: {'.'.join(map(str, path))}", leaf


class RecordingMonitor(mocks.MockMonitor):
    """Stands where the engine would: answers registrations and invokes, and keeps them."""

    def __init__(self, recording: Recording, outputs: Mapping[str, Outputs], calls: Mapping[str, Outputs]) -> None:
        super().__init__(mocks.Mocks)  # type: ignore[arg-type] - nothing here asks the mocks
        self._recording, self._outputs, self._calls = recording, outputs, calls
        self._lock = threading.Lock()
        self._location = ""

    def at(self, location: str) -> None:
        """The provider's default location."""
        self._location = location

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> Any:  # noqa: N802 - gRPC's name
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type == STACK_TYPE:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        inputs = from_wire(request.object)
        identity, state = self._create(request.type, inputs) if request.custom else ("", {})
        with self._lock:
            assert self._recording.by_urn(urn) is None, f"two resources have the URN {urn}"
            self._recording.resources.append(Recorded(urn, request, inputs, identity))
            self.resources[urn] = self.ResourceRegistration(urn, identity, state)
        response = resource_pb2.RegisterResourceResponse(urn=urn, object=to_wire(state))
        response.id = "" if self._recording.preview else identity
        return response

    def _create(self, token: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """ARM id and outputs: the inputs, the name, and what was declared; unknown in preview, as from the provider."""
        if not token.startswith(AZURE):  # no schema of it is at hand: inputs as they are, and what was declared
            declared = {} if self._recording.preview else self._outputs.get(token, lambda _: {})(reveal(inputs))
            return token, {**inputs, **declared}
        kind = schema.resource(token)
        complete = {**({"location": self._location} if "location" in kind.inputs else {}), **inputs}
        wrong = check.failures(kind, complete)
        assert not wrong, f"{token}: {'; '.join(failure.reason for failure in wrong)}"
        path, plain = path_of(kind), reveal(complete)
        state = {key: _echo(value, kind.outputs[key].type) for key, value in complete.items() if key in kind.outputs}
        if isinstance(plain.get(path.name_param), str):
            state["name"] = plain[path.name_param]
        if self._recording.preview:
            return "", state
        unknown = [where for where, leaf in walk(plain) if leaf is UNKNOWN]
        assert not unknown, f"{token}: inputs are unknown in an update: {unknown}"
        declared = self._outputs.get(kind.key, lambda _: {})(plain)
        for name, output in kind.outputs.items():
            if name not in state and name not in declared and output.type == schema.Prim("str"):
                state[name] = f"{UNDECLARED} {kind.key}.{name}"
        return path.build(plain), _merge(state, declared)

    def RegisterResourceOutputs(self, request: resource_pb2.RegisterResourceOutputsRequest) -> Any:  # noqa: N802
        with self._lock:
            self._recording.outputs[request.urn] = from_wire(request.outputs)
        return super().RegisterResourceOutputs(request)

    def Invoke(self, request: resource_pb2.ResourceInvokeRequest) -> Any:  # noqa: N802 - gRPC's name
        arguments = reveal(from_wire(request.args))
        token = request.tok.removeprefix("azure-native:")
        with self._lock:
            self._recording.calls.append((token, arguments))
        assert token in self._calls, f"the test declares no answer to {token}"
        return resource_pb2.ResourceInvokeResponse(**{"return": to_wire(self._calls[token](arguments))})


def _echo(value: Any, kind: schema.TypeExpr) -> Any:
    """An input as the provider gives it back: a set of ids, written as a list, comes back as a mapping."""
    if isinstance(value, Secret):
        return Secret(_echo(value.value, kind))
    if isinstance(kind, schema.Map) and isinstance(value, list):
        return {item: {} for item in value if item is not UNKNOWN}
    if isinstance(kind, schema.Obj) and isinstance(value, Mapping):
        properties = schema.object_properties(kind)
        return {key: _echo(item, properties[key].type) for key, item in value.items() if key in properties}
    if isinstance(kind, schema.Arr) and isinstance(value, list):
        return [_echo(item, kind.item) for item in value]
    return value


def _merge(state: dict[str, Any], declared: Mapping[str, Any]) -> dict[str, Any]:
    """`declared` over `state`, nested mappings together; a secret mapping stays secret as a whole."""
    merged = dict(state)
    for key, value in declared.items():
        old = merged.get(key)
        if isinstance(old, Secret) and isinstance(value, Mapping):
            merged[key] = Secret({**old.value, **value})
        else:
            merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return merged


def run_program(
    program: Callable[[], Mapping[str, Any] | None],
    stack: str = "dev",
    preview: bool = False,
    *,
    config: Mapping[str, str] | None = None,
    outputs: Mapping[str, Outputs] | None = None,
    calls: Mapping[str, Outputs] | None = None,
) -> Recording:
    """Run a program as the engine would and return what it registered.

    `program` may return a mapping, which is exported, so that a test sees a component's outputs in `exports`. Config
    is the stack file's, with a canary for each secret.

    Raises whatever the program raises, and AssertionError for inputs that the SDK's types refuse, for outputs that
    nobody declared, and for Outputs turned into text.
    """
    recording = Recording(stack, preview)
    monitor = RecordingMonitor(
        recording, {**azure_outputs.OUTPUTS, **(outputs or {})}, {**azure_outputs.CALLS, **(calls or {})}
    )
    values = stack_config(stack) if config is None else dict(config)
    monitor.at(values.get(LOCATION_KEY, ""))

    def exported() -> None:
        leave_out_older_types()
        for name, value in (program() or {}).items():
            export(name, value)

    offline.run(
        exported,
        monitor,
        stack=stack,
        preview=preview,
        config=values,
        secret_keys=[f"{stack_file.PROJECT}:{key}" for key in secret_keys()],
        logger=_logger(recording.log),
    )
    _refuse_accidents(recording)
    return recording


def _logger(lines: list[str]) -> logging.Logger:
    logger = logging.Logger("recording", logging.INFO)
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    return logger


def stack_config(stack: str, root: Path = stack_file.ROOT) -> dict[str, str]:
    """A stack file's config as the engine hands it over: text, objects as JSON, and a canary for each secret."""
    read = stack_file.read(stack, root)
    written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in read.items()}
    return {**written, **{f"{stack_file.PROJECT}:{key}": f"{CANARY}-{key}" for key in secret_keys()}}


def _refuse_accidents(recording: Recording) -> None:
    for where, value in recording.everything():
        text = _text(value)
        assert UNDECLARED not in text, f"{where} was made from {text}; declare it if Azure really returns it"
        assert not any(mark in text for mark in _OUTPUT_TEXT), f"{where} holds an Output turned into text: {text}"
        assert not _MISSING.search(text), f"{where} was made from an output that had no value: {text}"


def _text(value: Any) -> str:
    plain = reveal(value)
    return plain if isinstance(plain, str) else json.dumps(plain, default=str)


def assert_no_canary_outside_secrets(recording: Recording) -> None:
    """A secret may only travel inside a secret mark: not in plain inputs or outputs, ids, names or the log."""
    for where, value in recording.everything():
        if not isinstance(value, Secret):
            assert not _has_canary(str(value)), f"{where} shows a secret in plain text"
    for resource in recording.resources:
        assert not _has_canary(f"{resource.urn} {resource.id}"), f"the id of {resource.urn} holds a secret"
    for line in recording.log:
        assert not _has_canary(line), f"the log shows a secret: {line}"


def _has_canary(text: str) -> bool:
    return any(mark in text for mark in _CANARIES)


def _encodings(word: str) -> Iterable[str]:
    """The word itself, and what it looks like inside base64 text at each of the three alignments."""
    yield word
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + word.encode()).decode().rstrip("=")
        yield encoded[(0, 2, 3)[shift] : len(encoded) - (0 if (shift + len(word)) % 3 == 0 else 1)]


_CANARIES = tuple(_encodings(CANARY))
