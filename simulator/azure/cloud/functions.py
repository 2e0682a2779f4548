"""The functions that hand out keys and contexts; importing the module registers them with `invokes`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from simulator.azure.cloud.invokes import function, invoke
from simulator.azure.cloud.subscription import Cloud
from simulator.azure.errors import not_found
from simulator.azure.sdk import schema
from simulator.azure.sdk.paths import path_of
from simulator.azure.state.redaction import MARK, derived
from simulator.azure.state.store import Resource


def _find(cloud: Cloud, key: str, args: Mapping[str, Any]) -> tuple[Resource, str]:
    resource = schema.resource(f"{schema.PACKAGE}:{key}")
    resource_id = path_of(resource).build(args, cloud.settings.subscription)
    with cloud.store.reading() as state:
        found = state.get(resource_id)
        if found is None:
            raise not_found(resource_id)
        return deepcopy(found), state.salt


@function("apimanagement:listSubscriptionSecrets")
def subscription_secrets(cloud: Cloud, args: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of a subscription. Keys the program chose are not kept: a stand-in made from their digest is returned."""
    found, salt = _find(cloud, "apimanagement:Subscription", args)
    return subscription_keys(salt, found)


def subscription_keys(salt: str, subscription: Resource) -> dict[str, Any]:
    """A subscription's keys: made up, stable until one is regenerated (`simulator.azure.arm`), different for each."""

    def made_up(key: str) -> str:
        mark = str(subscription.notes.get(key, subscription.created))
        return f"simulated{derived(salt, subscription.id, key, mark, length=23)}"

    return {key: made_up(key) for key in ("primaryKey", "secondaryKey")}


@function("apimanagement:listNamedValue")
def named_value(cloud: Cloud, args: Mapping[str, Any]) -> dict[str, Any]:
    """The value of a named value; a secret one is a stand-in."""
    found, salt = _find(cloud, "apimanagement:NamedValue", args)
    value = found.properties.get("value")
    if value is None or (isinstance(value, Mapping) and MARK in value):
        value = f"simulated{derived(salt, found.id, str(found.notes.get('value', '')), length=23)}"
    return {"value": value}


@function("storage:listStorageAccountKeys")
def storage_keys(cloud: Cloud, args: Mapping[str, Any]) -> dict[str, Any]:
    """Both keys of a storage account."""
    found, salt = _find(cloud, "storage:StorageAccount", args)
    return {
        "keys": [
            {
                "keyName": name,
                "permissions": "FULL",
                "value": f"simulated{derived(salt, found.id, name, length=64)}",
                "creationTime": found.properties.get("creationTime"),
            }
            for name in ("key1", "key2")
        ]
    }


@function("operationalinsights:getSharedKeys", "operationalinsights:getWorkspaceSharedKeys")
def workspace_keys(cloud: Cloud, args: Mapping[str, Any]) -> dict[str, Any]:
    """Both keys of a Log Analytics workspace."""
    found, salt = _find(cloud, "operationalinsights:Workspace", args)
    return {
        key: f"simulated{derived(salt, found.id, key, length=64)}" for key in ("primarySharedKey", "secondarySharedKey")
    }


@function("authorization:getClientConfig")
def client_config(cloud: Cloud, _args: Mapping[str, Any]) -> dict[str, Any]:
    """Who the simulated caller is."""
    subscription = cloud.settings.subscription
    return {
        "subscriptionId": subscription,
        "tenantId": cloud.settings.tenant,
        "clientId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"simulated-client:{subscription}")),
        "objectId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"simulated-object:{subscription}")),
    }


@function("authorization:getClientToken")
def client_token(cloud: Cloud, _args: Mapping[str, Any]) -> dict[str, Any]:
    """A token that opens nothing."""
    return {"token": f"simulated-token-for-{cloud.settings.subscription}"}


__all__ = ["invoke"]
