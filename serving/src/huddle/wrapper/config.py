"""The wrapper's configuration: `/etc/huddle/wrapper.yaml`, overridden by the environment and by flags.

Secrets are never in it: it names files that hold keys, or the hashes of keys.
"""

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    ValidationError,
    field_validator,
    model_validator,
)

from huddle import media_urls, yaml_source
from huddle.errors import InputError
from huddle.findings import findings, sentence, written
from huddle.forms import Form
from huddle.wrapper.body.fields import PRIORITY_MAX
from huddle.wrapper.body.prompts import ClientSystem
from huddle.wrapper.http.ledger import large_room
from huddle.wrapper.http.upstream import Address
from huddle.wrapper.routes import EngineRoute

DEFAULT_PATH: Final = Path("/etc/huddle/wrapper.yaml")
BACKEND_KEYS_CREDENTIAL: Final = "huddle-backend-keys"
"""Name of the systemd credential (LoadCredential=) that is read when no file is named."""
Name = Annotated[
    str,
    Form(
        r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}",
        "1 to 128 letters, digits and . _ : / -, starting with a letter or digit",
    ),
]
Slug = Annotated[
    str,
    Form(
        r"[a-z0-9][a-z0-9-]{0,63}",
        "1 to 64 lower-case letters, digits and hyphens, starting with a letter or digit",
    ),
]


class ConfigError(InputError):
    """The configuration cannot be used."""


LONGEST_SOCKET_PATH = 107
"""Bytes that Linux takes (unix(7))."""


def _bind(text: str) -> str:
    if text.startswith("unix:/"):
        if (size := len(os.fsencode(text.removeprefix("unix:")))) > LONGEST_SOCKET_PATH:
            raise ValueError(f"{text!r} has a path of {size} bytes; allowed: {LONGEST_SOCKET_PATH} for a socket")
        return text
    host, _, port = text.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise ValueError(f"{text!r} is not an address to listen on: use IP:PORT, [IPv6]:PORT or unix:/PATH") from None
    if not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r} has no valid port (0 to 65535)")
    return text


def _upstream(given: object) -> object:
    entries = given if isinstance(given, list | tuple) else [given]
    addresses = [Address.parse(entry) for entry in entries if isinstance(entry, str)]
    if not entries or len(addresses) < len(entries):
        raise ValueError("must be the address of an engine, or a list of addresses of engines that serve the same")
    if len(set(addresses)) < len(addresses):
        raise ValueError(f"{written(given)} names an engine twice")
    return given


Bind = Annotated[str, AfterValidator(_bind)]
Upstream = Annotated[str | tuple[str, ...], BeforeValidator(_upstream)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Routes = Annotated[
    tuple[EngineRoute, ...] | None, Field(min_length=1, description="The engine's routes offered; all when left out.")
]


class Section(BaseModel):
    """Frozen, and a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(Section):
    """One served model."""

    upstream_model: Name | None = Field(
        None,
        description="Name by which the engine knows it; the served name when left out. Answers show the engine's name, "
        "since their bytes are not touched.",
    )
    system_prompt_file: Path | None = Field(None, description="UTF-8 text; must not be empty.")
    prompt_id: Name | None = Field(
        None, description="Shown in X-Huddle-Prompt-Id and in logs; the served name when left out."
    )
    client_system: ClientSystem = Field(
        ClientSystem.APPEND, description="What happens to a client's own system text when there is a system prompt."
    )
    max_output_tokens: int | None = Field(None, ge=1, description="Most output tokens of one answer.")
    max_model_len: int | None = Field(
        None, ge=1, description="Context (tokens); asked from the engine when left out. Bounds what is reserved."
    )
    priority_scheduling: bool = Field(
        False, description="The engine runs with `--scheduling-policy priority`; only then are priorities sent to it."
    )
    routes: Routes = None
    description: str = ""


class KeyConfig(Section):
    """A key of a product, by its hash."""

    name: Slug = Field(description="Who holds it; shown in logs and metrics, and the unit of limits.")
    sha256: Annotated[str, Form(r"[0-9a-f]{64}", "64 lower-case hexadecimal digits")] = Field(
        description="From `huddle wrapper key`."
    )


class ProductConfig(Section):
    """A product: what its subscribers may use. Behind a gateway the gateway enforces the limits; own keys are ours."""

    models: tuple[str, ...] | None = Field(None, min_length=1, description="Served names; all when left out.")
    routes: Routes = None
    system_prompt_file: Path | None = Field(None, description="Placed before the model's own prompt.")
    prompt_id: Name | None = None
    client_system: ClientSystem = ClientSystem.APPEND
    max_output_tokens: int | None = Field(None, ge=1)
    keys: tuple[KeyConfig, ...] = Field((), description="Own keys, for places without a gateway.")
    requests_per_minute: int | None = Field(None, ge=1, description="For each key.")
    tokens_per_minute: int | None = Field(None, ge=1, description="For each key; input and output.")
    tokens_per_day: int | None = Field(None, ge=1, description="For each key, over any 24 hours.")
    max_concurrency: int | None = Field(
        None, ge=1, description="Sequences at the same time, for each key; a request has inputs x n of them."
    )
    weight: int = Field(
        1, ge=1, le=100, description="How often its callers' turn comes when requests wait, against other products."
    )
    priority: int = Field(
        0, ge=0, le=PRIORITY_MAX, description="The engine serves lower numbers first; a request may only ask for more."
    )


class LimitsConfig(Section):
    """Sizes and counts. Over them, a request is refused."""

    connections: int = Field(
        4_096, ge=1, description="Open client connections; an eighth is kept for loopback and gateway_addresses."
    )
    connections_per_address: int = Field(
        1_024, ge=1, description="Those of one address (of IPv6: one /64), but for loopback and gateway_addresses."
    )
    concurrency: int = Field(
        1_024, ge=1, description="Sequences at the engine at the same time; a request has inputs x n of them."
    )
    caller_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Part of the concurrency, and of the connections, that one caller (key, or tenant of a gateway) "
        "may hold.",
    )
    queue: int = Field(
        256,
        ge=0,
        description="Sequences waiting for a place behind the first waiting request of each caller; beyond it, "
        "requests get 429 at once. With 0, none wait. Also the large bodies of one caller that wait to be read.",
    )
    head_bytes: int = Field(32_768, ge=1_024)
    headers: int = Field(64, ge=8)
    target_bytes: int = Field(2_048, ge=64)
    body_bytes: int = Field(8_388_608, ge=1_024, description="One request's body.")
    buffered_bytes: int = Field(
        536_870_912,
        ge=1_024,
        description="All request bodies until the engine's first byte, and answers that wait for their end or reader; "
        "an eighth is kept for those up to 64 KiB.",
    )
    buffered_bytes_per_caller: int = Field(
        134_217_728, ge=1_024, description="Those of one caller (a key's holder, or the gateway's tenant)."
    )
    n: int = Field(8, ge=1)
    output_tokens: int = Field(32_768, ge=1)
    messages: int = Field(1_024, ge=1)
    inputs: int = Field(2_048, ge=1, description="Texts in one embeddings or completions request.")
    prompt_copies_bytes: int = Field(
        2_097_152,
        ge=1,
        description="System prompts that the texts of one completions request get together; one may have any.",
    )
    media: int = Field(16, ge=0, description="Images, sounds and films in one request.")
    media_bytes: int = Field(4_194_304, ge=1, description="One image in a data: URL, decoded from base64.")
    media_pixels: int = Field(
        50_000_000, ge=1, description="Pixels of one request's images in data: URLs together, before any resizing."
    )
    tools: int = Field(128, ge=0)
    stop: int = Field(16, ge=0)
    logprobs: int = Field(20, ge=0)
    list_items: int = Field(1_024, ge=1)
    depth: int = Field(64, ge=8, description="Nesting of the JSON body.")
    schema_bytes: int = Field(262_144, ge=1, description="JSON schemas of one field, written as JSON.")
    schema_depth: int = Field(
        64, ge=1, description="Nesting of a field with schemas, through references; of groups in a regular expression."
    )
    schema_objects: int = Field(10_000, ge=1, description="JSON objects and lists in one such field.")
    schema_properties: int = Field(3_000, ge=1, description="Properties in the schemas of one field together.")
    schema_choices: int = Field(4_000, ge=1, description="Entries of enum and choice in one field together.")
    schema_alternatives: int = Field(
        3_000, ge=1, description="Entries of anyOf, oneOf and allOf in one field together."
    )
    schema_items: int = Field(10_000, ge=1, description="minItems, maxItems, minProperties and the like.")
    schema_items_total: int = Field(100_000, ge=1, description="Their sum in one field.")
    schema_nested_items: int = Field(1_000_000, ge=1, description="Their product along any path into a schema.")
    schema_length: int = Field(100_000, ge=1, description="minLength and maxLength.")
    grammar_characters: int = Field(65_536, ge=1, description="One regular expression or grammar.")
    grammar_repetitions: int = Field(
        1_000, ge=1, description="{m,n} in one, nested ones multiplied; an object's properties times maxProperties."
    )
    schema_repetitions: int = Field(10_000, ge=1, description="The sum of these in one field.")
    compile_s: float = Field(
        60,
        gt=0,
        description="Estimated seconds of compiling under way for one caller; no request may need more.",
    )
    compile_total_s: float = Field(120, gt=0, description="The same of all callers together.")


class TimeoutsConfig(Section):
    """How long each step of a request may take, in seconds."""

    client_idle_s: Seconds = Field(75, description="Between two requests on one connection.")
    client_head_s: Seconds = Field(10, description="For a request's head to arrive.")
    client_body_s: Seconds = Field(60, description="For its body to arrive.")
    client_stall_s: Seconds = Field(60, description="Without the client reading any of its answer.")
    queue_s: Seconds = Field(
        30,
        description="From a whole request to its way to the engine: a large body's turn to be read, a free place there "
        "and leave to compile, together.",
    )
    connect_s: Seconds = Field(2, description="For the engine to accept a connection.")
    first_byte_s: Seconds = Field(600, description="For the engine's answer to begin (for a plain answer: to be done).")
    idle_s: Seconds = Field(180, description="Between two chunks of an answer.")
    total_s: Seconds = Field(3_600, description="For a whole request.")
    keepalive_s: Seconds = Field(15, description="Silence at the start of a stream until a comment is sent.")
    drain_notice_s: float = Field(
        0, ge=0, le=300, description="Still serving after SIGTERM, with /ready at 503, so that a balancer can notice."
    )
    restart_s: int = Field(
        30, ge=1, le=600, description="Told in `Retry-After` to new requests after that, until this process ends."
    )
    drain_s: Seconds = Field(600, description="For running requests to finish after that.")


class WrapperConfig(Section):
    """The root of `wrapper.yaml`."""

    listen: Bind = "0.0.0.0:8000"
    metrics_listen: Bind | None = "127.0.0.1:9400"
    upstream: Upstream = "http://127.0.0.1:5005"
    upstream_key_file: Path | None = Field(None, description="The engine's own API key, when it has one.")
    backend_keys_file: Path | None = Field(
        None, description=f"Keys of the gateway, one a line; the credential {BACKEND_KEYS_CREDENTIAL} when left out."
    )
    cache_salt_file: Path | None = Field(
        None, description="Secret behind the per-tenant cache salts; default: generated at each start."
    )
    probe_verdict_file: Path | tuple[Path, ...] | None = Field(
        None,
        description="Where `huddle probe` says how the engine does, which gets requests only while that is healthy; "
        "with several engines a list, in upstream's order.",
    )
    authentication: bool = Field(True, description="May only be false when listening on loopback.")
    workers: int = Field(1, ge=1, le=64, description="Processes that share the port; limits are divided among them.")
    gateway_addresses: tuple[IPvAnyNetwork, ...] = Field(
        (), description="The gateway's networks (CIDR): no share of connections holds for them, and room is kept."
    )
    media_url_prefixes: tuple[str, ...] = Field(
        (), description="Where the engine may fetch media from (`https://host/path/`); data: URLs are always allowed."
    )
    models: dict[Name, ModelConfig] = Field(min_length=1, description="What is served, by the names that clients use.")
    products: dict[Slug, ProductConfig] = Field(default_factory=dict)
    limits: LimitsConfig = LimitsConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where the engines listen."""
        return tuple(map(Address.parse, [self.upstream] if isinstance(self.upstream, str) else self.upstream))

    @property
    def verdict_files(self) -> tuple[Path | None, ...]:
        """The file of each engine's probe, where it has one."""
        named = self.probe_verdict_file
        if isinstance(named, tuple):
            return named
        return (named,) * len(self.addresses)

    def places(self) -> tuple[int, int]:
        """One worker's places for sequences at the engine, and how many of them one caller may hold."""
        places = max(self.limits.concurrency // self.workers, 1)
        return places, max(int(places * self.limits.caller_share), 1)

    @property
    def memory_bytes(self) -> int:
        """What all processes may use at most: the bound for the supervisor above (MemoryMax=).

        For each: the program, and one large body that is parsed. Together: a connection's buffers, ours and the
        kernel's, and twice the bytes that are counted, which are true within 10 % (docs/decisions/0014).
        """
        limits = self.limits
        each = 512 * 1024**2 + 16 * limits.body_bytes
        return self.workers * each + limits.connections * 128 * 1024 + 2 * limits.buffered_bytes

    @field_validator("media_url_prefixes")
    @classmethod
    def _prefixes_end_the_host(cls, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(media_urls.prefix, prefixes))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for name, product in self.products.items():
            for model in product.models or ():
                if model not in self.models:
                    raise ValueError(f"products.{name}.models: {model!r} is not one of {', '.join(self.models)}")
            for limit in ("requests_per_minute", "tokens_per_minute", "tokens_per_day", "max_concurrency"):
                value = getattr(product, limit)
                if value is not None and value < self.workers:
                    raise ValueError(f"products.{name}.{limit}: {value} cannot be divided among {self.workers} workers")
        if self.probe_verdict_file is not None and len(self.verdict_files) != len(self.addresses):
            raise ValueError(
                f"probe_verdict_file: names {len(self.verdict_files)} files and upstream {len(self.addresses)} "
                "engines; each engine has a probe of its own"
            )
        held = min(large_room(self.limits.buffered_bytes), self.limits.buffered_bytes_per_caller) // self.workers
        if self.limits.body_bytes > held:
            raise ValueError(
                f"limits.body_bytes: {self.limits.body_bytes} is more than one caller may hold in one worker ({held}); "
                "raise limits.buffered_bytes and limits.buffered_bytes_per_caller, or lower limits.body_bytes"
            )
        names = [key.sha256 for product in self.products.values() for key in product.keys]
        if len(set(names)) != len(names):
            raise ValueError("products: one key is given to two holders; every key has one")
        if not self.authentication and not is_loopback(self.listen):
            raise ValueError("authentication: may only be false when 'listen' is a loopback address or a unix socket")
        return self


def is_loopback(bind: str) -> bool:
    """Whether only this machine can reach an address."""
    return bind.startswith("unix:") or ipaddress.ip_address(bind.rpartition(":")[0].strip("[]")).is_loopback


def load(path: Path, overrides: Mapping[str, Any]) -> WrapperConfig:
    """Read the file and lay `overrides` (flags, environment; None means not given) over it.

    Raises `ConfigError` with one sentence for each problem: file, line, key, what is allowed.
    """
    document = yaml_source.read(path, "the wrapper's configuration", ConfigError)
    if document.repeated:
        raise ConfigError(*document.twice())
    if not isinstance(document.data, dict):
        raise ConfigError(document.fault((), "the wrapper's configuration must be a mapping with the key 'models'"))
    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        return WrapperConfig.model_validate({**document.data, **given})
    except ValidationError as error:
        raise ConfigError(*(document.fault(f.path, sentence(f)) for f in findings(error, WrapperConfig))) from error
