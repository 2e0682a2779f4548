"""A model on given hardware in a given layout, and everything that arithmetic says about it."""

from dataclasses import dataclass
from functools import cached_property

from huddle.gpus import Fabric
from huddle.planner import memory, speed
from huddle.planner.layout import Hardware, Layout
from huddle.planner.memory import Memory
from huddle.planner.speed import Replica
from huddle.registry import Model
from huddle.shapes import Shape, Weights


@dataclass(frozen=True)
class Ask:
    """What the model is to be run with."""

    max_model_len: int
    max_num_seqs: int | None
    utilization: float
    allow_slow_fabric: bool = False


@dataclass(frozen=True)
class Case:
    """One model, one shape, one layout on hardware."""

    model: Model
    shape: Shape
    hardware: Hardware
    layout: Layout
    ask: Ask

    @property
    def fabric(self) -> Fabric:
        """What the tensor-parallel group talks over."""
        return self.hardware.tensor_fabric(self.layout.tensor)

    @cached_property
    def memory(self) -> Memory:
        """The account of the fullest GPU."""
        return memory.account(self.shape, self.layout, self.hardware.gpu, self.fabric, self.ask.utilization)

    @property
    def replica(self) -> Replica:
        """One replica, for its speed."""
        return Replica(self.shape, self.layout, self.hardware.gpu, self.fabric)

    @property
    def holds(self) -> bool:
        """Whether weights and one sequence of full length have room, and the server stays within the card."""
        return self.memory.sequences(self.ask.max_model_len) >= 1 and not self.memory.overrun_gib

    @property
    def front_ends(self) -> int:
        """`--api-server-count` that keeps HTTP from being the limit."""
        return speed.front_ends(self.replica, self.ask.max_num_seqs)

    @property
    def precision(self) -> str:
        """How the weights are stored, in the field's words."""
        if self.shape.weights is not Weights.FULL:
            return self.shape.weights.value
        if self.shape.weight_bytes == 4:
            return "fp32"
        return "fp16" if self.model.dtype in {"float16", "half"} else "bf16"
