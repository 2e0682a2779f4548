"""Measure what the policy lab adds to the first byte of a stream: in turns, straight to a backend and through the lab.

    python -m tools.bench.policy_lab             # a table
    python -m tools.bench.policy_lab --json

It says something about the lab, which tests use in front of the wrapper; nothing about Azure's gateway. All traffic is
on loopback; each number is the median of the turns.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from infra.program import load_azure_plan
from simulator.apim_policies.counters import Counters
from simulator.apim_policies.exchange import Environment
from simulator.apim_policies.from_plan import gateway_config_of
from simulator.apim_policies.gateway import Gateway
from simulator.apim_policies.gateway_config import GatewayConfig
from simulator.apim_policies.pool import Backends
from simulator.apim_policies.server import serving
from simulator.apim_policies.transport import HttpSender
from tools.bench import subjects

CHUNKS, INTERVAL_MS, MANY = 20, 5.0, 10**9
LOAD = Path(__file__).with_name("load.py")


def unlimited(stack: str) -> tuple[GatewayConfig, str]:
    """The stack's gateway with limits that a benchmark does not reach, and a key."""
    plan = load_azure_plan(stack)
    products = [
        replace(product, requests_per_minute=MANY, tokens_per_minute=MANY, token_quota=None)
        for product in plan.gateway.products
    ]
    config = gateway_config_of(
        replace(plan, gateway=replace(plan.gateway, products=tuple(products))), backend_key="bench"
    )
    return config, config.subscriptions[0].keys[0]


async def load(port: int, path: str, connections: int, rounds: int) -> dict[str, float]:
    """One run of the load generator."""
    argv = [sys.executable, str(LOAD), "--port", str(port), "--path", path, "--events", str(CHUNKS + 1)]
    argv += ["--connections", str(connections), "--rounds", str(rounds)]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    measured: dict[str, float] = json.loads(output)
    if process.returncode or measured["errors"]:
        raise RuntimeError(f"the load generator failed on {path.partition('?')[0]}: {measured}")
    return measured


async def compare(stack: str, connections: int, rounds: int, repeats: int) -> dict[str, Any]:
    """Time to the first byte (ms), both ways, in turns."""
    config, key = unlimited(stack)
    turns: dict[str, list[float]] = {"direct": [], "lab": []}
    with subjects.backend(CHUNKS, INTERVAL_MS) as backend:
        sender = HttpSender({node.url: f"http://127.0.0.1:{backend}/v1" for node in config.backends})
        backends = Backends(config.backends, config.pools)
        environment = Environment(Counters(config.algorithm), backends, sender, time.time, asyncio.sleep)
        async with serving(Gateway(config, environment)) as port:
            path = "/v1/chat/completions"
            for _ in range(repeats):
                turns["direct"].append((await load(backend, path, connections, rounds))["ttfb_p50_ms"])
                through = await load(port, f"{path}?subscription-key={key}", connections, rounds)
                turns["lab"].append(through["ttfb_p50_ms"])
        await sender.close()
    medians = {name: statistics.median(values) for name, values in turns.items()}
    return {"ttfb_p50_ms": medians, "added_ms": medians["lab"] - medians["direct"], "connections": connections}


def main() -> None:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-s", "--stack", default="dev")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    print("measuring, about half a minute", file=sys.stderr)
    found = uvloop.run(compare(asked.stack, asked.connections, asked.rounds, asked.repeats))
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found["ttfb_p50_ms"].items():
        print(f"{name:>8}: first byte after {value:6.2f} ms (median)")
    print(f"   added: {found['added_ms']:6.2f} ms")


if __name__ == "__main__":
    main()
