"""The ids of the gateway's entities: what policies, resources and reports call them."""

from __future__ import annotations

from enum import UNIQUE, StrEnum, verify


@verify(UNIQUE)
class Entity(StrEnum):
    """Entities that every gateway has. Azure refuses `* # & + : < > ?` in their names (docs/facts/azure.md#names)."""

    API = "openai"
    BACKEND_KEY = "backend-key"
    INSIGHTS_CONNECTION = "insights-connection-string"
    LOGGER = "insights"
    DIAGNOSTIC = "applicationinsights"  # Azure knows two diagnostics, by exactly these words
    POLICY = "policy"  # the only name that a policy may have
    DEVELOPERS = "developers"  # the built-in group of everybody who signed in to the portal
    GUESTS = "guests"  # the built-in group of everybody else


class KeyParameter(StrEnum):
    """Where clients put their subscription key: Azure's defaults, so that no client needs our documentation first."""

    HEADER = "Ocp-Apim-Subscription-Key"
    QUERY = "subscription-key"
