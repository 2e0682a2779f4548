"""The policies that are sent to Azure keep every promise, in the lab."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from simulator.apim_policies.gateway_config import DEFAULT_POLICY

from .lab import Lab, service
from .scenarios import SCENARIOS

SERVICE = service()


def make(outer: str = DEFAULT_POLICY) -> Lab:
    return Lab(replace(SERVICE, policy=outer))


@pytest.mark.parametrize("name", SCENARIOS)
def test_promise(name: str) -> None:
    asyncio.run(SCENARIOS[name](make))
