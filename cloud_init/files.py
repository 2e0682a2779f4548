"""Files for a node, as values: where they go, with which mode, and what they say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeFile:
    """One file on a node. `path` is absolute; `mode` is octal digits."""

    path: str
    content: bytes
    mode: int = 0o644

    @property
    def text(self) -> str:
        """The content of a text file."""
        return self.content.decode()

    @property
    def octal(self) -> str:
        """The mode as cloud-init and humans write it: `0755`."""
        return f"{self.mode:04o}"


def text_file(path: str, text: str, mode: int = 0o644) -> NodeFile:
    """A file of UTF-8 text, read by everyone unless `mode` says otherwise."""
    return NodeFile(path, text.encode(), mode)
