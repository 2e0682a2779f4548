"""What systemd does with a socket that it has kept for a service: sd_listen_fds(3)."""

import socket
from collections.abc import Sequence


def handed_over(argv: Sequence[str], kept: socket.socket) -> list[str]:
    """The same program with the socket as its descriptor 3; whoever starts it passes `kept.fileno()` on."""
    own = kept.fileno()
    return ["bash", "-c", f'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3<&{own} {own}<&-', *argv]
