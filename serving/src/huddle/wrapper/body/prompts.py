"""System prompts: how the prompts of a model and of a product become one, and where it goes in each kind of request.

The rules (docs/reference/wrapper.md says them in prose):

1. The product's prompt comes first, the model's own follows after an empty line.
2. The result is the first thing in the conversation. Nothing that a client sends comes before it.
3. A client's own system (or developer) text at the beginning of a conversation is joined to it, after an empty line,
   in the same message: many chat templates know one system message only, and only at the front.
4. Later system messages of a client stay where they are: they can add to the conversation but are not first.
5. With `client_system: drop` the client's system text is taken out everywhere; with `refuse` it is an error.

Everything here is pure.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import UNIQUE, StrEnum, verify
from typing import Any, Final

from huddle.wrapper.errors import bad_request

SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_SEPARATOR: Final = "\n\n"
_TEXT_PARTS: Final = frozenset({"text", "input_text"})


@verify(UNIQUE)
class ClientSystem(StrEnum):
    """What happens to system text that a client sends."""

    APPEND = "append"
    DROP = "drop"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system prompt with the name and hash (hex digest of the UTF-8 text) by which answers and logs refer to it."""

    id: str
    text: str
    client_system: ClientSystem = ClientSystem.APPEND
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", hashlib.sha256(self.text.encode()).hexdigest())


def compose(product: Prompt | None, model: Prompt | None) -> Prompt | None:
    """The prompt of a served model as a product sees it (rule 1). The stricter `client_system` wins."""
    given = [prompt for prompt in (product, model) if prompt is not None]
    if len(given) < 2:
        return given[0] if given else None
    strictness = list(ClientSystem)
    return Prompt(
        id="+".join(prompt.id for prompt in given),
        text=_SEPARATOR.join(prompt.text for prompt in given),
        client_system=max((prompt.client_system for prompt in given), key=strictness.index),
    )


def into_messages(messages: Sequence[dict[str, Any]], prompt: Prompt) -> list[dict[str, Any]]:
    """Put the prompt first in a chat. `messages` are already known to be objects with a role. Raises `RequestError`."""
    leading = 0
    while leading < len(messages) and messages[leading].get("role") in SYSTEM_ROLES:
        leading += 1
    rest = list(messages[leading:])
    if prompt.client_system is not ClientSystem.APPEND:
        if leading or any(message.get("role") in SYSTEM_ROLES for message in rest):
            _refuse_if_asked(prompt, "messages")
        rest = [message for message in rest if message.get("role") not in SYSTEM_ROLES]
        own: list[str] = []
    else:
        own = [_text(message.get("content"), f"messages[{i}].content") for i, message in enumerate(messages[:leading])]
    return [{"role": "system", "content": _join(prompt, own)}, *rest]


def into_completion(text: Any, prompt: Prompt) -> str | list[str]:
    """Put the prompt in front of the text of `/v1/completions`: of each text, when there are several.

    Token ids are refused: what they say cannot be put behind a text without the tokenizer.
    """
    if isinstance(text, str):
        return _join(prompt, [text])
    if isinstance(text, list) and text and all(isinstance(item, str) for item in text):
        return [_join(prompt, [item]) for item in text]
    message = "this model has a system prompt, so 'prompt' must be a text or a list of texts"
    raise bad_request("invalid_prompt", message, "prompt")


def into_responses(instructions: Any, items: Any, prompt: Prompt) -> list[Any]:
    """The `input` of `/v1/responses` with the prompt, and the client's own `instructions` behind it, as its first item.

    Not as `instructions`: the engine repeats those in its answers.
    """
    if instructions is not None and not isinstance(instructions, str):
        raise bad_request("invalid_type", "'instructions' must be a text", "instructions")
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": items}]
    own = [instructions] if instructions else []
    if prompt.client_system is not ClientSystem.APPEND:
        if instructions or any(_is_system_item(item) for item in items):
            _refuse_if_asked(prompt, "instructions" if instructions else "input")
        own = []
        items = [item for item in items if not _is_system_item(item)]
    else:
        leading = 0
        while leading < len(items) and _is_system_item(items[leading]):
            own.append(_text(items[leading].get("content"), f"input[{leading}].content"))
            leading += 1
        items = items[leading:]
    if not items:
        raise bad_request("invalid_input", "'input' must hold more than system text", "input")
    return [{"type": "message", "role": "system", "content": _join(prompt, own)}, *items]


def _is_system_item(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") in SYSTEM_ROLES


def _join(prompt: Prompt, texts: Sequence[str]) -> str:
    return _SEPARATOR.join([prompt.text, *(text for text in texts if text)])


def _text(content: Any, where: str) -> str:
    """A system message's content as one text; its parts are joined by line ends. Raises `RequestError`."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [
            part.get("text") for part in content if isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS
        ]
        if len(texts) == len(content) and all(isinstance(text, str) for text in texts):
            return "\n".join(str(text) for text in texts)
    raise bad_request("invalid_content", f"'{where}' must be a text: system messages hold nothing else", where)


def _refuse_if_asked(prompt: Prompt, param: str) -> None:
    if prompt.client_system is ClientSystem.REFUSE:
        message = "this model's system prompt is fixed: send no system or developer text of your own"
        raise bad_request("system_not_allowed", message, param)
