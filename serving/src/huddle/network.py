"""Which interface owns an address, and who holds a port."""

import socket

import psutil

from huddle.errors import InputError


class NetworkError(InputError):
    """An address that is not ours, or a port that is taken."""


def interface_of(ip: str) -> str:
    """The interface that owns an address of this node.

    Raises:
        NetworkError: when none does, with the addresses there are.
    """
    owned = {
        address.address: name
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family in {socket.AF_INET, socket.AF_INET6}
    }
    if ip not in owned:
        known = ", ".join(f"{address} on {name}" for address, name in owned.items() if ":" not in address)
        raise NetworkError(f"no interface of this node owns {ip}; it has {known}")
    return owned[ip]


def check_port(host: str, port: int) -> None:
    """Make sure that the engine will be able to listen.

    Raises:
        NetworkError: naming the process that holds the port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise NetworkError(f"port {port} on {host} cannot be used ({error.strerror}); {holder(port)}") from error


def holder(port: int) -> str:
    """Who listens on a port, as far as this user may see: "held by pid …"; or how to find out."""
    try:
        for connection in psutil.net_connections("inet"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                if connection.pid is None:
                    break
                process = psutil.Process(connection.pid)
                return f"held by pid {process.pid} ({process.name()}, user {process.username()})"
    except psutil.Error:
        pass
    return f"see who holds it with: ss -ltnp 'sport = :{port}'"
