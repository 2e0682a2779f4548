"""Run a stack's gateway on this machine, in front of a wrapper that runs already.

    python -m simulator.apim_policies -s dev --wrapper http://127.0.0.1:8000 --backend-key-file key --keys keys.json

Subscription keys are made once and kept in `--keys` (JSON, readable by its owner only), so that none is in a command
line. Policies, products and limits are those that `pulumi up` would send. It is a laboratory, no gateway: no TLS.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

import uvloop

from gateway_policies.source import PolicyFault
from huddle.errors import HuddleError
from infra.cli import edge
from infra.program import load_azure_plan
from simulator.apim_policies import inputs
from simulator.apim_policies.counters import Counters
from simulator.apim_policies.exchange import Environment
from simulator.apim_policies.from_plan import gateway_config_of
from simulator.apim_policies.gateway import Gateway
from simulator.apim_policies.gateway_config import GatewayConfig, SubscriptionScope
from simulator.apim_policies.pool import Backends
from simulator.apim_policies.server import serving
from simulator.apim_policies.transport import HttpSender

EXIT_INPUT = 2


def main() -> int:
    """Serve until interrupted; 2 for wrong input."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.apim_policies", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("-s", "--stack", default="dev")
    parser.add_argument("--wrapper", required=True, help="where the wrapper listens, such as http://127.0.0.1:8000")
    parser.add_argument("--backend-key-file", type=Path, required=True, help="backend key that the wrapper accepts")
    parser.add_argument("--keys", type=Path, required=True, help="file with subscription keys; created if missing")
    parser.add_argument("--port", type=int, default=8080, help="port on 127.0.0.1; 0 takes any free one")
    asked = parser.parse_args()
    try:
        plan = load_azure_plan(asked.stack)
        wrapper, port = inputs.wrapper_url(asked.wrapper), inputs.port(asked.port)
        backend_key, known = inputs.backend_key(asked.backend_key_file), inputs.subscription_keys(asked.keys)
        config = gateway_config_of(plan, backend_key=backend_key, keys=known)
        inputs.keep(known | _keys_of(config), asked.keys)
        uvloop.run(_serve(config, wrapper, port, asked.keys))
    except HuddleError as error:
        return edge.say(error)
    except (OSError, ValueError, PolicyFault) as error:  # a fragment may hold what the lab does not know
        print(f"error: {error}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        pass
    return 0


def _keys_of(config: GatewayConfig) -> dict[str, str]:
    held = [subscription for subscription in config.subscriptions if subscription.scope is SubscriptionScope.PRODUCT]
    return {held_by.id.replace("_", "/"): held_by.keys[0] for held_by in held}


async def _serve(config: GatewayConfig, wrapper: str, port: int, keys: Path) -> None:
    addresses = {backend.url: f"{wrapper}/v1" for backend in config.backends}
    environment = Environment(
        counters=Counters(config.algorithm),
        backends=Backends(config.backends, config.pools),
        send=HttpSender(addresses),
        clock=time.time,
        sleep=asyncio.sleep,
    )
    log = lambda line: print(line, flush=True)  # noqa: E731 - one line for each request, as diagnostics would
    async with serving(Gateway(config, environment), port=port, log=log) as listens:
        where = f"http://127.0.0.1:{listens}/{config.apis[0].path}"
        print(f"the policy lab (no Azure) listens on {where}; subscription keys are in {keys}", file=sys.stderr)
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
