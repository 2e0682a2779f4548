"""Where the endpoint is and with which key: from arguments, a connection file, a stack's outputs or the environment."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError
from pydantic.types import StringConstraints

from huddle import yaml_source
from huddle.client import stack_outputs
from huddle.errors import ExitCode, Fault, HuddleError
from huddle.findings import findings, sentence

URL_VARIABLE = "OPENAI_BASE_URL"
KEY_VARIABLE = "OPENAI_API_KEY"
FILE_VARIABLE = "HUDDLE_CONNECTION"
STACK_VARIABLE = "HUDDLE_STACK"

NO_ENDPOINT = (
    f"no endpoint is known: give --url, --connection FILE or --stack NAME, or set {URL_VARIABLE} and {KEY_VARIABLE}; "
    "`make local` starts one here"
)


class ClientError(HuddleError):
    """An endpoint that cannot be used as asked."""

    def __init__(self, *faults: Fault | str, exit_code: ExitCode = ExitCode.BAD_INPUT) -> None:
        super().__init__(*faults)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Connection:
    """An endpoint. The key is never part of its text."""

    base_url: str
    source: str
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", _checked_url(self.base_url, self.source))
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ClientError(f"the key from {self.source} has characters that no HTTP header can hold")


_Text = Annotated[StrictStr, StringConstraints(min_length=1, strip_whitespace=True)]


class _File(BaseModel):
    """What a connection file may say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: _Text = Field(description="Where the endpoint is, such as https://HOST/v1.")
    api_key: _Text | None = Field(None, description="Its key.")
    api_key_file: Path | None = Field(None, description="A file that holds the key, beside this one.")
    model: _Text | None = Field(None, description="The served name that is meant when none is given.")


def discover(
    base_url: str | None = None,
    api_key: str | None = None,
    *,
    file: Path | None = None,
    stack: str | None = None,
    subscription: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Connection:
    """The first that is there: `base_url`, connection file, stack, environment. A given `api_key` always wins.

    The file is the given one, HUDDLE_CONNECTION's or `~/.config/huddle/connection.yaml`, which a given stack beats.
    Nothing falls back to a public endpoint.

    Raises:
        ClientError: when there is none, or when what was found cannot be used.
    """
    found = _find(base_url, file, stack, subscription, environ)
    return replace(found, api_key=api_key) if api_key else found


def _find(
    base_url: str | None, file: Path | None, stack: str | None, subscription: str | None, environ: Mapping[str, str]
) -> Connection:
    key = environ.get(KEY_VARIABLE) or None
    if base_url:
        return Connection(base_url, "the arguments", key)
    if file is None and stack is None:
        file = _file_of(environ)
    if file is not None:
        return read_file(file)
    if name := stack or environ.get(STACK_VARIABLE):
        return _of_stack(name, subscription, environ)
    if url := environ.get(URL_VARIABLE):
        return Connection(url, URL_VARIABLE, key)
    raise ClientError(NO_ENDPOINT)


def _of_stack(stack: str, subscription: str | None, environ: Mapping[str, str]) -> Connection:
    """The gateway of a stack, with the key of a subscription (`product/name`); the only one when none is named."""
    source = f"stack {stack}"
    try:
        outputs = stack_outputs.read(stack, environ)
    except stack_outputs.StackOutputsError as error:
        raise ClientError(str(error)) from None
    url, keys, models = outputs.get("openai_base_url"), outputs.get("product_keys"), outputs.get("models")
    if not isinstance(url, str) or not isinstance(keys, dict):
        raise ClientError(
            f"{source} has no outputs openai_base_url and product_keys; bring it up with `make up STACK={stack}`"
        )
    model = str(models[0]) if isinstance(models, list) and models else None
    return Connection(url, source, str(keys[_chosen(source, keys, subscription)]), model)


def _chosen(source: str, keys: Mapping[str, Any], subscription: str | None) -> str:
    if subscription is None and len(keys) == 1:
        return str(next(iter(keys)))
    if subscription in keys:
        return str(subscription)
    asked = f"no subscription {subscription!r}" if subscription else f"{len(keys)} subscriptions"
    names = ", ".join(sorted(keys)) or "none"
    raise ClientError(f"{source} has {asked}; choose one with --subscription: {names}")


def _file_of(environ: Mapping[str, str]) -> Path | None:
    if named := environ.get(FILE_VARIABLE):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '/nonexistent')}/.config"
    usual = Path(home) / "huddle" / "connection.yaml"
    return usual if usual.is_file() and not environ.get(STACK_VARIABLE) else None


def read_file(path: Path) -> Connection:
    """Read a connection file (YAML or JSON): base_url, api_key or api_key_file, model.

    Raises:
        ClientError: when it cannot be read, others may read it, or a key in it is wrong; never with its values.
    """
    _check_private(path)
    try:
        document = yaml_source.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise ClientError(f"{path}: cannot read the connection file ({error.strerror})") from error
    except yaml_source.YamlSourceError as error:  # its words could repeat a part of the key
        raise ClientError(f"{path}:{error.line}: the connection file is not YAML or JSON") from None
    if document.repeated:
        raise ClientError(*document.twice())
    if not isinstance(document.data, dict):
        raise ClientError(f"{path}: a connection file has the keys base_url, api_key or api_key_file, and model")
    try:
        content = _File.model_validate(document.data)
    except ValidationError as error:
        hidden = "the value (not shown)"
        raise ClientError(
            *(document.fault(f.path, sentence(f, lambda _: hidden)) for f in findings(error, _File))
        ) from None
    key = content.api_key
    if content.api_key_file:
        if key:
            raise ClientError(f"{path}: api_key and api_key_file are both there; keep one")
        key = _read_key(path.parent / content.api_key_file)
    return Connection(content.base_url, str(path), key, content.model)


def _read_key(path: Path) -> str:
    _check_private(path)
    key = path.read_text(encoding="utf-8", errors="replace").strip()
    if not key:
        raise ClientError(f"{path}: the key file is empty")
    return key


def _check_private(path: Path) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise ClientError(f"{path}: cannot read it ({error.strerror})") from error
    if mode & 0o077:
        raise ClientError(f"{path}: others may read it (mode {mode:04o}) and it is for keys; chmod 600 {path}")


def _checked_url(text: str, source: str) -> str:
    """The base URL without a slash at its end; `/v1` is added where there is no path at all."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ClientError(f"the base URL from {source} must look like https://HOST/v1 or http://HOST:PORT/v1")
    if parts.username is not None or parts.query or parts.fragment:
        raise ClientError(f"the base URL from {source} holds more than an address; keys go into {KEY_VARIABLE}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"
