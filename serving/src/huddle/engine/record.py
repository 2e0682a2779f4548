"""Write what vLLM accepts, as JSON, to stdout. Run by the interpreter that has vLLM; needs nothing of ours.

`python -m tools.engines record VERSION` runs it and keeps what it prints in `data/engine/vllm-VERSION.json`.
"""

import importlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator
from typing import Any


def main() -> None:
    """Print version, flags with their choices, variables, parser names and the fields of requests."""
    os.environ["VLLM_LOGGING_STREAM"] = "ext://sys.stderr"  # 0.26.0 would log to stdout
    record = {
        "version": importlib.metadata.version("vllm").partition("+")[0],
        "flags": _flags(),
        "variables": sorted(importlib.import_module("vllm.envs").environment_variables),
        "tool_parsers": _names("tool_parsers", "ToolParserManager"),
        "reasoning_parsers": _names("reasoning", "ReasoningParserManager"),
        "quantizations": sorted(
            importlib.import_module("vllm.model_executor.layers.quantization").QUANTIZATION_METHODS
        ),
        "request_fields": _request_fields(),
    }
    json.dump(record, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")


def _flags() -> dict[str, Any]:
    """Every option of `vllm serve`: its choices, or null where any value goes."""
    arguments = _first_module("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
    flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    parser = arguments.make_arg_parser(flexible(prog="vllm serve"))
    return {
        option: [str(choice) for choice in action.choices] if action.choices else None
        for action in parser._actions
        for option in action.option_strings
    }


def _request_fields() -> dict[str, list[str]]:
    """Every field that the request models know, by section of `data/engine_fields.yaml`."""
    openai = "vllm.entrypoints.openai"
    common = _first_module("vllm.entrypoints.generate.base.protocol", f"{openai}.engine.protocol")
    content = _first_module("vllm.renderers.chat_utils", "vllm.entrypoints.chat_utils")
    embed = importlib.import_module("vllm.entrypoints.pooling.embed.protocol")
    models = {
        "chat.completions": [importlib.import_module(f"{openai}.chat_completion.protocol").ChatCompletionRequest],
        "completions": [importlib.import_module(f"{openai}.completion.protocol").CompletionRequest],
        "embeddings": [embed.EmbeddingCompletionRequest, embed.EmbeddingChatRequest],
        "responses": [importlib.import_module(f"{openai}.responses.protocol").ResponsesRequest],
        "stream_options": [common.StreamOptions],
    }
    found = {section: sorted({name for model in of for name in _fields(model)}) for section, of in models.items()}
    return found | {"content_parts": sorted(content.MM_PARSER_MAP)}


def _fields(model: Any) -> Iterator[str]:
    """The names by which a request may say a field; each of them must be judged."""
    for name, field in model.model_fields.items():
        yield name
        if field.validation_alias:
            yield str(field.validation_alias)


def _names(module: str, manager: str) -> list[str]:
    found = getattr(importlib.import_module(f"vllm.{module}"), manager)
    return sorted({*found.list_registered()})


def _first_module(*names: str) -> Any:
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"none of {', '.join(names)} in this vLLM")


if __name__ == "__main__":
    main()
