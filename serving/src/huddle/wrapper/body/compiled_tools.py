"""Which tools of a request the engine compiles the schemas of: those that the model's output is held to.

Read of vLLM 0.26.0 (`get_json_schema_from_tools`, `structural_tag_registry`) and 0.32.0, which compiles fewer.
"""

from typing import Any, Final

_FREE: Final = (None, "auto", "none")


def compiled_tools(tools: list[Any], tool_choice: Any) -> list[Any]:
    """All where some tool must be called, one where it is named; else none, unless a tool is strict.

    One strict tool has the engine hold the model to all of them, but for those that say `strict: false`.
    """
    functions = [_function(tool) for tool in tools]
    if tool_choice in _FREE:
        strict = [function.get("strict") for function in functions]
        if tool_choice == "none" or True not in strict:
            return []
        return [tool for tool, level in zip(tools, strict, strict=True) if level is not False]
    name = _function(tool_choice).get("name")
    if isinstance(name, str):
        return [tool for tool, function in zip(tools, functions, strict=True) if function.get("name") == name]
    return tools


def _function(tool: Any) -> dict[str, Any]:
    """The function of a tool or of a choice: an object inside of it (chat), or itself (responses)."""
    if not isinstance(tool, dict):
        return {}
    inner = tool.get("function")
    return inner if isinstance(inner, dict) else tool
