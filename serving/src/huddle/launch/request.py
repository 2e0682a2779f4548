"""What is to be launched, on which node, with what: every decision taken, nothing looked up."""

from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify

from huddle.registry import KvCacheType, Served

COPIES = 8
"""Engines of one node at most: as many GPUs as the largest nodes have."""
_PORTS_OF_A_COPY = 10
RENDEZVOUS_PORTS = (29_500, 29_500 + COPIES * _PORTS_OF_A_COPY - 1)
"""Where torch's store listens, on every address whatever it is told: the first that is free of its copy's ten.

Engines that start at once and look from one port collide. Source: docs/facts/vllm-and-ray.md#torchs-store
"""


def rendezvous_ports(copy: int) -> tuple[int, int]:
    """The first and the last port for the store of one copy."""
    first = RENDEZVOUS_PORTS[0] + copy * _PORTS_OF_A_COPY
    return first, first + _PORTS_OF_A_COPY - 1


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
    copy: int = 0  # of the engines on this node, counted from 0
    visible_gpus: tuple[str, ...] = ()  # as CUDA_VISIBLE_DEVICES names them; all when empty
    device: Device = Device.CUDA
    executor: Executor = Executor.MP
    host: str = "127.0.0.1"
    port: int = 5005
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_dtype: KvCacheType | None = None
    prefix_caching: bool | None = None
    utilization: float = 0.9
    front_ends: int = 1
    shutdown_timeout_s: int = 120
    ready_timeout_s: int = 600  # vLLM's default
    program: str = "vllm"
    compile_cache: str | None = None  # instead of a directory for just this engine
    chat_template: str | None = None  # its file; the tokenizer's own when there is none
    media_hosts: tuple[str, ...] = ()  # from which the engine may fetch media
    ray_token_file: str | None = None  # of a Ray cluster that asks for a token

    @property
    def slot(self) -> str:
        """The place of this engine on the node; two engines cannot share one."""
        return f"{self.workspace}:{self.port}"

    @property
    def record(self) -> str:
        """The file below the workspace with the young deaths of this copy; no model's name has an @."""
        return f"scratch/launch-{self.served.model.name}{f'@{self.copy}' if self.copy else ''}.json"

    @property
    def rendezvous_port(self) -> int:
        """Where torch's store begins to look for a port."""
        return rendezvous_ports(self.copy)[0]

    @property
    def world(self) -> int:
        """GPUs of the engine over all its nodes."""
        return self.tensor * self.pipeline
