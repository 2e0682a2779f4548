"""What policies, resources, reports and the simulator share about a gateway: ids, key headers, the circuit breaker."""

from __future__ import annotations

from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify

from huddle.headers import SUBSCRIPTION_KEY_HEADER
from plan.azure.gateway_model import BREAKER_REST_S
from plan.secrets import Secret


@verify(UNIQUE)
class Entity(StrEnum):
    """Entities that every gateway has. Azure refuses `* # & + : < > ?` in their names (docs/facts/azure.md#names).

    Those of ours are names; their ids come from the plan (`GatewayPlan.entity_id`). The others are Azure's own words.
    """

    API = "openai"
    AZURE_OPENAI_API = "azure-openai"
    BEARER_API = "bearer"
    BACKEND_KEY = Secret.BACKEND_KEY.vault_name
    INSIGHTS_CONNECTION = "insights-connection-string"
    LOGGER = "insights"
    DIAGNOSTIC = "applicationinsights"  # Azure knows two diagnostics, by exactly these words
    POLICY = "policy"  # the only name that a policy may have
    DEVELOPERS = "developers"  # the built-in group of everybody who signed in to the portal
    GUESTS = "guests"  # the built-in group of everybody else


class KeyParameter(StrEnum):
    """Where clients put their subscription key: Azure's defaults, so that no client needs our documentation first."""

    HEADER = SUBSCRIPTION_KEY_HEADER
    QUERY = "subscription-key"


AZURE_OPENAI_KEY_HEADER = "api-key"
"""Where clients of Azure OpenAI put their key."""


@dataclass(frozen=True)
class BreakerRule:
    """`failures` answers with a status in one of `statuses` (first to last) within `window_s` stop a backend.

    It rests for `rest_s`, or for as long as the answer's Retry-After says.
    """

    name: str
    failures: int
    window_s: int
    rest_s: int
    statuses: tuple[tuple[int, int], ...]


NODE_CANNOT_SERVE = BreakerRule(
    "node-cannot-serve", failures=3, window_s=30, rest_s=BREAKER_REST_S, statuses=((502, 503),)
)
"""502 and 503 only. 429 is a full queue, which the policy's retry takes elsewhere; 504 and 500 can be one client's
doing, and no client may switch off nodes."""
