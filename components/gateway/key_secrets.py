"""Subscription keys in the stack's key vault, for operators who hand them out without access to Pulumi's state."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import keyvault

from components.scope import StackScope
from components.secrets import stays_in_vault


@dataclass(frozen=True)
class KeySecretsArgs:
    """`primary` and `secondary` are the keys (secret) by `<product>/<subscription>`."""

    scope: StackScope
    vault: pulumi.Resource
    primary: Mapping[str, pulumi.Output[str]]
    secondary: Mapping[str, pulumi.Output[str]]


class KeySecrets(pulumi.ComponentResource):
    """Two secrets for each subscription. A rotated key gets here with the next `up`; those of a subscription that is
    gone stay, with keys that are worth nothing.
    """

    def __init__(self, name: str, args: KeySecretsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:KeySecrets", name, None, opts)
        for which, keys in (("primary", args.primary), ("secondary", args.secondary)):
            for subscription, key in sorted(keys.items()):
                secret, value = secret_name(subscription, which), _secret(key)
                keyvault.Secret(
                    f"{name}-{secret}",
                    resource_group_name=args.scope.resource_group_name,
                    vault_name=args.scope.names.key_vault,
                    secret_name=secret,
                    properties=keyvault.SecretPropertiesArgs(value=value),
                    tags=args.scope.first_tags,
                    opts=stays_in_vault(self, args.vault),
                )
        self.register_outputs({})


def secret_name(subscription: str, which: str) -> str:
    """The secret of `<product>/<subscription>`: letters, digits and hyphens only, at most 127 (Key Vault's rule).

    Both parts may hold hyphens, so six digits of a digest keep `a-b/c` and `a/b-c` apart.
    """
    digest = hashlib.sha256(subscription.encode()).hexdigest()[:6]
    return f"key-{subscription.replace('/', '-')}-{digest}-{which}"


def _secret(key: pulumi.Output[str]) -> pulumi.Output[str]:
    return pulumi.Output.secret(key)
