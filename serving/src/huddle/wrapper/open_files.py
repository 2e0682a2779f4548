"""The kernel's limit on open files, beside what the configuration allows to be open."""

import resource
from typing import Final

from huddle.wrapper.config import ConfigError, WrapperConfig

_OWN: Final = 96  # listening sockets, scrapers, logs, the probe's connection, files that are read
_LEAST: Final = 32  # below this it serves nobody


def wanted(config: WrapperConfig) -> int:
    """How many files one process of the wrapper may have open."""
    # All requests may go to one engine while connections to the others are idle.
    return config.limits.connections + config.limits.concurrency * len(config.addresses) + _OWN


def fit(config: WrapperConfig) -> tuple[WrapperConfig, str | None]:
    """Raise this process's limit to what the configuration needs; where it may not, lower the configuration's limits.

    Returns the configuration and, where it was lowered, a sentence that says so. Raises `ConfigError` when next to
    nothing could be open.
    """
    limits, needs = config.limits, wanted(config)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = min(max(soft, needs), hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    room, share = allowed - _OWN, needs - _OWN
    if room >= share:
        return config, None
    if room < _LEAST:
        raise ConfigError(
            f"this process may open {hard} files (ulimit -Hn, LimitNOFILE=), and needs {needs} for "
            f"limits.connections + limits.concurrency (for each engine); {_OWN + _LEAST} is the least"
        )
    lowered = {
        "connections": max(limits.connections * room // share, 1),
        "concurrency": max(limits.concurrency * room // share, 1),
    }
    sentence = (
        f"this process may open {hard} files (ulimit -Hn, LimitNOFILE=), and needs {needs}; limits.connections "
        f"is now {lowered['connections']} in place of {limits.connections}, limits.concurrency "
        f"{lowered['concurrency']} in place of {limits.concurrency}"
    )
    return config.model_copy(update={"limits": limits.model_copy(update=lowered)}), sentence
