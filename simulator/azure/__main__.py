"""`pulumi-resource-azure-native`: serve on a free loopback port and print it, as the engine expects."""

from __future__ import annotations

import sys

from simulator.azure.errors import SimulatorError
from simulator.azure.settings import from_environment
from simulator.plugin.process import engine_address, load_only_protobufs, serve


def main() -> int:
    """Serve until the engine goes. Exit status: 0; 2 for wrong settings."""
    try:
        settings = from_environment()
    except SimulatorError as error:
        sys.stderr.write(f"simulated azure-native: {error}\n")
        return 2
    load_only_protobufs()
    from simulator.azure.cloud.subscription import Cloud  # noqa: PLC0415 - after load_only_protobufs
    from simulator.azure.protocol import register  # noqa: PLC0415

    cloud = Cloud(settings)
    serve(lambda server: register(cloud, server, engine_address()), on_end=cloud.cancel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
