"""API Management in front of the nodes."""

from components.gateway.gateway import Gateway, GatewayArgs

__all__ = ["Gateway", "GatewayArgs"]
