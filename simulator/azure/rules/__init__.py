"""Imitations of the resource types, one file per area; importing the package registers them all."""

from __future__ import annotations

from importlib import import_module

from simulator.azure.rules.base import Op, Rules, imitated, rules_for

__all__ = ["Op", "Rules", "imitated", "rules_for"]

for _area in (
    "apim.backends",
    "apim.entities",
    "apim.policy",
    "apim.service",
    "compute.disk",
    "compute.vm",
    "identity",
    "keyvault",
    "network.access",
    "network.parts",
    "network.vnet",
    "operations",
    "resources",
    "compute.run_command",
    "storage",
):
    import_module(f"{__name__}.{_area}")
