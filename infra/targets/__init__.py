"""What program and commands need of a target: a module `infra.targets.<name>` for each line of `plan.targets`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from infra.operations.failures import Failure
    from infra.reports.cost import Estimate


class TargetModule(Protocol):
    """The functions of a target's module. Plans and settings are of the target's own classes."""

    def read_files(self, settings: Any, root: Path, file: str) -> Any:
        """What the settings name in files of the project; raises InputError."""

    def complete(self, plan: Any, read: Any) -> Any:
        """The plan with what `read_files` read."""

    def check(self, plan: Any) -> None:
        """Make all that `deploy` makes by itself, so that what `up` would refuse is refused now; raises InputError."""

    def deploy(self, plan: Any) -> None:
        """Register every resource and export the stack's outputs; raises what `check` raises, before the first one."""

    def headline(self, plan: Any) -> str:
        """What the stack is, in a few words: `2 x Standard_NC40ads_H100_v5 in eastus2`."""

    def summary(self, plan: Any) -> list[tuple[str, str]]:
        """What a person asks first, as (topic, answer)."""

    def warnings(self, settings: Any) -> list[str]:
        """What settings may say, and probably do not mean, a sentence each."""

    def estimate(self, plan: Any) -> Estimate:
        """The cost of a month, in US dollars at list prices."""

    def picture(self, plan: Any) -> str:
        """The stack as SVG text."""

    def explain(self, text: str, plan: Any) -> Failure | None:
        """What an engine's errors mean, where that is known."""

    def obstacle(self, environ: Mapping[str, str]) -> str | None:
        """What is missing before `up` can start, as a sentence with the next step."""

    def refused_before(self, action: str, plan: Any) -> int:
        """Exit status of a check that asks what stands already; not 0, with the reason said, when `up` or `destroy`
        must not run.
        """


def of(target: str) -> TargetModule:
    """The module of a target; importing it does not import a cloud's SDK."""
    return cast(TargetModule, import_module(f"infra.targets.{target}"))
