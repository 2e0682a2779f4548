"""Whether an engine still has requests: for engines that do not finish them by themselves at a stop.

vLLM 0.26.0 with several API servers lets go of its engine as soon as it is told to stop: every running stream breaks,
and the process waits out its whole --shutdown-timeout (seen on H200s: docs/benchmarks/h100.md). With one API server it
finishes them. So the launcher waits for the last request itself and stops the engine then.
"""

from collections.abc import Callable

from huddle.engine import query
from huddle.launch.request import LaunchRequest

STOP_S = 10
"""vLLM's own --shutdown-timeout where the launcher drains: no request is left, and the engine takes 4 to 5 s to end."""
_TIMEOUT_S = 5.0
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound to


def by_launcher(request: LaunchRequest) -> bool:
    """Whether the launcher must wait for the running requests in the engine's stead."""
    return request.node.leads and request.front_ends > 1


def idle_check(request: LaunchRequest) -> Callable[[], bool]:
    """A question to the engine: is no request running or waiting? An engine that does not answer has none to finish."""
    address = (_ANY_ADDRESS.get(request.host, request.host), request.port)

    def idle() -> bool:
        try:
            _, metrics = query.request(address, "/metrics", timeout_s=_TIMEOUT_S)
        except query.UNREACHABLE:
            return True
        return requests(metrics) == 0

    return idle


def requests(metrics: str) -> float:
    """Running and waiting requests in the text of an engine's metrics."""
    return sum(query.sums(metrics, (query.RUNNING, query.WAITING)).values())
