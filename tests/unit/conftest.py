"""Set up for all unit tests: Pulumi's strictness and which tests take seconds."""

from __future__ import annotations

import os

import pytest

# An Output in an f-string must be an error, not a sentence in a resource's name (pulumi/pulumi#4650).
os.environ["PULUMI_ERROR_OUTPUT_STRING"] = "1"


# Seconds each: they start processes, run the whole program or wait for deadlines. `make quick` leaves them out.
SLOW = frozenset(
    {
        "test_apply_failures",
        "test_apply_model",
        "test_apply_program",
        "test_cli",
        "test_day_zero_program",
        "test_every_setting",
        "test_gateway_api",
        "test_gateway_extra_apis",
        "test_gateway_products",
        "test_gateway_service",
        "test_gateway_writes",
        "test_graph_invariants",
        "test_parts",
        "test_recording",
        "test_remote_node",
        "test_timeline",
        "test_shell_programs",
        "test_user_data",
        "test_walks",
        "test_wheel",
    }
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=[True, False], ids=["preview", "update"])
def preview(request: pytest.FixtureRequest) -> bool:
    """Both ways that the engine runs a program: with unknown outputs, and with known ones."""
    return bool(request.param)
