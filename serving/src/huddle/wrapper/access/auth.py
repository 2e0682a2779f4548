"""Who is calling: the gateway with a backend key, or a subscriber with a key of our own."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import UNIQUE, StrEnum, verify
from functools import lru_cache
from pathlib import Path
from typing import Final

from huddle import whole_file
from huddle.headers import BACKEND_KEY_HEADER, PRODUCT_HEADER, TENANT_HEADER
from huddle.wrapper.access.fairness import Holder
from huddle.wrapper.config import BACKEND_KEYS_CREDENTIAL, ConfigError, ProductConfig
from huddle.wrapper.errors import ErrorType, RequestError
from huddle.wrapper.http.http1 import Head

_BACKEND_KEY: Final = BACKEND_KEY_HEADER.encode()
_PRODUCT: Final = PRODUCT_HEADER.encode()
_TENANT: Final = TENANT_HEADER.encode()
KEY_PREFIX: Final = "hk-"
_KEY_CHARS_MIN: Final = 16
_TENANT_CHARS_MAX: Final = 128
_SECRET_BYTES_MAX: Final = 1024 * 1024


@verify(UNIQUE)
class Via(StrEnum):
    """How a caller was recognised."""

    GATEWAY = "gateway"
    OWN_KEY = "own-key"
    NOBODY = "unauthenticated"  # only where authentication is off


@dataclass(frozen=True, slots=True)
class Caller:
    """A recognised caller. `product` is empty for a gateway that named none; `tenant` keeps callers' caches apart."""

    via: Via
    product: str = ""
    tenant: str = ""
    holder: Holder = field(init=False, repr=False, compare=False)
    """Whose account it is: a key's holder is not the gateway's tenant of the same name."""

    def __post_init__(self) -> None:
        tenant = f"{self.via}\0{self.tenant}" if self.via is Via.OWN_KEY else self.tenant
        object.__setattr__(self, "holder", (self.product, tenant))


class Keyring:
    """The keys that are accepted now. Only hashes are kept in memory."""

    def __init__(
        self, backend_keys: Iterable[str], products: Mapping[str, ProductConfig], *, authentication: bool
    ) -> None:
        self._backend = tuple(_digest(key) for key in backend_keys)
        self._products = frozenset(products)
        self._own = {
            bytes.fromhex(key.sha256): Caller(Via.OWN_KEY, name, key.name)
            for name, product in products.items()
            for key in product.keys
        }
        self._authentication = authentication

    @property
    def empty(self) -> bool:
        """True when nobody could ever be let in."""
        return not self._backend and not self._own

    def identify(self, head: Head) -> Caller:
        """The caller of a request. Raises `RequestError` (401, or 403 for a product that does not exist).

        The product and tenant headers count only beside a backend key: anybody else could write anything there.
        """
        backend_key = head.text(_BACKEND_KEY)
        if backend_key is not None:
            if not self._is_backend_key(backend_key):
                raise _unauthenticated("the backend key is not valid")
            return self._from_gateway(head, Via.GATEWAY)
        if not self._authentication:
            return self._from_gateway(head, Via.NOBODY)
        authorization = head.text(b"authorization")
        if authorization is None:
            raise _unauthenticated("a key is required: send 'Authorization: Bearer KEY'")
        scheme, _, token = authorization.partition(" ")
        caller = self._own.get(_digest(token.strip())) if scheme.lower() == "bearer" else None
        if caller is None:
            raise _unauthenticated("the key is not valid")
        return caller

    def _is_backend_key(self, presented: str) -> bool:
        digest = _digest(presented)
        # Every key is compared, so that time tells neither which one matched nor how much of it.
        return sum(hmac.compare_digest(digest, known) for known in self._backend) > 0

    def _from_gateway(self, head: Head, via: Via) -> Caller:
        product = head.text(_PRODUCT) or ""
        tenant = _short(head.text(_TENANT) or product)
        if product and product not in self._products:
            raise RequestError(403, "unknown_product", "this product is not configured here", type=ErrorType.PERMISSION)
        return Caller(via, product, tenant)


def read_backend_keys(file: Path | None, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The backend keys: from `file`, else from the systemd credential, else none. Raises `ConfigError`.

    One key a line; empty lines and lines that begin with `#` are skipped. Several keys allow rotation: add the new one,
    change the gateway, remove the old one.
    """
    if file is None:
        directory = environment.get("CREDENTIALS_DIRECTORY")
        file = Path(directory) / BACKEND_KEYS_CREDENTIAL if directory else None
        if file is None or not file.exists():
            return []
    lines = [line.strip() for line in read_secret(file, "backend keys").splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    for number, key in enumerate(keys, 1):
        if len(key) < _KEY_CHARS_MIN or not key.isascii() or not key.isprintable() or " " in key:
            raise ConfigError(
                f"{file}: key {number} is not usable: at least {_KEY_CHARS_MIN} printable ASCII characters, no spaces"
            )
    return keys


def read_secret(file: Path, what: str) -> str:
    """The text of a secret file. Raises `ConfigError`, never with any of the text in it."""
    try:
        text = whole_file.read(file, _SECRET_BYTES_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{file}: cannot read the {what} ({reason})") from None
    if not text.strip():
        raise ConfigError(f"{file}: the file for the {what} is empty")
    return text


def new_key() -> tuple[str, str]:
    """A fresh subscriber's key (256 bits), and the hash that goes into the configuration."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    return key, hashlib.sha256(key.encode()).hexdigest()


@lru_cache(maxsize=4_096)
def cache_salt(secret: bytes, caller: Caller) -> str:
    """The prefix-cache salt of a caller: same tenant by the same way, same salt; nobody can guess another's.

    Without it, a cached prefix of one tenant answers faster for another who guesses it (CVE-2025-46570).
    """
    name = "\0".join((caller.via, caller.product, caller.tenant)).encode()
    return hmac.new(secret, name, hashlib.sha256).hexdigest()[:32]


def backend_key(head: Head) -> str:
    """The key of a request that was recognised by it."""
    return head.text(_BACKEND_KEY) or ""


def keyed_hash(backend_key: str, prompt_sha256: str) -> str:
    """A prompt's hash for who holds the backend key: nobody else can try guesses of the prompt against it.

    `cloud_init.huddle_apply.services.readiness`, which cannot import this, expects the same.
    """
    return hmac.digest(backend_key.encode(), prompt_sha256.encode(), "sha256").hex()


def _short(tenant: str) -> str:
    """A long name's beginning and the hash of it all, so that no two become one."""
    if len(tenant) < _TENANT_CHARS_MAX:
        return tenant
    return f"{tenant[: _TENANT_CHARS_MAX - 65]}#{_digest(tenant).hex()}"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _unauthenticated(message: str) -> RequestError:
    return RequestError(401, "invalid_api_key", message, type=ErrorType.AUTHENTICATION)
