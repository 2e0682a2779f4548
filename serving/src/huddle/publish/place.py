"""Which store a command works on: a named directory, or the one that this node's bundle describes."""

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huddle.errors import InputError
from huddle.publish import disk
from huddle.publish.paths import StorePaths
from huddle.publish.session import DirectoryStore, NotTheLoaderError, SharedDisk, Store

CURRENT = Path("/opt/huddle/current")


@dataclass(frozen=True)
class NodeStore:
    """What `nodes/<host>/node.json` says of the store; `writer`: the name of the one node that may publish."""

    kind: str
    device: str | None
    mount: str
    writer: str


def node_store() -> NodeStore:
    """The store of this node.

    Raises:
        HuddleError: this is no node.
    """
    path = CURRENT / "nodes" / socket.gethostname() / "node.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["store"]
        return NodeStore(facts["kind"], facts.get("device"), facts["mount"], facts["writer"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"this machine is no node ({path} does not say where the store is); give --store") from error


def for_reading(directory: Path | None) -> StorePaths:
    """The store to look at."""
    return StorePaths(directory if directory is not None else Path(node_store().mount))


def for_writing(directory: Path | None, format_device: Path | None) -> Store:
    """The store to write to.

    Raises:
        NotTheLoaderError: another node is the one that writes.
        HuddleError: the options contradict each other, or this is no node.
    """
    if directory is not None:
        if format_device is not None:
            raise InputError("--format is for the model disk of a node; a directory named by --store is used as it is")
        return DirectoryStore(StorePaths(directory))
    facts, here = node_store(), socket.gethostname()
    if facts.writer != here:
        raise NotTheLoaderError(
            f"{here} only reads the store; publish on {facts.writer}, the one node that writes to it"
        )
    paths = StorePaths(Path(facts.mount))
    if facts.device is None:
        return Share(paths)
    return SharedDisk(paths, Path(facts.device), format_device)


@dataclass(frozen=True)
class Share(DirectoryStore):
    """A network share, which every node mounts read-only."""

    @contextlib.contextmanager
    def writable(self) -> Iterator[None]:
        """Writable inside: the share is mounted again, writable; read-only again afterwards."""
        root = str(self.paths.root)
        with super().writable():  # first: a second publication that is refused must leave the first one's mount alone
            disk.run("mount", "--options", "remount,rw", root)
            try:
                yield
            finally:
                disk.run("mount", "--options", "remount,ro", root)
