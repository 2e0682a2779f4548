"""Errors as vLLM writes them, and what clients are told of them."""

from typing import Any

from tests.serving.wrapper.conftest import PROMPT

INVALID = "invalid_value"
HI: Any = [{"role": "user", "content": "hi"}]


def vllm(message: str, code: int = 400, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "param": param, "code": code}}


def told(message: str, param: str | None, code: str) -> dict[str, Any]:
    """What a client gets for a request that the engine refuses."""
    return {"message": message, "type": "invalid_request_error", "param": param, "code": code}


def finding(kind: str, place: tuple[Any, ...], said: str, value: Any) -> str:
    return f"  {{'type': {kind!r}, 'loc': {place!r}, 'msg': {said!r}, 'input': {value!r}}}"


def pydantic(*findings: str, param: str | None = None) -> dict[str, Any]:
    return vllm(f"{len(findings)} validation errors:\n" + "\n".join(findings), param=param)


TOO_LONG = (
    "This model's maximum context length is 2048 tokens. However, you requested 4 output tokens and your prompt "
    "contains at least 2045 input tokens, for a total of at least 2049 tokens. Please reduce the length"
)

ENGINE_STATUSES = {
    400: (400, "invalid_request"),
    401: (502, "engine_broken"),
    403: (502, "engine_broken"),
    404: (404, "not_found"),
    405: (404, "not_found"),
    422: (400, "invalid_request"),
    429: (429, "engine_busy"),
    500: (500, "engine_error"),
    501: (400, "not_supported"),
    503: (503, "engine_unavailable"),
    504: (504, "engine_timeout"),
    **dict.fromkeys((0, 201, 204, 206, 301, 302, 304, 307, 402, 418, 502, 520, 999), (502, "engine_broken")),
}
HEADERS = (
    f"location: http://10.0.0.4/{PROMPT.replace(' ', '-')}\r\nserver: {PROMPT}\r\nset-cookie: a={PROMPT}\r\n"
    f"retry-after: {PROMPT}\r\nx-engine: http://127.0.0.1:5005\r\n"
)
