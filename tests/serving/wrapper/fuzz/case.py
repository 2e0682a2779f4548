"""One case of the fuzzer: what a client sends on one connection and what the engine answers, as data that can be kept.

Bytes are kept as Latin-1 text, so that a case in the corpus can be read and edited.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

BODY = b"@BODY@"
"""Stands in an engine's answer for the request that it got, as the inside of a JSON text."""


def split(data: bytes, cuts: Iterable[int]) -> tuple[bytes, ...]:
    """The same bytes in several writes; a place beyond the end counts from the beginning again."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return tuple(data[start:end] for start, end in pairwise(places) if start < end)


@dataclass(frozen=True)
class Answer:
    """What the engine writes to whatever it is asked, before it hangs up; `cuts` says where one write ends."""

    head: bytes
    body: bytes = b""
    chunked: bool = False
    cuts: tuple[int, ...] = ()
    resets: bool = False

    def writes(self, asked: bytes) -> list[bytes]:
        """The bytes of each write."""
        body = self.body.replace(BODY, json.dumps(asked.decode("latin-1"))[1:-1].encode())
        pieces = split(body, self.cuts)
        if self.chunked:
            pieces = (*(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n")
        return [self.head.replace(b"@LENGTH@", b"%d" % len(body)), *pieces]


@dataclass(frozen=True)
class Case:
    """`sent`: the client's writes; without `answer` the engine is like vLLM.

    `leaves`: the client does not wait for the end. `turns`: each write waits until the one before is answered.
    """

    sent: tuple[bytes, ...]
    answer: Answer | None = None
    leaves: bool = False
    turns: bool = False

    def dumps(self) -> str:
        """The text of a file of the corpus."""
        return json.dumps(asdict(self), default=lambda value: value.decode("latin-1"), indent=1)

    @classmethod
    def loads(cls, text: str) -> "Case":
        """Read such a file."""
        kept: dict[str, Any] = json.loads(text)
        answer = kept["answer"]
        if answer is not None:
            raw = {name: answer[name].encode("latin-1") for name in ("head", "body")}
            answer = Answer(**{**answer, **raw, "cuts": tuple(answer["cuts"])})
        return cls(tuple(piece.encode("latin-1") for piece in kept["sent"]), answer, kept["leaves"], kept["turns"])
