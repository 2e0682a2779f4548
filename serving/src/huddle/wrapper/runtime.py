"""One consistent reading of configuration, prompts and keys. A reload makes a new one; running requests keep theirs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from huddle import whole_file
from huddle.wrapper.access.auth import Caller, Keyring, read_backend_keys, read_secret
from huddle.wrapper.access.fairness import Bounds
from huddle.wrapper.access.limits import Quota
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.fields import SECTIONS, field_policies
from huddle.wrapper.body.prepare import Preparer, Served
from huddle.wrapper.body.prompts import Prompt, compose
from huddle.wrapper.config import ConfigError, LimitsConfig, ModelConfig, ProductConfig, WrapperConfig
from huddle.wrapper.http.connection import ClientTimeouts
from huddle.wrapper.http.http1 import HttpLimits
from huddle.wrapper.routes import offered

_PROMPT_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything that a request is judged by."""

    config: WrapperConfig
    keyring: Keyring
    preparers: dict[str, Preparer]  # by product; "" is a gateway that names none
    cache_salt_secret: bytes
    upstream_key: str | None
    http_limits: HttpLimits
    client_timeouts: ClientTimeouts

    def preparer(self, caller: Caller) -> Preparer:
        """What turns a caller's requests into the engine's."""
        return self.preparers[caller.product]

    @property
    def bounds(self) -> Bounds:
        """What this process may let in."""
        config = self.config
        weights = {name: product.weight for name, product in config.products.items()}
        return Bounds(*config.places(), config.limits.queue // config.workers, weights)

    @property
    def compiling(self) -> tuple[float, float, int]:
        """Seconds of compiling for one caller and in total, and how many may wait for them."""
        limits, workers = self.config.limits, self.config.workers
        each_s, total_s = limits.compile_s / workers, limits.compile_total_s / workers
        return each_s, total_s, limits.queue // workers

    @property
    def bench(self) -> int:
        """Large bodies of one caller that may wait to be read."""
        return max(self.config.limits.queue // self.config.workers, 1)

    @property
    def memory(self) -> tuple[int, int]:
        """Bytes that requests may hold, in total and of one caller."""
        limits, workers = self.config.limits, self.config.workers
        return limits.buffered_bytes // workers, limits.buffered_bytes_per_caller // workers

    @property
    def seats(self) -> tuple[int, int, int]:
        """Connections to this process: in total, of one address, and of one caller."""
        limits = self.config.limits
        each = max(int(limits.connections * limits.caller_share), 1)
        return limits.connections, limits.connections_per_address, each

    def with_lengths(self, lengths: Mapping[str, int]) -> "Runtime":
        """The same with the engine's context lengths (tokens, by its names) where the configuration says none."""
        models = self.config.models

        def filled(served: Served) -> Served:
            known = models[served.name].max_model_len or lengths.get(served.upstream_model)
            return replace(served, max_model_len=known)

        preparers = {
            product: replace(preparer, served={name: filled(each) for name, each in preparer.served.items()})
            for product, preparer in self.preparers.items()
        }
        return replace(self, preparers=preparers)

    def models(self, caller: Caller) -> list[Served]:
        """The models that a caller may use."""
        return list(self.preparer(caller).served.values())

    def quota(self, caller: Caller) -> Quota:
        """The limits of an own key in this process. (Behind a gateway, the gateway enforces its own.)"""
        product = self.config.products[caller.product]
        whole = Quota(
            product.requests_per_minute, product.tokens_per_minute, product.tokens_per_day, product.max_concurrency
        )
        return whole.share(self.config.workers)


def build(config: WrapperConfig, salt_secret: bytes) -> Runtime:
    """Read what the configuration names and put it together. Raises `ConfigError`.

    `salt_secret` serves where no file is named.
    """
    keyring = Keyring(
        read_backend_keys(config.backend_keys_file), config.products, authentication=config.authentication
    )
    if config.authentication and keyring.empty:
        raise ConfigError(
            "nobody could call this wrapper: set backend_keys_file (or the credential huddle-backend-keys), "
            "or give a product a key"
        )
    if config.cache_salt_file is not None:
        salt_secret = read_secret(config.cache_salt_file, "cache salt").strip().encode()
    upstream_key = None
    if config.upstream_key_file is not None:
        upstream_key = read_secret(config.upstream_key_file, "engine's key").strip()
    for route in SECTIONS:
        field_policies(route)  # read and checked now, not in the first request
    limits, timeouts = config.limits, config.timeouts
    return Runtime(
        config=config,
        keyring=keyring,
        preparers=_preparers(config),
        cache_salt_secret=salt_secret,
        upstream_key=upstream_key,
        http_limits=HttpLimits(limits.head_bytes, limits.headers, limits.target_bytes, limits.body_bytes),
        client_timeouts=ClientTimeouts(
            timeouts.client_idle_s, timeouts.client_head_s, timeouts.client_body_s, timeouts.client_stall_s
        ),
    )


def _preparers(config: WrapperConfig) -> dict[str, Preparer]:
    model_prompts = {
        name: read_prompt(model.system_prompt_file, model.prompt_id or name, model)
        for name, model in config.models.items()
    }
    caps = _caps(config)
    made = {"": _preparer(config, caps, None, None, model_prompts)}
    for name, product in config.products.items():
        prompt = read_prompt(product.system_prompt_file, product.prompt_id or name, product)
        made[name] = _preparer(config, caps, product, prompt, model_prompts)
    return made


def _preparer(
    config: WrapperConfig,
    caps: Caps,
    product: ProductConfig | None,
    product_prompt: Prompt | None,
    model_prompts: dict[str, Prompt | None],
) -> Preparer:
    served = {}
    routes = offered(product.routes if product else None)
    for name, model in config.models.items():
        if product is not None and product.models is not None and name not in product.models:
            continue
        both = routes & offered(model.routes)
        if not both:
            continue  # no request could reach it
        bounds = [model.max_output_tokens, product.max_output_tokens if product else None]
        upstream_model = model.upstream_model or name
        served[name] = Served(
            name=name,
            upstream_model=upstream_model,
            prompt=compose(product_prompt, model_prompts[name]),
            max_output_tokens=min((bound for bound in bounds if bound is not None), default=None),
            max_model_len=model.max_model_len,
            priority=(product.priority if product else 0) if model.priority_scheduling else None,
            routes=both,
        )
    return Preparer(served, caps, config.media_url_prefixes, routes)


def read_prompt(file: Path | None, prompt_id: str, owner: ModelConfig | ProductConfig) -> Prompt | None:
    """A system prompt's file. Raises `ConfigError` when it cannot be read, is empty or far too long."""
    if file is None:
        return None
    try:
        text = whole_file.read(file, _PROMPT_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{file}: cannot read the system prompt {prompt_id!r} ({reason})") from error
    if not text:
        raise ConfigError(f"{file}: the system prompt {prompt_id!r} is empty; write one or drop system_prompt_file")
    return Prompt(prompt_id, text, owner.client_system)


def _caps(config: WrapperConfig) -> Caps:
    names = Caps.__dataclass_fields__.keys() & LimitsConfig.model_fields.keys()
    _, share = config.places()
    return Caps(sequences=share, **{name: getattr(config.limits, name) for name in names})
