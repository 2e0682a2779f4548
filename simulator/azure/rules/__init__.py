"""Imitations of the resource types, one file per area; importing the package registers them all."""

from __future__ import annotations

from simulator.azure.rules import (
    apim_backends,
    apim_entities,
    apim_policy,
    apim_service,
    compute_disk,
    compute_vm,
    identity,
    keyvault,
    network_access,
    network_parts,
    network_vnet,
    operations,
    resources,
    run_command,
    storage,
)
from simulator.azure.rules.base import Op, Rules, imitated, rules_for

AREAS = (
    apim_backends,
    apim_entities,
    apim_policy,
    apim_service,
    compute_disk,
    compute_vm,
    identity,
    keyvault,
    network_access,
    network_parts,
    network_vnet,
    operations,
    resources,
    run_command,
    storage,
)

__all__ = ["AREAS", "Op", "Rules", "imitated", "rules_for"]
