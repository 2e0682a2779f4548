"""Loopback never goes through a proxy, whatever `http_proxy` says: the one place that knows how a program is told.

A proxy cannot reach our loopback, and would see the keys that go there. Go's programs leave loopback out by themselves;
gRPC's C core, Python's HTTP clients and whatever they start look into `no_proxy` (docs/facts/pulumi.md#proxies).
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

HOSTS = ("localhost", "127.0.0.1", "::1")
_LISTS = ("no_proxy", "NO_PROXY")
_GRPC_LIST = "no_grpc_proxy"
"""gRPC reads this one instead, where it is set."""


def environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a child process gets: *inherited*, with loopback among the hosts that no proxy is asked for."""
    both = _joined(*(inherited.get(name, "") for name in _LISTS))
    own = {_GRPC_LIST: _joined(inherited[_GRPC_LIST])} if _GRPC_LIST in inherited else {}
    return {**inherited, **dict.fromkeys(_LISTS, both), **own}


def apply() -> None:
    """The same for this process, before it opens a connection: gRPC has no other way to be told."""
    os.environ.update(environment())


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this machine's loopback."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _joined(*lists: str) -> str:
    """One list of all, without blanks (some readers keep them as part of a name); `*` stays, it means every host."""
    given = [host.strip() for text in lists for host in text.split(",") if host.strip()]
    return "*" if "*" in given else ",".join(dict.fromkeys([*given, *HOSTS]))
