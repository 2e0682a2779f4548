"""How applying a bundle fails: in a named state, with one sentence and, where there is one, the end of a log."""

from __future__ import annotations


class ApplyError(Exception):
    """One sentence: what is wrong and what to do. `log` is the tail that explains it."""

    def __init__(self, sentence: str, log: str = "") -> None:
        super().__init__(sentence)
        self.log = log
