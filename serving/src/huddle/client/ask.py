"""`huddle ask`: one question, one answer on stdout."""

import json
import sys
from typing import Annotated, Any

import typer

from huddle.client import options
from huddle.client.api import Client
from huddle.client.connection import ClientError
from huddle.client.conversation import printable

app = typer.Typer(add_completion=False)


@app.command()
def ask(
    *,
    text: Annotated[
        list[str] | None,
        typer.Argument(help="The question; '-' stands for stdin; without text, stdin is read."),
    ] = None,
    model: options.Model = None,
    system: options.System = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer, in tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2, help="Randomness of the answer; 0: none.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print answer, model and token counts as JSON.")] = False,
    url: options.Url = None,
    connection: options.ConnectionFile = None,
    stack: options.Stack = None,
    subscription: options.Subscription = None,
) -> None:
    """Ask one question; the answer streams to stdout. `git diff | huddle ask 'Review this:' -`."""
    question = _question(text or ["-"])
    settings: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    settings = {name: value for name, value in settings.items() if value is not None}
    with Client(url, connection_file=connection, stack=stack, subscription=subscription) as client:
        name = client.pick_model(model)
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": question})
        if as_json:
            typer.echo(json.dumps(_whole(client, name, messages, settings), ensure_ascii=False, indent=2))
            return
        on_terminal = sys.stdout.isatty()
        for chunk in client.stream(messages, model=name, **settings):
            sys.stdout.write(printable(chunk) if on_terminal else chunk)
            sys.stdout.flush()
        sys.stdout.write("\n")


def _question(words: list[str]) -> str:
    """The words in order, with stdin where `-` stands; two parts are an empty line apart."""
    parts: list[str] = []
    if "-" in words and sys.stdin.isatty():
        typer.echo("huddle ask: reading the question; end it with Ctrl+D", err=True)
    for word in words:
        if word == "-":
            parts += ["\n\n", sys.stdin.read().strip(), "\n\n"]
        else:
            parts += [word, " "]
    question = "".join(parts).strip()
    if not question:
        raise ClientError("there is no question; give it as an argument or on stdin")
    return question


def _whole(client: Client, model: str, messages: list[dict[str, str]], settings: dict[str, Any]) -> dict[str, Any]:
    with client.explained():
        sent: Any = messages
        answer = client.openai.chat.completions.create(model=model, messages=sent, **settings)
    first = answer.choices[0] if answer.choices else None
    return {
        "answer": first.message.content if first else None,
        "finish_reason": first.finish_reason if first else None,
        "model": answer.model or model,
        "usage": answer.usage.model_dump(exclude_none=True) if answer.usage else None,
    }
