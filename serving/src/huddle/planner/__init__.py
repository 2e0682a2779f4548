"""Will it fit, and how should it run: pure arithmetic over a model's shape and a GPU's facts.

verdict = check(registry.load().models["llama-3.1-8b"], gpu="h100-nvl", gpus_per_node=1, nodes=2)
verdict.fits, verdict.layout, verdict.refusals, verdict.explain()
"""

from huddle.planner.layout import Hardware, Layout
from huddle.planner.memory import Memory
from huddle.planner.verdict import Verdict, check

__all__ = ["Hardware", "Layout", "Memory", "Verdict", "check"]
