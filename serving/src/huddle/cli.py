"""`huddle`: the node's and the client's command line."""

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Serve and use models on this node or from anywhere.")


def main() -> None:
    """Run the command line."""
    app()
