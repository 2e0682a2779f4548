"""`huddle.Client`: the `openai` SDK with an endpoint that is found, errors that are sentences, and readiness."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from pathlib import Path
from typing import Any, Self, cast

import httpx2
import openai
from openai.types.chat import ChatCompletionMessageParam

from huddle import loopback
from huddle.client import problems
from huddle.client.connection import ClientError, Connection, discover
from huddle.errors import ExitCode
from huddle.headers import SUBSCRIPTION_KEY_HEADER

PROBE_TIMEOUT_S = 10.0
SERVICE_UNAVAILABLE = 503

Message = Mapping[str, Any]


@verify(UNIQUE)
class State(StrEnum):
    """What a look at an endpoint can find."""

    READY = "ready"
    STARTING = "starting"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"  # waiting will not help: wrong key, wrong address


@dataclass(frozen=True)
class Health:
    """One look at an endpoint."""

    state: State
    detail: str
    models: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether a completion would be answered now."""
        return self.state is State.READY


class Client:
    """An endpoint, found in the order of `connection.discover`. `openai` is the SDK's own client, for everything else.

    Raises:
        ClientError: no endpoint is known, or what names it is wrong. No request is sent before a method needs one.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        connection_file: Path | str | None = None,
        stack: str | None = None,
        subscription: str | None = None,
        timeout_s: float = 600.0,
        max_retries: int = 2,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.connection: Connection = discover(
            base_url,
            api_key,
            file=Path(connection_file) if connection_file else None,
            stack=stack,
            subscription=subscription,
            environ=environ,
        )
        self._settings: dict[str, Any] = {
            "base_url": self.connection.base_url,
            "api_key": self.connection.api_key or "none",
            "default_headers": {SUBSCRIPTION_KEY_HEADER: self.connection.api_key} if self.connection.api_key else {},
            "timeout": timeout_s,
            "max_retries": max_retries,
        }
        # Redirects are not followed: the SDK's transport would carry the subscription key to another host. Nor is a
        # proxy of the environment asked for what lies on this machine.
        self._transport: dict[str, Any] = {
            "follow_redirects": False,
            "trust_env": not loopback.is_loopback(self.connection.base_url),
        }
        http = openai.DefaultHttpx2Client(**self._transport)
        self.openai = openai.OpenAI(**self._settings, http_client=http)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.connection.base_url!r}, from {self.connection.source})"

    def close(self) -> None:
        """Close the connections."""
        self.openai.close()

    def asynchronous(self, **settings: Any) -> openai.AsyncOpenAI:
        """The SDK's asynchronous client for the same endpoint; `settings` replace `timeout` and `max_retries`."""
        http = openai.DefaultAsyncHttpx2Client(**self._transport)
        return openai.AsyncOpenAI(**{**self._settings, **settings}, http_client=http)

    def explained(self) -> AbstractContextManager[None]:
        """A context in which the SDK's errors become `ClientError`, for use with `openai`."""
        return problems.explained(self.connection)

    def models(self) -> tuple[str, ...]:
        """The served names that this key may use."""
        with self.explained():
            return tuple(model.id for model in self.openai.models.list())

    def pick_model(self, name: str | None = None) -> str:
        """`name`, or the connection's model, or the first that is served.

        Raises:
            ClientError: when it is not served, with the list of those that are.
        """
        served = self.models()
        wanted = name or self.connection.model or next(iter(served), None)
        if wanted is None:
            raise ClientError(f"{self.connection.base_url} serves no model to this key")
        if wanted not in served:
            raise ClientError(f"{self.connection.base_url} serves no model {wanted!r}; it serves {', '.join(served)}")
        return wanted

    def stream(self, messages: Iterable[Message], *, model: str, **settings: Any) -> Iterator[str]:
        """The chunks of an answer as they come. Leaving the loop closes the request, which frees the engine."""
        with self.explained():
            sent = cast(list[ChatCompletionMessageParam], list(messages))
            with self.openai.chat.completions.create(model=model, messages=sent, stream=True, **settings) as chunks:
                for chunk in chunks:
                    text = chunk.choices[0].delta.content if chunk.choices else None
                    if text:
                        yield text

    def ask(self, text: str, *, system: str | None = None, model: str | None = None, **settings: Any) -> str:
        """One question, one answer."""
        messages: list[Message] = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": text})
        return "".join(self.stream(messages, model=model or self.pick_model(), **settings))

    def health(self) -> Health:
        """Look once, without retries: the wrapper's `/ready`, then the models (which a gateway has too)."""
        root = self.connection.base_url.removesuffix("/v1")
        try:  # without the key, which readiness does not need
            answer = httpx2.get(f"{root}/ready", timeout=PROBE_TIMEOUT_S, **self._transport)
        except httpx2.TransportError as error:
            return Health(State.UNREACHABLE, problems.cause(error))
        if answer.status_code == SERVICE_UNAVAILABLE:
            return Health(State.STARTING, "the engine is not ready yet")
        probe = self.openai.with_options(max_retries=0, timeout=PROBE_TIMEOUT_S)
        try:
            models = tuple(model.id for model in probe.models.list())
        except openai.APIConnectionError as error:
            return Health(State.UNREACHABLE, problems.cause(error))
        except (openai.InternalServerError, openai.RateLimitError) as error:
            return Health(State.STARTING, problems.said(error, self.connection))
        except openai.OpenAIError as error:
            return Health(State.REFUSED, str(problems.explain(error, self.connection)))
        return Health(State.READY, f"serves {', '.join(models)}", models)

    def wait_until_ready(
        self,
        timeout_s: float = 600.0,
        progress: Callable[[Health, float], None] | None = None,
        *,
        poll_s: float = 1.0,
    ) -> Health:
        """Look again and again; `progress` gets every look and the seconds that have passed.

        Raises:
            ClientError: at once when waiting cannot help (exit code 2), or after `timeout_s` (exit code 1).
        """
        began = time.monotonic()
        while True:
            health = self.health()
            passed = time.monotonic() - began
            if progress:
                progress(health, passed)
            if health.ready:
                return health
            if health.state is State.REFUSED:
                raise ClientError(health.detail)
            if passed + poll_s > timeout_s:
                url = self.connection.base_url
                raise ClientError(
                    f"{url} is not ready after {timeout_s:g} s: {health.detail}", exit_code=ExitCode.FAILED
                )
            time.sleep(poll_s)
