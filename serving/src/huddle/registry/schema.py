"""What an entry of `models.yaml` may say. The descriptions are the words that a wrong value is answered with."""

import itertools
import re
from enum import StrEnum, unique
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, StrictStr

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
NAME_RULE = "lower-case letters, digits, '.', '_' and '-', at most 64, beginning with a letter or digit"


@unique
class Dtype(StrEnum):
    """Weight and activation types that vLLM takes for `--dtype`."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    HALF = "half"
    FLOAT = "float"
    FLOAT32 = "float32"


@unique
class Quantization(StrEnum):
    """Quantisations an entry may ask for; leave it out when the model's own config.json says it."""

    FP8 = "fp8"
    AWQ = "awq"
    AWQ_MARLIN = "awq_marlin"
    GPTQ = "gptq"
    GPTQ_MARLIN = "gptq_marlin"
    COMPRESSED_TENSORS = "compressed-tensors"
    MXFP4 = "mxfp4"


def _whole_number(low: int, high: int) -> Any:
    return Field(ge=low, le=high, description=f"a whole number from {low:,} to {high:,}")


def _relative(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("leaves its directory")
    return value


def _number(value: Any) -> Any:
    """Numbers only: pydantic would also take `"0.9"` and `true`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    return value


RelativePath = Annotated[
    StrictStr,
    AfterValidator(_relative),
    Field(description="a path below the model's own directory, without '..' and not beginning with '/'"),
]

VariableName = Annotated[StrictStr, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")]
QuotedText = Annotated[StrictStr, Field(min_length=1)]


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class Entry(BaseModel):
    """Common to models and aliases: kebab-case keys, nothing unknown, frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=_kebab)

    description: Annotated[StrictStr, Field(min_length=1, description="one line of text")]
    system_prompt: RelativePath | None = None


@unique
class KvCacheType(StrEnum):
    """How the engine keeps keys and values: as the model's own type, or in eight bits."""

    AUTO = "auto"
    FP8 = "fp8"


@unique
class Load(StrEnum):
    """What an engine can be tuned for."""

    CHAT = "chat"
    DOCUMENTS = "documents"


Sequences = Annotated[StrictInt, _whole_number(1, 65536)]
BatchedTokens = Annotated[StrictInt, _whole_number(16, 16_777_216)]


class _Block(BaseModel):
    """A part of an entry that `huddle tune` writes."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=_kebab, validate_by_name=True)


class Flags(_Block):
    """What `huddle tune` may choose; what is left out is as `huddle launch` chooses it untold."""

    max_num_batched_tokens: BatchedTokens | None = None
    kv_cache_dtype: KvCacheType | None = None
    api_server_count: Annotated[StrictInt, _whole_number(1, 64)] | None = None
    max_num_seqs: Sequences | None = None
    enable_prefix_caching: StrictBool | None = None

    @property
    def words(self) -> list[str]:
        """The options, as `huddle launch` and `vllm serve` both spell them."""
        words: list[str] = []
        for name, value in self.model_dump(mode="json", by_alias=True, exclude_none=True).items():
            words += [f"--{'' if value else 'no-'}{name}"] if isinstance(value, bool) else [f"--{name}", str(value)]
        return words

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person must know who uses them."""
        fp8 = "an fp8 KV cache may change answers: try yours before you rely on it"
        no_cache = (
            "prefix caching is off, measured with prompts of one turn that begin alike in 128 tokens only: "
            "conversations and long system prompts may be slower"
        )
        found = {fp8: self.kv_cache_dtype is KvCacheType.FP8, no_cache: self.enable_prefix_caching is False}
        return tuple(text for text, holds in found.items() if holds)

    def __str__(self) -> str:
        return " ".join(self.words).removeprefix("--").replace(" --", ", ") or "untold"


class Level(_Block):
    """What was measured at a number of streams; times are the 95th percentile."""

    streams: StrictInt
    tokens_per_s: Annotated[float, BeforeValidator(_number)]
    ttft_p95_ms: Annotated[float, BeforeValidator(_number)]
    token_p95_ms: Annotated[float, BeforeValidator(_number)]


class Measured(_Block):
    """The three that one sweep compares, on the same machine and with the same load."""

    tuned: tuple[Level, ...]
    untold: tuple[Level, ...]
    plain: tuple[Level, ...] = ()


class Tuned(_Block):
    """Flags that a sweep found best, and where that holds."""

    load: Load
    gpu: Annotated[StrictStr, Field(min_length=1)]
    vllm: Annotated[StrictStr, Field(min_length=1)]
    tensor_parallel_size: StrictInt
    pipeline_parallel_size: StrictInt
    date: StrictStr
    engines: StrictInt
    whole: StrictBool  # whether the sweep was; else this is the best so far
    digest: Annotated[StrictStr, Field(pattern=r"^[0-9a-f]{12}$")]  # of what the flags were measured beside
    flags: Flags
    measured: Measured

    @property
    def place(self) -> str:
        """Where it was measured."""
        parallel = (self.tensor_parallel_size, self.pipeline_parallel_size)
        layout = "" if parallel == (1, 1) else f" (TP {parallel[0]} × PP {parallel[1]})"
        return f"{self.gpu} with vLLM {self.vllm}{layout}"


class ModelSpec(Entry):
    """One model as written under `models:`."""

    model: Annotated[
        StrictStr,
        Field(
            pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$",
            description="a Hugging Face repository id such as 'meta-llama/Llama-3.1-8B-Instruct'",
        ),
    ]
    directory: RelativePath | None = None
    licence: Annotated[StrictStr, Field(min_length=1, description="the licence's name")] | None = None
    gated: Annotated[StrictBool, Field(description="true or false")] = False
    dtype: Dtype = Dtype.AUTO
    quantization: Quantization | None = None
    tensor_parallel_size: Annotated[StrictInt, _whole_number(1, 64)] = 1
    pipeline_parallel_size: Annotated[StrictInt, _whole_number(1, 64)] = 1
    gpu_memory_utilization: Annotated[
        float,
        BeforeValidator(_number),
        Field(
            gt=0,
            le=0.98,
            description="a number above 0 and at most 0.98 (CUDA graphs and the context come on top of it)",
        ),
    ] = 0.9
    max_num_seqs: Sequences | None = None
    max_num_batched_tokens: BatchedTokens | None = None
    max_model_len: Annotated[StrictInt, _whole_number(16, 16_777_216)] | None = None
    kv_cache_dtype: KvCacheType | None = None
    enable_prefix_caching: Annotated[StrictBool, Field(description="true or false")] | None = None
    revision: Annotated[StrictStr, Field(pattern=r"^[\w./-]{1,128}$", description="a commit or tag")] | None = None
    digest: (
        Annotated[StrictStr, Field(pattern=r"^sha256:[0-9a-f]{64}$", description="'sha256:' and 64 hex digits")] | None
    ) = None
    chat_template: RelativePath | None = None
    trust_remote_code: Annotated[StrictBool, Field(description="true or false")] = False
    env: dict[VariableName, QuotedText] = Field(default_factory=dict, description="variables, as NAME: 'text'")
    extra_args: tuple[QuotedText, ...] = Field(default=(), description="a list of command-line words for vllm serve")
    tuned: tuple[Tuned, ...] = Field(default=(), description="a list of what `huddle tune` has written, unchanged")


class AliasSpec(Entry):
    """One alias as written under `aliases:`: a served name with its own prompt over a base model's files."""

    base: Annotated[StrictStr, Field(min_length=1, description="a name under models:")]
    directory: RelativePath
    system_prompt: RelativePath | None = "system_prompt.txt"
    model_info: RelativePath | None = "model_info.json"


class Model(ModelSpec):
    """A model with the name that it is served by."""

    name: str

    @property
    def store_directory(self) -> str:
        """Where its files lie below a model store, such as `Llama-3.2-3B-Instruct`."""
        return self.directory or self.model.rpartition("/")[2]

    @property
    def schedules_by_priority(self) -> bool:
        """Whether the engine is told to serve requests by their `priority` (else it refuses one)."""
        words = " ".join(self.extra_args).replace("=", " ").split()
        return ("--scheduling-policy", "priority") in itertools.pairwise(words)


class Alias(AliasSpec):
    """An alias with the name that it is served by."""

    name: str

    @property
    def store_directory(self) -> str:
        """Where its own files lie below a model store, such as `huddle-ai/language/hl`."""
        return self.directory
