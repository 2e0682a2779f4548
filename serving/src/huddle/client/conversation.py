"""A conversation, and what a line typed into it means. Pure: no terminal, no network."""

import json
import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import UNIQUE, StrEnum, verify
from pathlib import Path

from huddle.client.connection import ClientError


@verify(UNIQUE)
class Action(StrEnum):
    """What begins with a slash."""

    HELP = "help"
    RESET = "reset"
    SYSTEM = "system"
    MODEL = "model"
    MODELS = "models"
    SAVE = "save"
    QUIT = "quit"


HELP: Mapping[Action, str] = {
    Action.HELP: "/help            this list",
    Action.RESET: "/reset           forget what was said; the system text stays",
    Action.SYSTEM: "/system [TEXT]   show or set the system text",
    Action.MODEL: "/model [NAME]    show or choose the model",
    Action.MODELS: "/models          list what is served",
    Action.SAVE: "/save FILE       write the conversation as JSON",
    Action.QUIT: "/quit            leave (also Ctrl+D); Ctrl+C stops an answer",
}


@dataclass(frozen=True)
class Command:
    """A line that is for the program, not for the model."""

    action: Action
    argument: str = ""


def read_line(line: str) -> Command | str | None:
    """A command, a message, or None for an empty line. A message may begin with a slash when it is doubled.

    Raises:
        ClientError: for a command that does not exist.
    """
    text = line.strip()
    if not text:
        return None
    if text.startswith("//"):
        return text[1:]
    if not text.startswith("/"):
        return text
    word, _, argument = text[1:].partition(" ")
    try:
        return Command(Action(word.lower()), argument.strip())
    except ValueError:
        known = " ".join(f"/{action}" for action in Action)
        raise ClientError(f"there is no /{word}; there are {known} (a message can begin with //)") from None


@dataclass
class Conversation:
    """What was said so far, and the system text before it."""

    model: str
    system: str | None = None
    turns: list[dict[str, str]] = field(default_factory=list)

    def messages(self, question: str) -> list[dict[str, str]]:
        """Everything that the next request carries."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        return [*first, *self.turns, {"role": "user", "content": question}]

    def add(self, question: str, answer: str) -> None:
        """Keep one finished exchange. A failed one is not kept: two user messages in a row confuse chat templates."""
        self.turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]

    def reset(self) -> None:
        """Forget every exchange; the system text stays."""
        self.turns.clear()

    def save(self, path: Path) -> None:
        """Write a new file that only its owner may read.

        Raises:
            ClientError: when the file is there already or cannot be written.
        """
        system = [{"role": "system", "content": self.system}] if self.system else []
        text = json.dumps({"model": self.model, "messages": [*system, *self.turns]}, indent=2, ensure_ascii=False)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text + "\n")
        except FileExistsError:
            raise ClientError(f"{path} is there already; choose another name") from None
        except OSError as error:
            raise ClientError(f"{path}: cannot write it ({error.strerror})") from None


def printable(text: str) -> str:
    """A model's text without what would steer the terminal (escape sequences and other control characters)."""
    return "".join(letter for letter in text if letter in "\n\t" or unicodedata.category(letter) != "Cc")
