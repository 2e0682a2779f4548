"""System prompts, model cards and chat templates: small files in a model store, or beside the registry."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huddle.registry.loader import Registry, RegistryError, Served
from huddle.registry.schema import Model


@dataclass(frozen=True)
class SystemPrompt:
    """The text put before a conversation, and the hash that is logged and returned instead of it."""

    text: str
    path: Path

    @property
    def sha256(self) -> str:
        """Hash of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


class FileMissingError(RegistryError):
    """A prompt, card or template that an entry names is in no store."""


def read_system_prompt(registry: Registry, served: Served, stores: Sequence[Path] = ()) -> SystemPrompt | None:
    """The prompt of a served name; None where its entry names none. The first store that has the file wins.

    Raises:
        RegistryError: when the file is missing, empty or not UTF-8.
    """
    name = served.entry.system_prompt
    if name is None:
        return None
    path = _find(registry, served, name, stores, "system prompt")
    text = _text(path, f"the system prompt of {served.name!r}").strip()
    if not text:
        raise RegistryError(f"{path}: the system prompt of {served.name!r} is empty; write one or drop 'system-prompt'")
    return SystemPrompt(text, path)


def read_model_info(registry: Registry, served: Served, stores: Sequence[Path] = ()) -> dict[str, Any] | None:
    """The card of an alias (`model_info.json`); None for a model or an alias without one.

    Raises:
        RegistryError: when it is missing, not a JSON object, or names another base.
    """
    if served.alias is None or served.alias.model_info is None:
        return None
    path = _find(registry, served, served.alias.model_info, stores, "model card")
    try:
        card = json.loads(_text(path, f"the model card of {served.name!r}"))
    except ValueError as error:
        raise RegistryError(f"{path}: the model card of {served.name!r} is not JSON ({error})") from error
    if not isinstance(card, dict):
        raise RegistryError(f"{path}: the model card of {served.name!r} must be a JSON object")
    if card.get("base") != served.alias.base:
        raise RegistryError(f"{path}: base is {card.get('base')!r}, but the registry says {served.alias.base!r}")
    return card


def find_chat_template(registry: Registry, model: Model, directory: Path | None = None) -> Path | None:
    """The chat template that a model's entry names; None where it names none, and the tokenizer's own counts.

    The one beside the registry wins: a bundle carries it, and the engine restarts when it changes. Else it lies among
    the model's files, in `directory`.

    Raises:
        RegistryError: when the file is missing, empty or not UTF-8.
    """
    if model.chat_template is None:
        return None
    carried = registry.path.parent / "models" / model.store_directory
    candidates = [folder / model.chat_template for folder in (carried, directory) if folder is not None]
    path = next((candidate for candidate in candidates if candidate.exists()), None)
    what = f"the chat template of {model.name!r}"
    if path is None:
        raise FileMissingError(
            f"{what} is missing; looked for {', '.join(map(str, candidates))}; put it there, or drop 'chat-template' "
            "from the registry to use the tokenizer's own"
        )
    if not _text(path, what).strip():
        raise RegistryError(f"{path}: {what} is empty; write one, or drop 'chat-template' to use the tokenizer's own")
    return path


def _find(registry: Registry, served: Served, name: str, stores: Sequence[Path], what: str) -> Path:
    below = Path(served.entry.store_directory) / name
    candidates = [store / below for store in (*stores, registry.path.parent / "models")]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    looked = ", ".join(str(candidate) for candidate in candidates)
    raise FileMissingError(f"the {what} of {served.name!r} is missing; looked for {looked}; put it there")


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RegistryError(f"{path}: cannot read {what} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise RegistryError(f"{path}: cannot read {what} as UTF-8 text ({error})") from error
