"""From a client's bytes to the engine's: parse, judge, add the prompt, serialise. What was checked is what is sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from huddle.wrapper.body import prompts, schemas
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.compile_cost import FREE_S, Compiling
from huddle.wrapper.body.compiled_tools import compiled_tools
from huddle.wrapper.body.content import Checker
from huddle.wrapper.body.effort import Signs
from huddle.wrapper.body.fields import PRIORITY_MAX, filter_fields, flag, schema_fields, whole_number
from huddle.wrapper.body.prompts import Prompt
from huddle.wrapper.body.shapes import TOKEN_MAX
from huddle.wrapper.body.strictjson import holds_long_number, parse_object, serialise
from huddle.wrapper.errors import ErrorType, RequestError, bad_request
from huddle.wrapper.routes import ENGINE_ROUTES, Route, check_offered

# Rough and on the high side for natural language.
_BYTES_PER_TOKEN: Final = 3
_TOKENS_PER_MESSAGE: Final = 8
_TOKENS_PER_MEDIUM: Final = 2_048
_OUTPUT_FIELDS: Final = {
    Route.CHAT: ("max_completion_tokens", "max_tokens"),
    Route.COMPLETIONS: ("max_tokens",),
    Route.RESPONSES: ("max_output_tokens",),
}
_INPUT_FIELDS: Final = {Route.COMPLETIONS: "prompt", Route.EMBEDDINGS: "input"}
"""The fields that may hold several inputs."""
_EXTRAS: Final = frozenset({"tools", "tool_choice", "chat_template_kwargs"})
_LONG_NUMBER_DIGITS: Final = 19
REPEATED: Final = ("instructions", "metadata", "reasoning", "text", "tool_choice", "tools", "user")
"""The fields that an answer of `/v1/responses` repeats."""
_DEFAULT_OUTPUT: Final = Caps().output_tokens  # what holds where nobody has configured a cap
_COMPLETIONS_DEFAULT: Final = 16  # OpenAI's and vLLM's own default of max_tokens on /v1/completions
_BYTES_FORMATS: Final = ("bytes", "bytes_only")  # of `encoding_format`, as vLLM names them
_LEAST_SHARE: Final = 8  # one part in so many of the context is left to the answer of who names no maximum


@dataclass(frozen=True, slots=True)
class Served:
    """One served model as one product sees it. `max_model_len` None means that the engine has not said yet."""

    name: str
    upstream_model: str
    prompt: Prompt | None = None
    max_output_tokens: int | None = None
    max_model_len: int | None = None
    priority: int | None = None
    """The best that a request may have; None where the engine does not schedule by it, and would refuse one."""
    routes: frozenset[Route] = ENGINE_ROUTES


@dataclass(slots=True)  # one for each request: to freeze it would cost 2 µs
class Prepared:
    """A request for the engine, and what must be known about it later."""

    body: bytes
    served: Served
    stream: bool
    hide_usage: bool  # the usage event of the stream was our wish, not the client's
    reserve_tokens: int
    sequences: int
    stripped: int
    compiling: Compiling | None = None
    stops: tuple[str, ...] = ()
    repeated: Mapping[str, Any] = field(default_factory=dict)
    """What the client has sent of `REPEATED`."""
    as_bytes: bool = False
    """Whether vectors were asked for as bytes."""
    input_tokens: int = 0
    """An estimate of the input from its size, on the high side."""


@dataclass(frozen=True, slots=True)
class Preparer:
    """Turns requests of one product into requests for the engine. Pure; raises `RequestError`."""

    served: dict[str, Served]
    caps: Caps
    media_url_prefixes: tuple[str, ...] = ()
    routes: frozenset[Route] = ENGINE_ROUTES
    """Those of the product: judged by the head alone. Each model's are among them, and judged here."""

    def prepare(self, route: Route, body: bytes, salt: str) -> Prepared:
        """Check one request body and write the engine's."""
        signs = Signs(body)
        request = parse_object(signs, self.caps.depth)
        served = self._served(request.get("model"))
        check_offered(route, "model", served.routes)
        fields, stripped = filter_fields(route, request, self.caps)
        compiling = None
        if not (judged := schema_fields(route)).isdisjoint(fields):
            schemas_of = {name: fields[name] for name in judged & fields.keys()}
            compiling = self._compiling(schemas_of, fields.get("tool_choice"), len(body))
        if signs.holds_digits(_LONG_NUMBER_DIGITS):  # most bodies need no walk
            long = next((name for name, value in fields.items() if holds_long_number(value)), None)
            if long is not None:
                raise bad_request("invalid_value", f"'{long}' holds a whole number of more than 64 bits", long)
        fields["model"] = served.upstream_model
        checker = Checker(self.caps, self.media_url_prefixes)
        choices = whole_number(fields, "n", 1, 1) or 1
        texts = 1
        repeated: dict[str, Any] = {}
        if route is Route.CHAT:
            self._chat(fields, checker, served.prompt)
        elif route is Route.COMPLETIONS:
            texts = self._completion(fields, served.prompt)
        elif route is Route.RESPONSES:
            repeated = self._responses(fields, checker, served.prompt)
        else:
            texts = self._embeddings(fields)
        sequences, most = choices * texts, self.caps.sequences
        if route is Route.EMBEDDINGS:
            sequences = min(sequences, most)  # its texts put nothing out: a large batch takes the share, and goes on
        elif sequences > most:
            message = f"this request has {sequences} sequences (inputs x n); at most {most} may run at once"
            raise bad_request("value_too_large", message, "n" if texts == 1 else _INPUT_FIELDS[route])
        output = 0 if route is Route.EMBEDDINGS else self._output_tokens(route, fields, served, len(body))
        stream = flag(fields, "stream") if route is not Route.EMBEDDINGS else False
        hide = self._force_usage(route, fields, stream=stream)
        fields["cache_salt"] = salt
        _step_back(fields, served.priority)
        written = serialise(fields)
        inputs = _input_tokens(fields, len(written))
        reserve = _reserved(served, inputs, output, sequences)
        as_bytes = fields.get("encoding_format") in _BYTES_FORMATS
        return Prepared(
            body=written,
            served=served,
            stream=stream,
            hide_usage=hide,
            reserve_tokens=reserve,
            sequences=sequences,
            stripped=stripped,
            compiling=compiling,
            stops=_stops(fields),
            repeated=repeated,
            as_bytes=as_bytes,
            input_tokens=inputs,
        )

    def _compiling(self, schemas_of: dict[str, Any], tool_choice: Any, body_bytes: int) -> Compiling | None:
        """Judge the fields that may hold schemas; None when compiling them is cheap."""
        costs = {name: schemas.judge(name, value, self.caps, body_bytes) for name, value in schemas_of.items()}
        compiled: dict[str, Any] = schemas_of
        if isinstance(tools := schemas_of.get("tools"), list):
            chosen = compiled_tools(tools, tool_choice)
            compiled = schemas_of | {"tools": chosen, "tool_choice": tool_choice if chosen else None}
            if len(chosen) < len(tools):
                costs["tools"] = schemas.judge("tools", chosen, self.caps, body_bytes)
        cost_s = sum(costs.values())
        if cost_s < FREE_S:
            return None
        if cost_s > self.caps.compile_s:
            message = (
                f"compiling {' and '.join(sorted(schemas_of))} would take about {cost_s:.0f} s; at most "
                f"{self.caps.compile_s:g} s are allowed here: use fewer lengths, repetitions, patterns or rules"
            )
            raise bad_request("value_too_large", message, max(costs, key=costs.__getitem__))
        return Compiling(blake2b(serialise(compiled), digest_size=16).digest(), cost_s)

    def _served(self, name: Any) -> Served:
        if name is None and len(self.served) == 1:
            return next(iter(self.served.values()))
        if not isinstance(name, str) or not name:
            raise bad_request("invalid_model", "'model' must be the name of a model (see GET /v1/models)", "model")
        served = self.served.get(name)
        if served is None:
            message = f"the model {name[:128]!r} does not exist here (see GET /v1/models)"
            raise RequestError(404, "model_not_found", message, type=ErrorType.NOT_FOUND, param="model")
        return served

    def _chat(self, fields: dict[str, Any], checker: Checker, prompt: Prompt | None) -> None:
        messages = checker.messages(fields.get("messages"))
        fields["messages"] = prompts.into_messages(messages, prompt) if prompt else messages
        _judge_extras(fields, checker, flat=False)

    def _completion(self, fields: dict[str, Any], prompt: Prompt | None) -> int:
        text = fields.get("prompt")
        if not isinstance(text, str | list) or text == []:
            raise bad_request("invalid_prompt", "'prompt' must be a text or a list that is not empty", "prompt")
        count = self._count_texts("prompt", text)
        if prompt:
            fits = max(self.caps.prompt_copies_bytes // len(prompt.text.encode()), 1)
            if count > fits:
                message = f"'prompt' has {count} texts; with this model's system prompt at most {fits} are allowed here"
                raise bad_request("value_too_large", message, "prompt")
            fields["prompt"] = prompts.into_completion(text, prompt)
        return count

    def _responses(self, fields: dict[str, Any], checker: Checker, prompt: Prompt | None) -> dict[str, Any]:
        """Returns what the answer may repeat."""
        repeated = {"instructions": fields.get("instructions")}
        items = checker.input_items(fields.get("input"))
        if prompt:
            items = prompts.into_responses(fields.pop("instructions", None), items, prompt)
        fields["input"] = items
        fields["store"] = False
        _judge_extras(fields, checker, flat=True)
        return repeated | {name: fields[name] for name in REPEATED[1:] if name in fields}

    def _embeddings(self, fields: dict[str, Any]) -> int:
        text = fields.get("input")
        if not isinstance(text, str | list) or text in ("", []):
            raise bad_request("invalid_input", "'input' must be a text or a list that is not empty", "input")
        return self._count_texts("input", text)

    def _count_texts(self, name: str, value: str | list[Any]) -> int:
        """How many sequences the engine makes of it: a text or a list of token ids is one."""
        if isinstance(value, str) or _are_tokens(name, value):
            return 1
        if len(value) > self.caps.inputs:
            raise bad_request(
                "value_too_large", f"'{name}' has {len(value)} items; at most {self.caps.inputs} are allowed here", name
            )
        kinds = set(map(type, value))
        if kinds != {str} and not (kinds == {list} and all(item and _are_tokens(name, item) for item in value)):
            message = f"'{name}' must be a text, a list of texts, a list of token ids or a list of those"
            raise bad_request("invalid_type", message, name)
        return len(value)

    def _output_tokens(self, route: Route, fields: dict[str, Any], served: Served, size: int) -> int:
        """The most tokens of one choice. Who names none gets it written into the request, unless the context is less.

        It has to leave room for the prompt: vLLM 0.26.0 refuses what does not fit (0.32.0 lowers it), see
        docs/facts/vllm-and-ray.md#the-most-tokens-of-an-answer. `size` is the client's body in bytes.
        """
        allowed = min(filter(None, (served.max_output_tokens, self.caps.output_tokens)))
        asked: int | None = None
        for name in _OUTPUT_FIELDS[route]:
            value = whole_number(fields, name, 1, None)
            if value is not None and value > allowed:
                raise bad_request("value_too_large", f"'{name}' is {value}; at most {allowed} is allowed here", name)
            asked = asked if asked is not None else value
        if asked is not None:
            return asked
        context = served.max_model_len
        if route is Route.COMPLETIONS:
            allowed = min(_COMPLETIONS_DEFAULT, allowed)
        elif context is not None:
            if allowed >= context:
                return allowed
            prompt = len(served.prompt.text) if served.prompt else 0
            allowed = min(allowed, max(context - _input_tokens(fields, size + prompt), context // _LEAST_SHARE, 1))
        elif served.max_output_tokens is None and allowed >= _DEFAULT_OUTPUT:
            return allowed  # nobody has configured less, and the engine's context may be smaller
        fields[_OUTPUT_FIELDS[route][0]] = allowed
        return allowed

    def _force_usage(self, route: Route, fields: dict[str, Any], *, stream: bool) -> bool:
        """Ask for the usage of every stream; True when the client did not ask, so that it must not see it."""
        options = fields.pop("stream_options", None)
        if options is not None and not isinstance(options, dict):
            raise bad_request("invalid_type", "'stream_options' must be an object", "stream_options")
        if not stream or route is Route.RESPONSES:  # whose last event always says it
            return False
        options = options or {}
        asked = flag(options, "include_usage")
        fields["stream_options"] = {"include_usage": True}
        if asked and flag(options, "continuous_usage_stats"):
            fields["stream_options"]["continuous_usage_stats"] = True
        return not asked


def _reserved(served: Served, inputs: int, output: int, sequences: int) -> int:
    """Tokens that a request declares: an estimate of its input, and the most that its sequences may put out."""
    declared = inputs + output * sequences
    return declared if served.max_model_len is None else min(declared, served.max_model_len * sequences)


def _input_tokens(fields: dict[str, Any], size: int) -> int:
    """An estimate of a request's input from its size in bytes."""
    media = _media_bytes(fields.get("messages")) + _media_bytes(fields.get("input"))
    count = len(fields.get("messages") or ())
    return (size - sum(media)) // _BYTES_PER_TOKEN + count * _TOKENS_PER_MESSAGE + len(media) * _TOKENS_PER_MEDIUM


def _stops(fields: dict[str, Any]) -> tuple[str, ...]:
    stop = fields.get("stop") or ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _step_back(fields: dict[str, Any], best: int | None) -> None:
    """Lower numbers go first: a client's number counts only behind what its product has."""
    asked = fields.pop("priority", None)
    if best is None:
        return
    if asked is not None and (not isinstance(asked, int) or isinstance(asked, bool) or asked > PRIORITY_MAX):
        message = f"'priority' must be a whole number up to {PRIORITY_MAX}; higher waits longer"
        raise bad_request("invalid_value", message, "priority")
    fields["priority"] = best if asked is None else max(asked, best)


def _are_tokens(name: str, value: list[Any]) -> bool:
    """Whether a list holds whole numbers. Raises `RequestError` when they cannot be token ids."""
    if set(map(type, value)) != {int}:
        return False
    if min(value) < 0 or max(value) > TOKEN_MAX:
        raise bad_request("invalid_value", f"'{name}' holds a number that is no token id (0 to {TOKEN_MAX})", name)
    return True


def _judge_extras(fields: dict[str, Any], checker: Checker, *, flat: bool) -> None:
    """Tools and switches of a conversation, which most have not."""
    if fields.keys() & _EXTRAS:
        tools = checker.tools(fields.get("tools"), flat=flat)
        _replace(fields, "tools", tools)
        if tools is None and fields.get("tool_choice") in ("auto", "none"):
            del fields["tool_choice"]  # says nothing without tools, and the engine would refuse it
        _replace(fields, "chat_template_kwargs", checker.template_switches(fields.get("chat_template_kwargs")))


def _replace(fields: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        fields.pop(name, None)
    else:
        fields[name] = value


def _media_bytes(messages: Any) -> list[int]:
    if not isinstance(messages, list):
        return []
    sizes = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") not in ("text", "input_text", "output_text"):
                medium = next((part[key] for key in part if key.endswith(("_url", "_audio"))), "")
                sizes.append(
                    sum(len(v) for v in medium.values() if isinstance(v, str))
                    if isinstance(medium, dict)
                    else len(medium)
                    if isinstance(medium, str)
                    else 0
                )
    return sizes
