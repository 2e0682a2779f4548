"""Ports of the loopback for servers that must be told theirs before they start."""

from __future__ import annotations

import random
import socket

PORTS = range(20_000, 30_000)
"""Below the range that Linux gives to connections and to servers that ask for any port (32768 and up)."""
_held: list[socket.socket] = []


def reserve_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A port that nobody uses, and that no other caller gets while this process lives.

    An abstract Unix socket is the reservation: the kernel frees it with the process, whatever ends that.

    Raises:
        OSError: every port is taken.
    """
    for port in random.sample(PORTS, len(PORTS)):
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0h100-inference-port-{port}")
            with socket.socket(socket.AF_INET, kind) as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:  # held by another test run, or used by another program
            reservation.close()
            continue
        _held.append(reservation)
        return port
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop}")
