"""Which engine gets a request: the one with the fewest requests of ours under way; equal ones take turns."""

from collections.abc import Sequence


def choose(loads: Sequence[int | None], last: int) -> int | None:
    """The place of the least load; of several the first one after `last`, round the circle.

    A load is a number of requests under way, None that of an engine that shall get none. None: no engine shall.
    """
    circle = (place % len(loads) for place in range(last + 1, last + 1 + len(loads)))
    open_to_it = [(load, place) for place in circle if (load := loads[place]) is not None]
    return min(open_to_it, key=lambda one: one[0])[1] if open_to_it else None
