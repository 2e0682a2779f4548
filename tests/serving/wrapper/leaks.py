"""Whether what a client gets holds a piece of a secret."""

import httpx


def leaked(secrets: list[str], answer: bytes, length: int = 16) -> list[str]:
    """The pieces of secrets that an answer holds, as it is or inside of JSON strings."""
    shown = answer.decode("utf-8", "replace")
    forms = {shown, shown.replace("\\\\", "\\"), shown.encode().decode("unicode_escape", "replace")}
    pieces = {s[i : i + length] for s in secrets for i in range(max(len(s) - length + 1, 1))}
    return [piece for piece in pieces if any(piece in form for form in forms)]


def bytes_of(answer: httpx.Response) -> bytes:
    return b"".join(name + b": " + value + b"\n" for name, value in answer.headers.raw) + answer.content
