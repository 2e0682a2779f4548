"""What scenarios have in common: the registry of promises, and how a refusal must look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Protocol

from huddle.wrapper.errors import ErrorType
from simulator.apim_policies.gateway_config import DEFAULT_POLICY

from .lab import Answered, Lab


class Make(Protocol):
    """Makes a lab, with a policy of the whole service around ours."""

    def __call__(self, outer: str = DEFAULT_POLICY) -> Lab: ...


SCENARIOS: dict[str, Callable[[Make], Awaitable[None]]] = {}
NODES = ("http://10.0.0.4:8000/v1", "http://10.0.0.5:8000/v1")
OUTER = """
<policies>
  <inbound><set-header name="X-Organisation" exists-action="override"><value>seen</value></set-header></inbound>
  <backend><forward-request /></backend>
  <outbound>
    <set-header name="X-Organisation" exists-action="override">
      <value>@(context.RequestId.ToString())</value>
    </set-header>
  </outbound>
  <on-error><return-response><set-status code="418" reason="Ours" /></return-response></on-error>
</policies>
"""


def scenario(check: Callable[[Make], Awaitable[None]]) -> Callable[[Make], Awaitable[None]]:
    SCENARIOS[check.__name__] = check
    return check


def assert_refused(got: Answered, status: int, kind: ErrorType, code: str) -> None:
    """An error in the shape of OpenAI's API, with an id to ask about."""
    assert (got.status, got.error["type"], got.error["code"]) == (status, kind, code)
    assert got.reason == HTTPStatus(status).phrase
    assert list(got.error) == ["message", "type", "param", "code"]
    assert got.error["param"] is None
    assert got.error["message"]
    assert got.headers.get("Content-Type") == "application/json"
    assert len(got.headers.get("X-Request-Id") or "") == 36
    assert "10.0.0" not in got.body.decode()
