"""Which of a stack's tags a resource takes, where Azure takes or keeps fewer than all (docs/facts/azure.md#tags)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

_MOST = 15
_KEPT_BY_ZONES = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


def first(tags: Mapping[str, str]) -> Mapping[str, str]:
    """The first 15, and so this program's own: no secret and no gateway takes more."""
    return dict(islice(tags.items(), _MOST))


def of_zone(tags: Mapping[str, str]) -> Mapping[str, str]:
    """What a private DNS zone keeps, 15 at most: others vanish, and every preview would bring them back."""
    return first({name: value for name, value in tags.items() if _KEPT_BY_ZONES.fullmatch(name)})
