"""Tell systemd how we are (sd_notify(3)): a datagram to the socket that it names in NOTIFY_SOCKET."""

import os
import socket
import time


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

    def _send(self, text: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.sendto(text.encode(), address)
        except OSError:
            pass  # a supervisor that does not listen must not stop the service
