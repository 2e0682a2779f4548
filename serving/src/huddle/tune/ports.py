"""The port of a sweep's engines, apart from those of a node: its wrapper and its probe must not find them."""

import random
import socket

from huddle import network
from huddle.errors import InputError

PORTS = range(15_100, 15_200)
"""No service of a node has these, and Linux gives none of them to a connection (it takes 32768 and up)."""
_held: list[socket.socket] = []


def reserve() -> int:
    """A free port that no other sweep gets while this process lives.

    An abstract Unix socket is the reservation, since the port itself is free between two engines. The kernel frees it
    with the process, whatever ends that.

    Raises:
        InputError: every port is taken.
    """
    for port in random.sample(PORTS, len(PORTS)):
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0huddle-tune-{port}")
            network.check_port("127.0.0.1", port)
        except (OSError, InputError):  # another sweep has it, or another program
            reservation.close()
            continue
        _held.append(reservation)
        return port
    raise InputError(f"no port from {PORTS[0]} to {PORTS[-1]} is free; name one with --port")
