"""`check`: will it fit, how should it run, and why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from huddle import gpus, shapes
from huddle.planner import advice
from huddle.planner.case import Ask, Case
from huddle.planner.compare import Option, options
from huddle.planner.layout import Hardware, Layout, candidates, refusals
from huddle.registry import Model


@dataclass(frozen=True)
class FitResult(Case):
    """The planner's answer. `refusals` are sentences; the plan fits when there are none."""

    refusals: tuple[str, ...]
    notes: tuple[str, ...]
    options: tuple[Option, ...]

    @property
    def fits(self) -> bool:
        """Whether it can run as asked."""
        return not self.refusals

    @property
    def summary(self) -> str:
        """Whether it fits, on what and in which layout: one line."""
        if not self.fits:
            return f"{self.model.name} does not run on {self.hardware} as {self.layout}"
        return f"{self.model.name} fits {self.hardware}: {self.layout}"


def check(
    model: Model,
    *,
    gpu: str,
    gpus_per_node: int = 1,
    nodes: int = 1,
    tp: int | None = None,
    pp: int | None = None,
    fabric: str = "tcp-40g",
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    gpu_memory_utilization: float | None = None,
    allow_slow_fabric: bool = False,
    stores: Sequence[Path] = (),
) -> FitResult:
    """Plan a model on hardware. Without `tp` and `pp` the planner chooses. Pure, apart from reading data files.

    Raises:
        UnknownHardwareError: for a GPU or fabric that the tables lack.
        ShapeError: when the model's shape is not known.
    """
    shape = shapes.for_model(model, stores)
    hardware = Hardware(gpus.gpu(gpu), gpus_per_node, nodes, gpus.fabric(fabric))
    ask = Ask(
        max_model_len=max_model_len or model.max_model_len or shape.context,
        max_num_seqs=max_num_seqs or model.max_num_seqs,
        utilization=gpu_memory_utilization or model.gpu_memory_utilization,
        allow_slow_fabric=allow_slow_fabric,
    )
    case = _choose(Case(model, shape, hardware, Layout(tp or 1, pp or 1, 1), ask), tp, pp)
    no = [
        *refusals(shape, case.layout, hardware, allow_slow_fabric=allow_slow_fabric),
        *advice.memory_refusals(case),
    ]
    if no:
        no[-1] = "; ".join((no[-1], *advice.what_would_fit(case)))
    compared = options(case) if hardware.total > 1 else ()
    return FitResult(
        model,
        shape,
        hardware,
        case.layout,
        ask,
        refusals=tuple(no),
        notes=tuple(advice.notes(case, compared)),
        options=compared,
    )


def _choose(case: Case, tp: int | None, pp: int | None) -> Case:
    """The asked layout; or the one with most replicas that fits; or, when none fits, the widest."""
    wanted = [
        replace(case, layout=layout)
        for layout in candidates(case.shape, case.hardware)
        if tp in {None, layout.tensor} and pp in {None, layout.pipeline}
    ]
    if wanted and (tp is None or pp is None):
        return next((c for c in wanted if c.holds), None) or max(wanted, key=lambda c: c.layout.world)
    replicas = max(1, case.hardware.total // case.layout.world)
    return replace(case, layout=replace(case.layout, replicas=replicas))
