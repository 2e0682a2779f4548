"""Imitations of the resource types, one file per area; importing the package registers them all."""

from __future__ import annotations

from importlib import import_module

from simulator.azure.rules.base import Op, Rules, imitated, rules_for

__all__ = ["Op", "Rules", "imitated", "rules_for"]

for _area in (
    "apim_backends",
    "apim_entities",
    "apim_policy",
    "apim_service",
    "compute_disk",
    "compute_vm",
    "identity",
    "keyvault",
    "network_access",
    "network_parts",
    "network_vnet",
    "operations",
    "resources",
    "run_command",
    "storage",
):
    import_module(f"{__name__}.{_area}")
