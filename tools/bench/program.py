"""Measures the program itself: seconds and peak MiB to register 2, 16 and 64 nodes under Pulumi's mocks, as JSON.

Each count runs in a process of its own, so that imports and memory are paid and seen once each:

    .venv/bin/python -m tools.bench.program
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

COUNTS = (2, 16, 64)
VCPUS_PER_NODE = 40


def measure(count: int) -> dict[str, Any]:
    """Register one stack of `count` nodes in this process and say what it cost."""
    begin = time.perf_counter()
    from infra import program  # noqa: PLC0415 - imports are what is measured
    from plan import stack_file  # noqa: PLC0415 - imports are what is measured

    settings = _settings(count, stack_file.load("dev").model_dump(mode="json"))
    plan = program.plan_of(settings, "dev")
    planned = time.perf_counter()
    from infra import graph  # noqa: PLC0415
    from infra.targets.azure import resources as azure  # noqa: F401, PLC0415

    imported = time.perf_counter()
    resources = graph.registered(plan)
    end = time.perf_counter()
    return {
        "nodes": count,
        "resources": sum(item.custom for item in resources),
        "seconds": round(end - begin, 2),
        "seconds_settings_and_plan": round(planned - begin, 2),
        "seconds_importing_azure_native": round(imported - planned, 2),
        "seconds_registering": round(end - imported, 2),
        "share_importing": round((imported - planned) / (end - begin), 2),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _settings(count: int, values: dict[str, Any]) -> Any:
    """The dev stack with `count` nodes; Azure Files, since no shared disk takes 64 of them."""
    from plan.settings.azure import AzureSettings  # noqa: PLC0415

    values["nodes"] |= {"count": count, "quota_vcpus": count * VCPUS_PER_NODE}
    values["model_store"] = {"kind": "azure-files", "size_gib": 1024}
    return AzureSettings.model_validate(values)


def main() -> None:
    """Print one JSON document with a row for each count."""
    if len(sys.argv) == 2:
        print(json.dumps(measure(int(sys.argv[1]))))
        return
    rows = []
    for count in COUNTS:
        done = subprocess.run([sys.executable, __file__, str(count)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stderr)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
