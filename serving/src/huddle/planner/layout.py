"""How a model is spread over GPUs, and what arithmetic forbids."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from huddle import gpus
from huddle.gpus import Fabric, Gpu
from huddle.shapes import Shape


@dataclass(frozen=True)
class Layout:
    """`replicas` copies of the model, each over `tensor` x `pipeline` GPUs."""

    tensor: int
    pipeline: int
    replicas: int

    @property
    def world(self) -> int:
        """GPUs of one replica: tensor times pipeline parallel size."""
        return self.tensor * self.pipeline

    def __str__(self) -> str:
        if self.world == 1:
            return f"{self.replicas} replica{'s' if self.replicas > 1 else ''} of one GPU each"
        parts = f"TP {self.tensor} × PP {self.pipeline}"
        return parts if self.replicas == 1 else f"{self.replicas} replicas of {parts}"


@dataclass(frozen=True)
class Hardware:
    """What there is: GPUs of one type, so many in a node, and the network between nodes."""

    gpu: Gpu
    gpus_per_node: int
    nodes: int
    network: Fabric

    @property
    def total(self) -> int:
        """GPUs of all nodes together."""
        return self.gpus_per_node * self.nodes

    def tensor_fabric(self, tensor: int) -> Fabric:
        """What a tensor-parallel group of this size talks over: the slowest link that it must cross."""
        if tensor > self.gpus_per_node:
            return self.network
        return gpus.fabric("nvlink" if tensor <= self.gpu.nvlink_group else "pcie")

    def __str__(self) -> str:
        where = "one node" if self.nodes == 1 else f"{self.nodes} nodes over {self.network.title}"
        each = f"{self.gpus_per_node} × {self.gpu.name}"
        return f"{each} in {where}" if self.nodes == 1 else f"{each} in each of {where}"


def refusals(shape: Shape, layout: Layout, hardware: Hardware, *, allow_slow_fabric: bool) -> Iterator[str]:
    """Every reason why the layout cannot run here, one sentence each. Sizes in bytes are not looked at."""
    tensor, pipeline, total = layout.tensor, layout.pipeline, hardware.total
    if layout.world > total:
        yield (
            f"TP {tensor} × PP {pipeline} needs {layout.world} GPUs and there {_are(total)}; "
            f"TP × PP must equal the GPUs of one replica"
        )
    elif total % layout.world:
        yield (
            f"TP {tensor} × PP {pipeline} uses {layout.world} GPUs, and {total} GPUs are not a multiple of that; "
            f"{total % layout.world} would stay idle"
        )
    if shape.heads % tensor:
        yield f"TP {tensor} does not divide the {shape.heads} attention heads; {_divisors(shape.heads, 64)} do"
    elif shape.kv_heads % tensor and tensor % shape.kv_heads:
        yield f"TP {tensor} neither divides the {shape.kv_heads} KV heads nor is a multiple of them"
    if (shape.expert_intermediate or shape.intermediate) % tensor:
        yield f"TP {tensor} does not divide the MLP's width of {shape.expert_intermediate or shape.intermediate:,}"
    if pipeline > shape.layers:
        yield f"PP {pipeline} is more than the model's {shape.layers} layers"
    if 1 < hardware.gpus_per_node < tensor and tensor % hardware.gpus_per_node:
        yield f"TP {tensor} does not fill nodes of {hardware.gpus_per_node} GPUs evenly"
    if tensor <= hardware.gpus_per_node < layout.world and hardware.gpus_per_node % tensor:
        yield f"TP {tensor} leaves GPUs of a node of {hardware.gpus_per_node} without a whole pipeline stage"
    if hardware.gpus_per_node < tensor <= total and not hardware.network.rdma and not allow_slow_fabric:
        yield (
            f"TP {tensor} would cross nodes of {_gpus(hardware.gpus_per_node)} over {hardware.network.title}, which "
            f"costs more than it brings; use replicas, or PP across nodes, or insist with --allow-slow-fabric"
        )


def candidates(shape: Shape, hardware: Hardware) -> Iterator[Layout]:
    """Layouts worth trying, the fewest GPUs per replica first; within one size, tensor parallel before pipeline.

    Fewest first, because replicas give the most throughput wherever the model fits (two replicas of 8B 10,871 tok/s,
    TP 2 over NVLink 7,095: docs/facts/gpus.md#layouts).
    """
    for world in divisors(hardware.total):
        for pipeline in divisors(world):
            layout = Layout(world // pipeline, pipeline, hardware.total // world)
            if not any(refusals(shape, layout, hardware, allow_slow_fabric=False)):
                yield layout


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, rising; quick for the GPUs of any machine room."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _gpus(count: int) -> str:
    return "one GPU" if count == 1 else f"{count} GPUs"


def _are(count: int) -> str:
    return "is one" if count == 1 else f"are {count}"


def _divisors(number: int, most: int) -> str:
    return ", ".join(str(d) for d in divisors(number) if d <= most)
