"""Tell systemd how we are (sd_notify(3)): a datagram to the socket that it names in NOTIFY_SOCKET.

It also keeps our listening socket while no process of ours runs (its file descriptor store), so that connections of
that time wait for the next one instead of being refused.
"""

import contextlib
import os
import socket
import time
from array import array
from typing import Final

_FIRST_FD: Final = 3  # sd_listen_fds(3)
_NAME: Final = "listen"


class Notifier:
    """Does nothing where there is no systemd."""

    def __init__(self, address: str | None = None) -> None:
        self._address = address if address is not None else os.environ.get("NOTIFY_SOCKET", "")

    def ready(self, status: str) -> None:
        """READY=1: started, or reloaded."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """A reload has begun; systemd wants the time of it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        """STOPPING=1: shutdown has begun."""
        self._send(f"STOPPING=1\nSTATUS={status}")

    def watchdog(self) -> None:
        """Still alive: the event loop turns."""
        self._send("WATCHDOG=1")

    @staticmethod
    def watchdog_interval_s() -> float | None:
        """Half of what systemd allows between signs of life; None when it does not watch us."""
        usec = os.environ.get("WATCHDOG_USEC", "")
        ours = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        return int(usec) / 2_000_000 if usec.isdigit() and ours else None

    def keep(self, listening: socket.socket) -> None:
        """FDSTORE=1: have the socket kept after our end, as long as the unit's FileDescriptorStore… settings say."""
        self._send(f"FDSTORE=1\nFDNAME={_NAME}", listening)

    def kept(self, bind: str) -> socket.socket | None:
        """The socket that an earlier process had kept, if it listens on this `HOST:PORT`; any other is given up."""
        count = os.environ.pop("LISTEN_FDS", "")
        ours = os.environ.pop("LISTEN_PID", "") == str(os.getpid())
        os.environ.pop("LISTEN_FDNAMES", None)
        found: socket.socket | None = None
        for descriptor in range(_FIRST_FD, _FIRST_FD + int(count)) if ours and count.isdigit() else ():
            kept = socket.socket(fileno=descriptor)
            kept.set_inheritable(False)
            if found is None and _name(kept) == bind:
                kept.setblocking(False)
                found = kept
            else:
                kept.close()
        if ours and found is None:
            self._send(f"FDSTOREREMOVE=1\nFDNAME={_NAME}")
        return found

    def _send(self, text: str, passed: socket.socket | None = None) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # A supervisor that does not listen must not stop the service.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            fds = [] if passed is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [passed.fileno()]))]
            channel.sendmsg([text.encode()], fds, 0, address)  # (socket.send_fds forgets the address)


def _name(listening: socket.socket) -> str:
    try:
        name = listening.getsockname()
    except OSError:
        return ""
    if isinstance(name, str):
        return f"unix:{name}"
    return f"[{name[0]}]:{name[1]}" if listening.family == socket.AF_INET6 else f"{name[0]}:{name[1]}"
