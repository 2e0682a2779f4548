"""The files of a batch, in OpenAI's batch format: requests in, answers out, one JSON object a line.

A finished request is a whole line of the output. So the output alone says what is left to do, whatever ended the run.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from huddle.client.connection import ClientError

ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
KEYS = frozenset({"custom_id", "method", "url", "body"})
MOST_PROBLEMS = 10


class BatchFileError(ClientError):
    """Lines that cannot be used, a sentence for each (the first ten)."""

    def __init__(self, problems: list[str]) -> None:
        shown = problems[:MOST_PROBLEMS]
        if len(problems) > MOST_PROBLEMS:
            shown.append(f"and {len(problems) - MOST_PROBLEMS:,} more lines like these")
        super().__init__(*shown)


@dataclass(frozen=True)
class BatchRequest:
    """One line of the input."""

    line: int
    custom_id: str
    url: str
    body: dict[str, Any]


def read(path: Path) -> list[BatchRequest]:
    """All requests of a file.

    Raises:
        ClientError: when the file cannot be read, is empty, or has lines that are no requests; with their numbers.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ClientError(f"{path}: cannot read the batch ({error.strerror})") from None
    requests: dict[str, BatchRequest] = {}
    problems: list[str] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            request = _request(number, line)
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
            continue
        first = requests.setdefault(request.custom_id, request)
        if first is not request:
            problems.append(f"{path}:{number}: custom_id {request.custom_id!r} is already on line {first.line}")
    if problems:
        raise BatchFileError(problems)
    if not requests:
        raise ClientError(f"{path}: there is no request in it; every line is one, in OpenAI's batch format")
    return list(requests.values())


def _request(number: int, line: bytes) -> BatchRequest:
    """Judge one line. Raises `ValueError` with what is wrong."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("not JSON; a batch has one JSON object on every line") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    if unknown := sorted(value.keys() - KEYS):
        raise ValueError(f"there is no key {unknown[0]!r}; the keys are {', '.join(sorted(KEYS))}")
    custom_id, url, body = value.get("custom_id"), value.get("url"), value.get("body")
    if not isinstance(custom_id, str) or not custom_id:
        raise ValueError("custom_id must be a text that no other line has")
    if value.get("method", "POST") != "POST":
        raise ValueError("method must be POST")
    if url not in ROUTES:
        raise ValueError(f"url must be one of {', '.join(ROUTES)}")
    if not isinstance(body, dict):
        raise ValueError("body must be a JSON object: the request itself")
    if not isinstance(body.get("model", ""), str):
        raise ValueError("body.model must be a text")
    if body.get("stream"):
        raise ValueError("body.stream must not be true: an answer is one line of the output")
    return BatchRequest(number, custom_id, str(url), body)


class Output:
    """The answers so far, and the only writer of more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def __enter__(self) -> Self:
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise ClientError(f"{self.path}: cannot write it ({error.strerror})") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise ClientError(f"{self.path}: another batch is writing it now") from None
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def finished(self, requests: list[BatchRequest]) -> frozenset[str]:
        """The custom_ids that are answered. Half a line, which a killed run leaves, is cut off.

        Raises:
            ClientError: when the file holds something else than answers to these requests; it is left as it is.
        """
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        known = {request.custom_id for request in requests}
        done = frozenset(self._ids(whole))
        if strangers := done - known:
            example = sorted(strangers)[0]
            raise ClientError(f"{self.path} answers {example!r}, which is not in this batch; choose another --output")
        if len(whole) < len(data):
            os.ftruncate(self._descriptor, len(whole))
        return done

    def _ids(self, whole: bytes) -> Iterator[str]:
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                yield str(json.loads(line)["custom_id"])
            except (ValueError, TypeError, KeyError):
                raise ClientError(f"{self.path}:{number}: not an answer of a batch; choose another --output") from None

    def add(self, answer: dict[str, Any]) -> None:
        """Append one answer with one write: it is there as a whole or not at all."""
        os.write(self._descriptor, json.dumps(answer, ensure_ascii=False).encode() + b"\n")
