"""Flags that a sweep found best (`huddle tune`): used where they were measured, and nowhere else. Pure."""

import hashlib
import json
from enum import UNIQUE, StrEnum, verify

from huddle.launch.request import LaunchRequest
from huddle.registry import Load, Model, Tuned


@verify(UNIQUE)
class TunedFor(StrEnum):
    """The loads of the registry, and none."""

    CHAT = Load.CHAT.value
    DOCUMENTS = Load.DOCUMENTS.value
    NONE = "none"

    @property
    def load(self) -> Load | None:
        """The load, if any."""
        return None if self is TunedFor.NONE else Load(self.value)


def digest(request: LaunchRequest) -> str:
    """What decides about an engine's speed beside GPU, version, TP, PP and the tuned flags; no path, port or name.

    What the entry itself says of the tuned flags is in it, what the command line says of them is not: that wins anyway.
    """
    model = request.served.model
    names = {"model", "revision", "dtype", "quantization", "trust_remote_code", "env", "extra_args"}
    names |= {"max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype", "enable_prefix_caching"}
    key = model.model_dump(mode="json", include=names)
    key |= {"max_model_len": request.max_model_len, "gpu_memory_utilization": f"{request.utilization:g}"}
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]


def find(request: LaunchRequest, load: Load) -> tuple[Tuned | None, str | None]:
    """The tuned flags that hold for an untold engine, if any, and a sentence about what the entry has."""
    model, gpu, vllm = request.served.model, request.gpu, request.vllm_version
    of_load = [tuned for tuned in model.tuned if tuned.load is load]
    here = (gpu, vllm, request.tensor, request.pipeline)
    for tuned in of_load:
        if (tuned.gpu, tuned.vllm, tuned.tensor_parallel_size, tuned.pipeline_parallel_size) == here:
            return (tuned, _used(model, tuned)) if tuned.digest == digest(request) else (None, _other(model, tuned))
    if not of_load:
        return None, None
    places = " and ".join(dict.fromkeys(tuned.place for tuned in of_load))
    parallel = "" if here[2:] == (1, 1) else f" (TP {request.tensor} × PP {request.pipeline})"
    return None, (
        f"{model.name} is tuned for {load} on {places}, and here is {gpu} with vLLM {vllm}{parallel}: the tuned flags "
        f"are not used; `huddle tune {model.name}` measures them here"
    )


def _used(model: Model, tuned: Tuned) -> str:
    so_far = "" if tuned.whole else f" so far, by {tuned.engines} engines of a sweep that was not whole,"
    found = tuned.flags if tuned.flags.words else "no flags were faster than those that are chosen untold"
    said = f"tuned{so_far} for {tuned.load} on {tuned.place} ({tuned.date}): {found}"
    more = () if tuned.whole else (f"`huddle tune {model.name}` goes on",)
    return "; ".join((said, *tuned.flags.warnings, *more))


def _other(model: Model, tuned: Tuned) -> str:
    return (
        f"{model.name} is tuned for {tuned.load} on {tuned.place}, but beside other settings than these (such as "
        "dtype, quantization, max-model-len, gpu-memory-utilization, extra-args): the tuned flags are not used; "
        f"`huddle tune {model.name}` measures them with what the entry says now"
    )
