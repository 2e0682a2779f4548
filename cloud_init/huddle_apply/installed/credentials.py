"""Secrets from Key Vault, read with the node's managed identity, into files that only root and systemd can read."""

from __future__ import annotations

import json
import os
import secrets as random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from ..failure import ApplyError
from ..ledger import Ledger
from ..paths import NodePaths

IDENTITY_ENDPOINT = "http://169.254.169.254/metadata/identity/oauth2/token"
VAULT_RESOURCE = "https://vault.azure.net"
VAULT_API_VERSION = "7.4"
HUB_TOKEN = "HF_TOKEN"  # noqa: S105 - a variable's name, the one that the hub's client reads
_REQUEST_S = 10.0
_PAUSE_S = 5.0
_GENERATED_BYTES = 32


@dataclass(frozen=True)
class Vault:
    """Where the secrets lie, and the identity that may read them."""

    uri: str
    client_id: str


def hub_token(paths: NodePaths) -> str:
    """The model hub's token: from systemd's credentials in the unit, from our own files as root; "" without one."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(folder) if folder else paths.credentials
    try:
        return (path / "model_hub_token").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def fetch(paths: NodePaths, secrets: Mapping[str, Any], vault: Vault | None, ledger: Ledger, deadline_s: float) -> None:
    """Bring every secret up to date. Without a vault the files must be there already (another delivery wrote them).

    Raises:
        ApplyError: a required secret is missing.
    """
    paths.credentials.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths.credentials.chmod(0o700)
    if vault is not None:
        _from_vault(paths, secrets, vault, ledger, deadline_s)
    for name, secret in secrets.items():
        path = paths.credentials / name
        if path.is_file():
            continue
        if secret["required"]:
            raise ApplyError(f"the secret {name} is missing: there is no {path}, and no key vault was named")
        files.write(path, b"", 0o600)  # LoadCredential= wants a file


def with_previous(value: str, known: str) -> str:
    """A key and, on a line of its own, the one before it: who shows the key learns of the new one last.

    The same key again changes nothing. `cloud_init/templates/ssh/secrets.sh.j2` does the same.
    """
    previous = known.partition("\n")[0]
    if previous == value:
        return known
    return f"{value}\n{previous}" if previous else value


def newest(paths: NodePaths, name: str) -> str:
    """The key that counts, of a credential that holds the one before it, too."""
    return _known(paths.credentials / name).partition("\n")[0].strip()


def generate(paths: NodePaths, name: str) -> None:
    """Make a secret of the node's own, once. Without a line's end: JupyterLab takes its token's file as it is."""
    path = paths.credentials / name
    known = path.read_text(encoding="utf-8").strip() if path.is_file() else random.token_hex(_GENERATED_BYTES)
    files.write(path, known.encode(), 0o600)


def _known(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _from_vault(paths: NodePaths, secrets: Mapping[str, Any], vault: Vault, ledger: Ledger, deadline_s: float) -> None:
    """Ask until the deadline: name resolution, the identity and its role may take minutes on a new machine."""
    end = time.monotonic() + deadline_s
    missing = dict(secrets)
    while True:
        try:
            token = _token(vault)
            for name, secret in list(missing.items()):
                value = _secret(vault, secret["secret"], token)
                if value is None and secret["required"]:
                    raise ApplyError(f"{vault.uri} has no secret {secret['secret']}")
                content = value or ""
                if secret.get("keeps_previous"):
                    content = with_previous(content, _known(paths.credentials / name))
                files.write(paths.credentials / name, content.encode(), 0o600)
                del missing[name]
        except _NotYetError as problem:
            if time.monotonic() < end:
                time.sleep(min(_PAUSE_S, deadline_s / 10))
                continue
            if all((paths.credentials / name).is_file() for name in missing):
                ledger.warn(f"{problem}; the secrets of the last time are used")
                return
            raise ApplyError(f"{problem}; tried for {deadline_s:.0f} s") from None
        return


class _NotYetError(Exception):
    """What may still come: an address, a role assignment."""


def _token(vault: Vault) -> str:
    query = urllib.parse.urlencode(
        {"api-version": "2018-02-01", "resource": VAULT_RESOURCE, "client_id": vault.client_id}
    )
    answer = _get(f"{IDENTITY_ENDPOINT}?{query}", {"Metadata": "true"}, "the identity endpoint")
    return str((answer or {}).get("access_token", ""))


def _secret(vault: Vault, name: str, token: str) -> str | None:
    url = f"{vault.uri.rstrip('/')}/secrets/{urllib.parse.quote(name)}?api-version={VAULT_API_VERSION}"
    answer = _get(url, {"Authorization": f"Bearer {token}"}, vault.uri)
    return None if answer is None else str(answer["value"])


def _get(url: str, headers: Mapping[str, str], what: str) -> dict[str, Any] | None:
    """A JSON object, or None for 404. Neither header nor body ever gets into an error text."""
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - http to the link-local identity endpoint
    # No proxy: neither the identity endpoint nor a private endpoint is reachable through one.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_REQUEST_S) as response:
            value = json.load(response)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise _NotYetError(f"{what} answers {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        raise _NotYetError(f"{what} cannot be reached ({getattr(error, 'reason', None) or error})") from None
    if not isinstance(value, dict):
        raise _NotYetError(f"{what} gives no JSON object")
    return value
