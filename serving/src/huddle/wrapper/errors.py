"""Everything that the wrapper itself refuses, in the error shape that OpenAI's clients understand."""

import json
from enum import UNIQUE, StrEnum, verify


@verify(UNIQUE)
class ErrorType(StrEnum):
    """The `error.type` values that clients of the OpenAI API tell apart."""

    INVALID_REQUEST = "invalid_request_error"
    AUTHENTICATION = "authentication_error"
    PERMISSION = "permission_error"
    NOT_FOUND = "not_found_error"
    RATE_LIMIT = "rate_limit_error"
    OVERLOADED = "overloaded_error"
    UPSTREAM = "upstream_error"


class RequestError(Exception):
    """A request that the wrapper answers itself.

    `status` is the HTTP status, `code` a stable word for programs, `message` one sentence for people, `param` the
    request field at fault. `retry_after_s` becomes `Retry-After`; `allow` becomes `Allow`. `close` says that the
    connection cannot be trusted to be at a message boundary any more.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        type: ErrorType = ErrorType.INVALID_REQUEST,  # OpenAI's own word for the key
        param: str | None = None,
        retry_after_s: int | None = None,
        allow: str | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.type = type
        self.param = param
        self.retry_after_s = retry_after_s
        self.allow = allow
        self.close = close

    def body(self) -> bytes:
        """The JSON body of the answer."""
        error = {"message": self.message, "type": self.type.value, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()

    def event(self) -> bytes:
        """The same, as a server-sent event for a stream that has already begun."""
        return b"data: " + self.body() + b"\n\n"


def bad_request(code: str, message: str, param: str | None = None) -> RequestError:
    """A 400 about the content of an otherwise well-formed request."""
    return RequestError(400, code, message, param=param)


def malformed(message: str, status: int = 400) -> RequestError:
    """A refusal of the HTTP message itself; the connection is closed after it."""
    return RequestError(status, "malformed_http", message, close=True)


def upstream_unavailable(message: str, retry_after_s: int = 5) -> RequestError:
    """The engine cannot be reached (yet)."""
    return RequestError(503, "engine_unavailable", message, type=ErrorType.UPSTREAM, retry_after_s=retry_after_s)


def going_away(restart_s: int) -> RequestError:
    """This process ends once its running requests have; who balances over several takes the request elsewhere."""
    sentence = "this server is being restarted; send the request again"
    return RequestError(503, "going_away", sentence, type=ErrorType.UPSTREAM, retry_after_s=restart_s)


def upstream_broken(message: str) -> RequestError:
    """The engine answered with something that is not a whole, well-formed response."""
    return RequestError(502, "engine_broken", message, type=ErrorType.UPSTREAM, retry_after_s=1)


def not_offered(route: str) -> RequestError:
    """The engine has no such route, or not for this model; what it says itself is not always OpenAI's shape."""
    return RequestError(404, "not_found", f"the engine of this model does not offer {route}", type=ErrorType.NOT_FOUND)


def upstream_timeout(message: str) -> RequestError:
    """The engine took longer than the configured limit."""
    return RequestError(504, "engine_timeout", message, type=ErrorType.UPSTREAM, retry_after_s=5)
