"""`huddle chat`: talk to a model, line by line."""

import contextlib
import importlib
import sys
from pathlib import Path

import typer

from huddle.client import options
from huddle.client.api import Client
from huddle.client.connection import ClientError
from huddle.client.conversation import HELP, Action, Command, Conversation, printable, read_line
from huddle.errors import ExitCode

app = typer.Typer(add_completion=False)
INTERRUPTED = 130  # as after SIGINT


@app.command()
def chat(
    *,
    model: options.Model = None,
    system: options.System = None,
    url: options.Url = None,
    connection: options.ConnectionFile = None,
    stack: options.Stack = None,
    subscription: options.Subscription = None,
) -> None:
    """Talk to a model: answers stream in, and the whole conversation goes along with every question."""
    with Client(url, connection_file=connection, stack=stack, subscription=subscription) as client:
        session = Session(client, Conversation(client.pick_model(model), system))
        if sys.stdin.isatty():
            session.talk()
        else:
            session.read(sys.stdin.read().splitlines())


class Session:
    """One conversation at one endpoint: on a terminal, or with the lines of a pipe."""

    def __init__(self, client: Client, conversation: Conversation) -> None:
        self._client = client
        self._conversation = conversation
        self._colour = sys.stdout.isatty()

    def talk(self) -> None:
        """Until the person leaves. What goes wrong is said, and the conversation goes on."""
        with contextlib.suppress(ImportError):
            importlib.import_module("readline")  # history and editing for input()
        self._note(f"{self._conversation.model} at {self._client.connection.base_url}; /help shows the commands")
        while True:
            try:
                line = input("> ")
            except EOFError:
                self._note("")
                return
            except KeyboardInterrupt:
                self._note("\nCtrl+D or /quit leaves")
                continue
            try:
                if not self._take(line):
                    return
            except ClientError as error:
                self._note(f"huddle: {error}")

    def read(self, lines: list[str]) -> None:
        """The lines of a script; the first thing that goes wrong ends it."""
        for line in lines:
            if not self._take(line):
                return

    def _take(self, line: str) -> bool:
        """Deal with one line; False when it was the last."""
        match read_line(line):
            case None:
                pass
            case Command(Action.QUIT):
                return False
            case Command() as command:
                self._obey(command)
            case question:
                self._answer(question)
        return True

    def _obey(self, command: Command) -> None:
        conversation, argument = self._conversation, command.argument
        match command.action:
            case Action.HELP:
                self._note("\n".join(HELP.values()))
            case Action.RESET:
                conversation.reset()
                self._note("forgotten")
            case Action.SYSTEM:
                conversation.system = argument or conversation.system
                self._note(conversation.system or "there is no system text of yours; the server may add its own")
            case Action.MODEL:
                if argument:
                    conversation.model = self._client.pick_model(argument)
                self._note(conversation.model)
            case Action.MODELS:
                self._note("\n".join(self._client.models()))
            case Action.SAVE:
                if not argument:
                    raise ClientError("/save needs the name of a file")
                conversation.save(Path(argument).expanduser())
                self._note(f"saved {argument}")

    def _answer(self, question: str) -> None:
        """Stream one answer. Ctrl+C stops it and keeps what was said."""
        chunks: list[str] = []
        stream = self._client.stream(self._conversation.messages(question), model=self._conversation.model)
        stopped = False
        try:
            for chunk in stream:
                chunks.append(chunk)
                sys.stdout.write(printable(chunk) if self._colour else chunk)
                sys.stdout.flush()
        except KeyboardInterrupt:
            stopped = True
        finally:
            if chunks:
                sys.stdout.write("\n")
                sys.stdout.flush()
        if stopped and not sys.stdin.isatty():
            raise typer.Exit(INTERRUPTED)
        if not chunks and not stopped:
            raise ClientError(
                "the model said nothing (it ended at once, or spoke only in tool calls)", exit_code=ExitCode.FAILED
            )
        self._conversation.add(question, "".join(chunks))

    def _note(self, text: str) -> None:
        """Words of the program's own, on stderr, so that a pipe holds only what the model said."""
        sys.stdout.flush()
        typer.secho(text, err=True, dim=True, color=None if sys.stderr.isatty() else False)
