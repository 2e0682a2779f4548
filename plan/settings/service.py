"""The settings of every target: models and where they run, products, alerts, JupyterLab. See `types`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from plan.secrets import Secret
from plan.settings.gateway import Gateway
from plan.settings.types import Email, NodeNumber, Port, Routes, Section, TagKey, TagValue, defaults_of
from plan.vocabulary import Environment, Topology


class ModelPlacement(Section):
    """One served model."""

    nodes: tuple[NodeNumber, ...] | None = Field(
        None, min_length=1, description="Numbers of the nodes that serve it, counted from 1; none means all nodes."
    )
    system_prompt: str | None = Field(
        None, min_length=1, max_length=32_768, description="System prompt for this model, instead of the registry's."
    )
    routes: Routes = None


class Ports(Section):
    """Listening ports. Where they may be reached from is fixed: see `infra ports`."""

    wrapper: Port = Field(8000, description="The wrapper, on the node's private address.")
    vllm: Port = Field(5005, description="vLLM, loopback only.")
    ray_gcs: Port = Field(6379, description="Ray's GCS on the head; workers join here.")
    ray_client: Port = Field(10_001, description="Ray client server, loopback only (nodes never join here).")
    ray_dashboard: Port = Field(8265, description="Ray dashboard and job API, loopback only.")


class Serving(Section):
    """Which models run where."""

    models: dict[str, Annotated[ModelPlacement, BeforeValidator(defaults_of)]] = Field(
        min_length=1, description="Served models by their name in the model registry (`huddle models list`)."
    )
    topology: Topology = Field(
        Topology.REPLICAS,
        description="`replicas`: each node serves whole models; `distributed`: one model across all nodes.",
    )
    max_unavailable: int = Field(
        1, ge=1, description="Nodes that may be away at once while a new bundle is applied; the others serve."
    )
    ports: Ports = Field(Ports(), description="Listening ports.")


class Monitoring(Section):
    """Recipients of alerts."""

    alert_emails: tuple[Email, ...] = Field(
        (), max_length=20, description="Addresses that get alerts; none means that alerts only show in the portal."
    )


class Jupyter(Section):
    """JupyterLab on the head node. Off unless asked for; then loopback and token only."""

    enabled: bool = Field(False, description="Install and start JupyterLab.")
    port: Port = Field(8889, description="Listening port, loopback only.")


class ServiceSettings(Section):
    """What every stack file says, whatever its target. A target's own class adds its sections."""

    secrets: ClassVar[tuple[Secret, ...]] = ()
    outside: ClassVar[dict[str, str]] = {}
    """Settings that stand in the stack file under another provider's key, by their name here."""

    @property
    def brought_secrets(self) -> tuple[tuple[str, Secret], ...]:
        """Secrets that only a person can bring, each with the setting that asks for it."""
        return ()

    target: str = Field(description="The target that the service runs on.")
    environment: Environment = Field(description="`prod` protects data and gateway; `dev` destroys cleanly.")
    tags: dict[TagKey, TagValue] = Field(default_factory=dict, max_length=40, description="Tags on every resource.")
    serving: Serving = Field(description="Models, topology, ports.")
    gateway: Gateway = Field(description="Products and the nodes behind them.")
    monitoring: Monitoring = Field(Monitoring(), description="Alerts.")
    jupyter: Jupyter = Field(Jupyter(), description="JupyterLab.")
