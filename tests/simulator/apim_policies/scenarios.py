"""What the gateway's policies promise, each promise as a scenario that the true policies pass.

The mutation tests take elements out of the policies and expect one of these to fail, so they assert exactly.
"""

from __future__ import annotations

from . import scenarios_api, scenarios_extra_apis, scenarios_limits
from .promises import SCENARIOS, Make

__all__ = ["SCENARIOS", "Make", "scenarios_api", "scenarios_extra_apis", "scenarios_limits"]
