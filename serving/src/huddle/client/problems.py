"""What an endpoint's failures are called in plain words: one sentence with the next step, never with a key in it."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import openai

from huddle.client.connection import ClientError, Connection
from huddle.errors import ExitCode

NEXT_STEP = "check the address, open the tunnel, or start one here with `make local`"


@contextmanager
def explained(connection: Connection) -> Iterator[None]:
    """Turn what the SDK raises into a `ClientError`."""
    try:
        yield
    except (openai.OpenAIError, httpx2.HTTPError) as error:
        raise explain(error, connection) from error


def explain(error: openai.OpenAIError | httpx2.HTTPError, connection: Connection) -> ClientError:
    """The sentence and exit code for one failure: 2 where the caller can fix it, 1 where the work failed."""
    url, source = connection.base_url, connection.source
    match error:
        case openai.APITimeoutError():
            return ClientError(
                f"{url} did not answer in time; is the model busy or still loading?", exit_code=ExitCode.FAILED
            )
        case openai.APIConnectionError():
            return ClientError(f"cannot reach {url} (from {source}): {cause(error)}; {NEXT_STEP}")
        case openai.AuthenticationError() if connection.api_key is None:
            return ClientError(
                f"{url} (from {source}) wants a key and none is known; set OPENAI_API_KEY or use a connection file"
            )
        case openai.AuthenticationError():
            return ClientError(f"{url} refused the key from {source}: {said(error, connection)}")
        case openai.NotFoundError() if error.code != "model_not_found":
            return ClientError(f"{url} has no such route ({said(error, connection)}); a base URL mostly ends in /v1")
        case openai.RateLimitError():
            after = error.response.headers.get("retry-after")
            when = f"; try again in {after} s" if after else ""
            return ClientError(
                f"{url} is busy or the quota is used up: {said(error, connection)}{when}", exit_code=ExitCode.FAILED
            )
        case openai.APIStatusError():
            code = ExitCode.FAILED if error.status_code >= 500 else ExitCode.BAD_INPUT
            what = "failed" if error.status_code >= 500 else "refused the request"
            request = f" (request {error.request_id})" if error.request_id else ""
            return ClientError(f"{url} {what}, {error.status_code}{request}: {said(error, connection)}", exit_code=code)
        case _:
            return ClientError(f"the answer of {url} broke off: {said(error, connection)}", exit_code=ExitCode.FAILED)


def said(error: Exception, connection: Connection) -> str:
    """The endpoint's own words, on one line, without the key should it repeat it."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else None
    text = " ".join(str(message or error or type(error).__name__).split())
    return text.replace(connection.api_key, "…") if connection.api_key else text


def cause(error: Exception) -> str:
    """The innermost reason of a failed connection, such as 'Connection refused'."""
    inner: BaseException = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__ or inner
    strerror = getattr(inner, "strerror", None)
    text = " ".join(str(strerror or inner or error).split())
    return text or type(inner).__name__
