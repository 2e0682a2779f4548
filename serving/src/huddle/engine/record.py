"""Write what vLLM accepts, as JSON, to stdout. Run by the interpreter that has vLLM; needs nothing of ours.

python serving/src/huddle/engine/record.py > serving/src/huddle/data/engine/vllm-<version>.json
"""

import importlib
import importlib.metadata
import json
import sys
from typing import Any


def main() -> None:
    """Print version, flags with their choices, variables and parser names."""
    record = {
        "version": importlib.metadata.version("vllm").partition("+")[0],
        "flags": _flags(),
        "variables": sorted(importlib.import_module("vllm.envs").environment_variables),
        "tool_parsers": _names("tool_parsers", "ToolParserManager"),
        "reasoning_parsers": _names("reasoning", "ReasoningParserManager"),
        "quantizations": sorted(
            importlib.import_module("vllm.model_executor.layers.quantization").QUANTIZATION_METHODS
        ),
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
