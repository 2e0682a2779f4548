"""From a request to the exact words and variables of `vllm serve`. Pure: the same request gives the same command."""

import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from huddle import loopback
from huddle.launch import drain
from huddle.launch.request import Device, Executor, LaunchRequest
from huddle.registry.reserved import DANGEROUS_ENV

# Ray's driver hands its VLLM_, NCCL_, HF_ variables to the workers by itself; these have other prefixes.
# Source: docs/facts/vllm-and-ray.md#copied-variables.
_RAY_COPIES = ("VLLM_", "NCCL_", "HF_", "RAY_")
_CPU_KV_CACHE_GIB = "1"
_SOCKETS = "VLLM_RPC_BASE_PATH"  # else the directory for temporary files
_SOCKET_ROOM = 107 - len("/") - 36
"""Bytes of that directory: a Unix socket's path takes 107 (unix(7)), and vLLM's end in a slash and a UUID."""
# vLLM 0.26.0 takes no domains for any domain (multimodal/media/connector.py). This name exists nowhere (RFC 6761).
_NO_HOST = "nothing.invalid"


@dataclass(frozen=True)
class Command:
    """What to start: words, variables to set, variables to take away."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    unset: tuple[str, ...] = tuple(sorted(DANGEROUS_ENV))

    def shell(self) -> str:
        """The command as a person can paste it into a shell."""
        lines = ["env"]
        lines += [f"-u {name}" for name in self.unset]
        lines += [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return " \\\n  ".join([*lines, *_wrapped(self.argv)]) + "\n"

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the process. Its parts talk over loopback, past any proxy, and over short paths."""
        kept = {name: value for name, value in inherited.items() if name not in self.unset}
        temporary = next(filter(None, map(kept.get, (_SOCKETS, "TMPDIR", "TEMP", "TMP"))), "/tmp")  # noqa: S108
        short = {} if len(os.fsencode(temporary)) <= _SOCKET_ROOM else {_SOCKETS: "/tmp"}  # noqa: S108
        return loopback.environment(kept) | short | dict(self.env)


def build(request: LaunchRequest) -> Command:
    """Make the command of one node."""
    engine = _engine_words(request)
    argv = (request.program, "serve", request.model_path, *_server_words(request), *engine, *_node_words(request))
    return Command(argv, _environment(request, cache_directory(request)))


def cache_directory(request: LaunchRequest) -> PurePosixPath:
    """Where compiled kernels and graphs are kept: never shared by what would compile differently.

    Keyed by model, vLLM version, GPU and the engine's flags; the port or the served names change nothing. (Engines that
    run one after the other may be told to share one: vLLM's own keys are finer.)
    """
    if request.compile_cache:
        return PurePosixPath(request.compile_cache)
    model = request.served.model
    key = {  # beside the model's name, the version and the GPU, which are in the path
        "model": model.model,
        "revision": model.revision,
        "words": [word for word in _engine_words(request) if word != request.model_path],
        "env": dict(sorted(model.env.items())),
    }
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    name = f"vllm-{request.vllm_version}-{request.gpu}-{digest}"
    return PurePosixPath(request.workspace) / "vllm_cache" / model.name / name


def _server_words(request: LaunchRequest) -> list[str]:
    """The HTTP server's side; a headless follower has none."""
    if not request.node.leads:
        return []
    words = ["--served-model-name", *request.served_names, "--host", request.host, "--port", str(request.port)]
    timeout_s = request.shutdown_timeout_s
    words += ["--shutdown-timeout", str(min(timeout_s, drain.STOP_S) if drain.by_launcher(request) else timeout_s)]
    # Else the first structured request chooses for all, and an odd one chooses what cannot serve the ordinary ones.
    words += ["--structured-outputs-config", '{"backend":"xgrammar"}']
    words += ["--allowed-media-domains", *(request.media_hosts or (_NO_HOST,))]
    if request.front_ends > 1:
        words += ["--api-server-count", str(request.front_ends)]
    if request.chat_template:
        words += ["--chat-template", request.chat_template]
    return words


def _engine_words(request: LaunchRequest) -> list[str]:
    """The engine's side: the same on every node, and what decides the compiled code."""
    model = request.served.model
    words = ["--dtype", model.dtype.value]
    if model.quantization:
        words += ["--quantization", model.quantization.value]
    if model.revision and not request.local:
        words += ["--revision", model.revision]
    if model.trust_remote_code:
        words += ["--trust-remote-code"]
    words += ["--tensor-parallel-size", str(request.tensor), "--pipeline-parallel-size", str(request.pipeline)]
    if request.device is Device.CUDA:
        words += ["--gpu-memory-utilization", f"{request.utilization:g}"]
    if request.max_model_len:
        words += ["--max-model-len", str(request.max_model_len)]
    if request.max_num_seqs:
        words += ["--max-num-seqs", str(request.max_num_seqs)]
    if request.max_num_batched_tokens:
        words += ["--max-num-batched-tokens", str(request.max_num_batched_tokens)]
    if request.kv_cache_dtype:
        words += ["--kv-cache-dtype", request.kv_cache_dtype.value]
    if request.prefix_caching is not None:
        words += [f"--{'' if request.prefix_caching else 'no-'}enable-prefix-caching"]
    if request.world > 1:
        words += ["--distributed-executor-backend", request.executor.value]
    return [*words, *model.extra_args]


def _node_words(request: LaunchRequest) -> list[str]:
    """This node's place when vLLM itself spans several nodes."""
    node = request.node
    if node.count == 1 or request.executor is Executor.RAY:
        return []
    words = ["--nnodes", str(node.count), "--node-rank", str(node.rank)]
    words += ["--master-addr", node.head, "--master-port", str(node.head_port)]
    return words if node.leads else [*words, "--headless"]


def node_environment(ip: str, interface: str, *, rdma: bool) -> dict[str, str]:
    """What ties every collective of this node to the interface that owns its address; a Ray unit needs the same."""
    env = {
        "VLLM_HOST_IP": ip,
        "NCCL_SOCKET_IFNAME": interface,
        "GLOO_SOCKET_IFNAME": interface,
        "TP_SOCKET_IFNAME": interface,
    }
    if not rdma:
        env["NCCL_IB_DISABLE"] = "1"  # an RDMA-less network card may still look like InfiniBand to NCCL
    return env


def _environment(request: LaunchRequest, cache: PurePosixPath) -> dict[str, str]:
    env = node_environment(request.node.ip, request.node.interface, rdma=request.node.rdma)
    env |= {
        "VLLM_CACHE_ROOT": str(cache / _compiled(request.copy)),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "CUDA_CACHE_PATH": str(cache / "cuda"),
        "FLASHINFER_WORKSPACE_BASE": str(cache / "flashinfer"),
        "HF_HOME": str(PurePosixPath(request.workspace) / "inference_cache" / "huggingface"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",  # else a listed place could send the engine anywhere
        "DO_NOT_TRACK": "1",
    }
    if request.local:
        env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if request.ready_timeout_s > 600:
        env["VLLM_ENGINE_READY_TIMEOUT_S"] = str(request.ready_timeout_s)
    if request.device is Device.CPU:
        env["VLLM_CPU_KVCACHE_SPACE"] = _CPU_KV_CACHE_GIB
    env |= request.served.model.env
    if request.node.count == 1:
        env["VLLM_PORT"] = str(request.rendezvous_port)  # else torch's store takes any port
    if request.visible_gpus:
        # Numbered as nvidia-smi does it, which was asked about their memory.
        env |= {"CUDA_VISIBLE_DEVICES": ",".join(request.visible_gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if request.executor is Executor.RAY:
        env["RAY_ADDRESS"] = f"{request.node.head}:{request.node.ray_port}"
        if request.ray_token_file:
            env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": request.ray_token_file}
        copied = sorted(name for name in env if not name.startswith(_RAY_COPIES))
        env["VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"] = ",".join(copied)
    return dict(sorted(env.items()))


def _compiled(copy: int) -> str:
    """vLLM's part of the cache, one for each copy: it writes in place, and another would read the half of a file.

    Triton, FlashInfer and CUDA share theirs (docs/facts/vllm-and-ray.md#compile-caches).
    """
    return f"vllm-{copy}" if copy else "vllm"


def _wrapped(argv: tuple[str, ...]) -> list[str]:
    """The words in lines: the program and its model, then each option with its values."""
    lines: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("-"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return [" ".join(line) for line in lines]
