"""Until when a request may wait for the engine: one time for all that it waits for on its way there."""

import asyncio
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Deadline:
    """`at` by the event loop's clock, `seconds` after the request was whole."""

    seconds: float
    at: float

    @classmethod
    def after(cls, seconds: float, spent_s: float = 0.0) -> Self:
        """`seconds` from now, without what is spent already."""
        return cls(seconds, asyncio.get_running_loop().time() + seconds - spent_s)

    def bound(self) -> asyncio.Timeout:
        """Ends a wait with `TimeoutError`. What need not be waited for is had also after the deadline."""
        return asyncio.timeout_at(self.at)

    def missed(self, stage: str) -> str:
        """The sentence for whoever was at `stage`."""
        return f"this request could not go to the engine within {self.seconds:g} s: it waited for {stage}"
