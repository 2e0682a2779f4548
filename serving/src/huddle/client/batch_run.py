"""Send the requests of a batch, several at a time, and write each answer down as soon as it is whole."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai

from huddle.client import problems
from huddle.client.batch_file import BatchRequest, Output
from huddle.client.connection import ClientError, Connection
from huddle.headers import REQUEST_ID_HEADER

RETRIES = 5  # the SDK's own: 408, 409, 429, 5xx and lost connections, with Retry-After


@dataclass
class Totals:
    """What became of the requests of this run."""

    answered: int = 0
    failed: int = 0


class Sender:
    """One run. Refusals of single requests go to the errors file; what would fail all of them ends the run."""

    def __init__(
        self, client: openai.AsyncOpenAI, connection: Connection, output: Output, errors: Path, tick: Callable[[], None]
    ) -> None:
        self._client, self._connection = client, connection
        self._output, self._errors, self._tick = output, errors, tick
        self.totals = Totals()

    async def run(self, requests: Sequence[BatchRequest], concurrency: int, defaults: dict[str, Any]) -> None:
        """Send all of them; `defaults` are fields for bodies that do not say otherwise (model, priority).

        Raises:
            ClientError: the endpoint is gone or refuses the key. What was answered until then is written.
        """
        left = iter(requests)  # shared: each worker takes the next one
        workers = [asyncio.create_task(self._work(left, defaults)) for _ in range(min(concurrency, len(requests)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self, left: Iterator[BatchRequest], defaults: dict[str, Any]) -> None:
        for request in left:
            await self._one(request, {**defaults, **request.body})
            self._tick()

    async def _one(self, request: BatchRequest, body: dict[str, Any]) -> None:
        try:
            response = await self._client.post(request.url.removeprefix("/v1"), body=body, cast_to=httpx2.Response)
        except (openai.APIConnectionError, openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise problems.explain(error, self._connection) from error
        except openai.APIStatusError as error:
            self._fail(request, error.response, error.body)
            return
        try:
            content = response.json()
        except ValueError:
            raise ClientError(f"{self._connection.base_url} answers with something that is not JSON") from None
        self._output.add(_answer(request, response, content))
        self.totals.answered += 1

    def _fail(self, request: BatchRequest, response: httpx2.Response, body: object) -> None:
        line = json.dumps(_answer(request, response, {"error": body}), ensure_ascii=False)
        mode = "a" if self.totals.failed else "w"  # an earlier run's errors were tried again by this one
        with self._errors.open(mode, encoding="utf-8") as file:
            file.write(line + "\n")
        self.totals.failed += 1


def _answer(request: BatchRequest, response: httpx2.Response, body: object) -> dict[str, Any]:
    request_id = response.headers.get(REQUEST_ID_HEADER, "")
    return {
        "id": f"batch_req_{request_id or request.line}",
        "custom_id": request.custom_id,
        "response": {"status_code": response.status_code, "request_id": request_id, "body": body},
        "error": None,
    }
