"""The options that every client command has, and the client that they name. No option takes a key: others see those."""

from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[str | None, typer.Option("--url", help="Base URL, such as http://127.0.0.1:8000/v1.")]
ConnectionFile = Annotated[
    Path | None,
    typer.Option("--connection", help="Connection file (YAML or JSON, mode 600): base_url, api_key."),
]
Stack = Annotated[str | None, typer.Option("--stack", help="Pulumi stack whose outputs name endpoint and key.")]
Subscription = Annotated[
    str | None, typer.Option("--subscription", help="With --stack: whose key to use, as product/name.")
]
Model = Annotated[str | None, typer.Option("--model", "-m", help="A served name; default: the endpoint's first.")]
System = Annotated[str | None, typer.Option("--system", "-s", help="System text of the conversation.")]
