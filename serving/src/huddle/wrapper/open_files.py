"""The kernel's limit on open files, beside what the configuration allows to be open."""

import resource
from typing import Final

from huddle.wrapper.config import ConfigError, WrapperConfig

_OWN: Final = 96  # listening sockets, scrapers, logs, the probe's connection, files that are read
_LEAST: Final = 32  # below this it serves nobody


def fit(config: WrapperConfig) -> tuple[WrapperConfig, str | None]:
    """Raise this process's limit to what the configuration needs; where it may not, lower the configuration's limits.

    Returns the configuration and, where it was lowered, a sentence that says so. Raises `ConfigError` when next to
    nothing could be open.
    """
    limits = config.limits
    wanted = limits.connections + limits.concurrency
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = min(max(soft, wanted + _OWN), hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    room = allowed - _OWN
    if room >= wanted:
        return config, None
    if room < _LEAST:
        raise ConfigError(
            f"this process may open {hard} files (ulimit -Hn, LimitNOFILE=), and needs {wanted + _OWN} for "
            f"limits.connections + limits.concurrency; {_OWN + _LEAST} is the least"
        )
    lowered = {
        "connections": max(limits.connections * room // wanted, 1),
        "concurrency": max(limits.concurrency * room // wanted, 1),
    }
    sentence = (
        f"this process may open {hard} files (ulimit -Hn, LimitNOFILE=), and needs {wanted + _OWN}; limits.connections "
        f"is now {lowered['connections']} in place of {limits.connections}, limits.concurrency "
        f"{lowered['concurrency']} in place of {limits.concurrency}"
    )
    return config.model_copy(update={"limits": limits.model_copy(update=lowered)}), sentence
