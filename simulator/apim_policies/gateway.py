"""The pipeline of a gateway: find API and operation, check the key, run the policies, watch the answer leave.

From Microsoft's pages on error handling and subscriptions: no operation is 404 (OperationNotFound), a key that is
missing or not valid is 401; a product's key opens the product's APIs and brings the product's policy along, a key for
an API or for all APIs brings none. Assumptions: `on-error` of the scopes that are known by then runs in both cases, and
a preflight is answered by the API's `cors` before a key is asked for.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import TypeVar
from uuid import UUID, uuid4

from simulator.apim_policies.compiler import Document, Program, compile_scopes
from simulator.apim_policies.edits import is_preflight
from simulator.apim_policies.exchange import Environment, Exchange, Failed, LastError, Returned
from simulator.apim_policies.gateway_config import (
    Api,
    GatewayConfig,
    Operation,
    Product,
    Subscription,
    SubscriptionScope,
)
from simulator.apim_policies.messages import Headers, Request, Response

_Scopes = tuple[str, str, str]
_Entity = TypeVar("_Entity", Api, Product, Operation)


class Gateway:
    """A gateway with its policies compiled: what they do not know is known before the first request."""

    def __init__(self, config: GatewayConfig, environment: Environment, *, new_id: Callable[[], UUID] = uuid4) -> None:
        self.config = config
        self.environment = environment
        self._new_id = new_id
        self._programs = {scopes: self._compile(scopes) for scopes in self._all_scopes()}

    async def handle(self, request: Request) -> Response:
        """Answer a request. The answer's body must be read to its end, or closed."""
        exchange = Exchange(request, self._new_id(), self.environment)
        try:
            program = await self._inbound(exchange)
            await program["backend"](exchange)
            if exchange.response is None:
                exchange.response = Response.whole(200, "OK", Headers(), b"")
            await program["outbound"](exchange)
        except Returned as returned:
            exchange.response = returned.response
        except Failed as failed:
            await self._on_error(exchange, failed)
        return self._watched(exchange)

    async def _inbound(self, exchange: Exchange) -> Program:
        request = exchange.request
        api = exchange.api = self.config.api_for(request.path)
        if api is None:
            raise Failed(404, _NOT_FOUND)
        if (cors := self._program(exchange).cors) is not None and is_preflight(exchange):
            await cors(exchange)
        exchange.path = request.path.removeprefix(f"/{api.path}") or "/"
        exchange.operation = next((op for op in api.operations if op.matches(request.method, exchange.path)), None)
        if exchange.operation is None:
            raise Failed(404, _NOT_FOUND)
        if api.subscription_required:
            self._recognise(exchange, api)
        program = self._program(exchange)
        await program["inbound"](exchange)
        return program

    def _recognise(self, exchange: Exchange, api: Api) -> None:
        request = exchange.request
        queried = next((value for name, value in request.query if name == api.key_query), None)
        key = request.headers.get(api.key_header) or queried
        if not key:
            raise Failed(401, _NO_KEY)
        held = self.config.subscription_for(key)
        if held is None or not held.active or not self._opens(held, api):
            raise Failed(401, _WRONG_KEY)
        exchange.subscription = held
        if held.scope is SubscriptionScope.PRODUCT:
            exchange.product = next(product for product in self.config.products if product.id == held.target)

    def _opens(self, held: Subscription, api: Api) -> bool:
        match held.scope:
            case SubscriptionScope.ALL_APIS:
                return True
            case SubscriptionScope.API:
                return held.target == api.id
            case SubscriptionScope.PRODUCT:
                return any(product.id == held.target and api.id in product.apis for product in self.config.products)

    async def _on_error(self, exchange: Exchange, failed: Failed) -> None:
        exchange.error = failed.error
        body = json.dumps({"statusCode": failed.status, "message": str(failed)}).encode()
        headers = Headers([("Content-Type", "application/json"), *failed.headers])
        exchange.response = Response.whole(failed.status, "", headers, body)
        try:
            await self._program(exchange)["on-error"](exchange)
        except Returned as returned:
            exchange.response = returned.response

    def _watched(self, exchange: Exchange) -> Response:
        """The answer, with those who count it looking on; not one byte of it waits for them."""
        response = exchange.response
        assert response is not None  # noqa: S101 - every way here has set one
        for name, value in exchange.own_headers:
            response.headers.set(name, value)
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                for finish in exchange.ended:
                    finish()

        inner, close = response.body, response.close

        async def body() -> AsyncIterator[bytes]:
            try:
                async for chunk in inner:
                    for watch in exchange.watchers:
                        watch(chunk)
                    yield chunk
            finally:
                end()

        async def give_up() -> None:
            if close is not None:
                await close()
            end()

        return Response(response.status, response.reason, response.headers, body(), give_up)

    # -- policies --

    def _program(self, exchange: Exchange) -> Program:
        return self._programs[
            exchange.product.id if exchange.product else "",
            exchange.api.id if exchange.api else "",
            exchange.operation.id if exchange.operation and exchange.operation.policy else "",
        ]

    def _all_scopes(self) -> list[_Scopes]:
        scopes: list[_Scopes] = [("", "", "")]
        for api in self.config.apis:
            for operation in ("", *(op.id for op in api.operations if op.policy)):
                scopes.append(("", api.id, operation))
                scopes += [
                    (product.id, api.id, operation) for product in self.config.products if api.id in product.apis
                ]
        return scopes

    def _compile(self, scopes: _Scopes) -> Program:
        product_id, api_id, operation_id = scopes
        api: Api | None = _by_id(self.config.apis, api_id)
        product: Product | None = _by_id(self.config.products, product_id)
        operation: Operation | None = _by_id(api.operations if api else (), operation_id)
        documents = [Document("service", self.config.policy)]
        documents += [Document(f"product/{product.id}", product.policy)] if product else []
        documents += [Document(f"api/{api.id}", api.policy)] if api else []
        if api and operation and operation.policy:
            documents.append(Document(f"api/{api.id}/{operation.id}", operation.policy))
        return compile_scopes(documents, self.config.named_values)


def _by_id(entities: tuple[_Entity, ...], wanted: str) -> _Entity | None:
    return next((entity for entity in entities if entity.id == wanted), None)


_NOT_FOUND = LastError("configuration", "OperationNotFound", "Unable to match incoming request to an operation.")
_NO_KEY = LastError("authorization", "SubscriptionKeyNotFound", "Access denied due to missing subscription key.")
_WRONG_KEY = LastError("authorization", "SubscriptionKeyInvalid", "Access denied due to invalid subscription key.")
