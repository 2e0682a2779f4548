"""Flags that a sweep found best (`huddle tune`): used where they were measured, and nowhere else. Pure."""

from enum import UNIQUE, StrEnum, verify

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


def find(
    model: Model, load: Load, *, gpu: str, vllm: str, tensor: int, pipeline: int
) -> tuple[Tuned | None, str | None]:
    """The tuned flags that hold here, if any, and a sentence about what the entry has."""
    of_load = [tuned for tuned in model.tuned if tuned.load is load]
    here = (gpu, vllm, tensor, pipeline)
    for tuned in of_load:
        if (tuned.gpu, tuned.vllm, tuned.tensor_parallel_size, tuned.pipeline_parallel_size) == here:
            found = tuned.flags if tuned.flags.words else "no flags were faster than those that are chosen untold"
            return tuned, f"tuned for {load} on {tuned.place} ({tuned.date}): {found}"
    if not of_load:
        return None, None
    places = " and ".join(dict.fromkeys(tuned.place for tuned in of_load))
    parallel = "" if (tensor, pipeline) == (1, 1) else f" (TP {tensor} × PP {pipeline})"
    return None, (
        f"{model.name} is tuned for {load} on {places}, and here is {gpu} with vLLM {vllm}{parallel}: the tuned flags "
        f"are not used; `huddle tune {model.name}` measures them here"
    )
