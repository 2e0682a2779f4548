"""Will it fit, and how should it run: pure arithmetic over a model's shape and a GPU's facts.

fit = check(registry.load().models["llama-3.1-8b"], gpu="h100-nvl", gpus_per_node=1, nodes=2)
fit.fits, fit.layout, fit.refusals, explain.text(fit)
"""

from huddle.planner.fit import FitResult, check
from huddle.planner.layout import Hardware, Layout
from huddle.planner.memory import Memory

__all__ = ["FitResult", "Hardware", "Layout", "Memory", "check"]
