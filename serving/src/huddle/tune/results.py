"""What a sweep has measured, on disk after every engine, so that the next run goes on where this one ended."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from huddle import whole_file
from huddle.errors import InputError
from huddle.registry import Flags
from huddle.tune.workload import Reading

_MOST_BYTES = 10_000_000


class Run(BaseModel):
    """One start of an engine: `flags` is None for plain `vllm serve`; readings by load, in words."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    flags: Flags | None
    seconds: float
    readings: Mapping[str, Reading]


class Results(BaseModel):
    """All runs under the same conditions: GPU, engine and everything that the untold command says."""

    model_config = ConfigDict(extra="forbid")

    conditions: dict[str, str | int]
    runs: list[Run] = []

    def of(self, load: str) -> dict[Flags | None, Reading]:
        """What is known of one load; the newest reading of each engine."""
        return {run.flags: run.readings[load] for run in self.runs if load in run.readings}

    def write(self, path: Path) -> None:
        """Keep them.

        Raises:
            OSError: as for any file.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        whole_file.write(path, self.model_dump_json(indent=1).encode() + b"\n")


def read(path: Path, conditions: dict[str, str | int], *, afresh: bool) -> Results:
    """What an earlier run has left, or nothing yet.

    Raises:
        InputError: it is no file of results, or was measured under other conditions.
    """
    fresh = Results(conditions=conditions)
    if afresh or not path.exists():
        return fresh
    try:
        found = Results.model_validate_json(whole_file.read(path, _MOST_BYTES))
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else "not what `huddle tune` writes"
        raise InputError(f"{path}: no results to go on from ({why}); --afresh begins anew") from None
    if found.conditions != conditions:
        names = {*found.conditions, *conditions}
        name = min(name for name in names if found.conditions.get(name) != conditions.get(name))
        raise InputError(
            f"{path}: measured with {name} {found.conditions.get(name)!r}, and here it is {conditions.get(name)!r}; "
            "name another file with --results, or begin anew with --afresh"
        )
    return found
