"""Questions to an engine on this machine: HTTP without libraries, so that the programs that watch it stay light."""

import http.client
import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
UNREACHABLE = (OSError, http.client.HTTPException)
"""What `request` raises where no whole answer comes; `ConnectionRefusedError` among them: nobody listens."""


def request(address: tuple[str, int], path: str, body: Any = None, *, timeout_s: float) -> tuple[int, str]:
    """Status and text of the answer to a GET, or to a POST of `body` as JSON.

    Raises:
        OSError: nobody listens, or nothing came for `timeout_s`.
        http.client.HTTPException: what came is not HTTP.
    """
    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()


def sums(metrics: str, names: Iterable[str]) -> dict[str, float]:
    """Each named metric in the text of `/metrics`, summed over all labels; 0 where it is missing.

    prometheus_client has a parser, too; to import it takes as long as the rest of the probe (70 ms).
    """
    found = dict.fromkeys(names, 0.0)
    for line in metrics.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in found:
            with suppress(ValueError):
                found[name] += float(line.rpartition(" ")[2])
    return found
