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
    max_num_seqs: Annotated[StrictInt, _whole_number(1, 65536)] | None = None
    max_model_len: Annotated[StrictInt, _whole_number(16, 16_777_216)] | None = None
    revision: Annotated[StrictStr, Field(pattern=r"^[\w./-]{1,128}$", description="a commit or tag")] | None = None
    digest: (
        Annotated[StrictStr, Field(pattern=r"^sha256:[0-9a-f]{64}$", description="'sha256:' and 64 hex digits")] | None
    ) = None
    chat_template: RelativePath | None = None
    trust_remote_code: Annotated[StrictBool, Field(description="true or false")] = False
    env: dict[VariableName, QuotedText] = Field(default_factory=dict, description="variables, as NAME: 'text'")
    extra_args: tuple[QuotedText, ...] = Field(default=(), description="a list of command-line words for vllm serve")


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
