"""What is to be launched, on which node, with what: every decision taken, nothing looked up."""

from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify

from huddle.registry import Served

RENDEZVOUS_PORTS = (29_500, 29_509)
"""Where torch's store listens, on every address whatever it is told: the first that is free.

Source: docs/facts/vllm-and-ray.md#torchs-store
"""


@verify(UNIQUE)
class Executor(StrEnum):
    """How vLLM spreads its workers: its own processes (over nodes, too), or a Ray cluster that is already there."""

    MP = "mp"
    RAY = "ray"


@verify(UNIQUE)
class Device(StrEnum):
    """What the engine computes on."""

    CUDA = "cuda"
    CPU = "cpu"


@dataclass(frozen=True)
class Node:
    """This node among the nodes of one engine. `interface` is the one that owns `ip`."""

    ip: str = "127.0.0.1"
    interface: str = "lo"
    rank: int = 0
    count: int = 1
    head: str = "127.0.0.1"
    head_port: int = 29501  # vLLM's default --master-port
    ray_port: int = 6379
    rdma: bool = False

    @property
    def leads(self) -> bool:
        """Whether this node has the HTTP server."""
        return self.rank == 0


@dataclass(frozen=True)
class LaunchRequest:
    """One engine process tree on this node."""

    served: Served
    served_names: tuple[str, ...]
    model_path: str  # a directory, or the repository id when downloads are allowed
    local: bool  # model_path is a directory: go offline
    tensor: int
    pipeline: int
    gpu: str  # its name in the GPU table, or "cpu"
    vllm_version: str
    workspace: str
    node: Node = Node()
    device: Device = Device.CUDA
    executor: Executor = Executor.MP
    host: str = "127.0.0.1"
    port: int = 5005
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    utilization: float = 0.9
    front_ends: int = 1
    shutdown_timeout_s: int = 120
    ready_timeout_s: int = 600  # vLLM's default
    program: str = "vllm"
    chat_template: str | None = None  # its file; the tokenizer's own when there is none
    media_hosts: tuple[str, ...] = ()  # from which the engine may fetch media
    ray_token_file: str | None = None  # of a Ray cluster that asks for a token

    @property
    def slot(self) -> str:
        """The place of this engine on the node; two engines cannot share one."""
        return f"{self.workspace}:{self.port}"

    @property
    def world(self) -> int:
        """GPUs of the engine over all its nodes."""
        return self.tensor * self.pipeline
