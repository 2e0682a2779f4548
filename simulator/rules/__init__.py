"""Imitations of the resource types, one file per area; importing the package registers them all."""

from __future__ import annotations

from simulator.rules.base import Op, Rules, imitated, rules_for

__all__ = ["Op", "Rules", "imitated", "rules_for"]
