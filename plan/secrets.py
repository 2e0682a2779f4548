"""The stack's secrets: one row each. Config keys, the vault, files on nodes and the reference page follow from it."""

from __future__ import annotations

from enum import UNIQUE, Enum, verify


@verify(UNIQUE)
class Secret(Enum):
    """A config key that is a secret: never part of the settings, never in plain text, read by the target only."""

    BACKEND_KEY = ("backend_key", "The key that the gateway shows to the wrapper.")
    RAY_TOKEN = ("ray_token", "Ray's cluster token.")
    MODEL_HUB_TOKEN = ("model_hub_token", "Token for gated models on the model hub (optional).", False)
    SSH_PRIVATE_KEY = (
        "ssh_private_key",
        "The private half of one of access.ssh_public_keys; needed where `access.delivery` is `ssh`.",
        False,
        False,
    )

    def __init__(self, key: str, description: str, required: bool = True, on_nodes: bool = True) -> None:
        self.key = key
        """Its name in the stack's config, and of its file on a node."""
        self.description = description
        self.required = required
        self.on_nodes = on_nodes
        """Whether nodes get it, through Key Vault or over SSH."""

    @property
    def vault_name(self) -> str:
        """Its name in Key Vault and API Management: Key Vault's names have hyphens only."""
        return self.key.replace("_", "-")

    @property
    def keeps_previous(self) -> bool:
        """Whether a node takes the one before it, too, until the next: the gateway learns of a new key last."""
        return self is Secret.BACKEND_KEY


NODE_SECRETS = tuple(secret for secret in Secret if secret.on_nodes)
