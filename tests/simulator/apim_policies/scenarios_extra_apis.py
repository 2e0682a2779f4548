"""What the other APIs promise: the same, for clients that put their key elsewhere."""

from __future__ import annotations

from huddle.wrapper.errors import ErrorType
from simulator.apim_policies.exchange import BackendFault, Failed, LastError

from .lab import (
    API_KEY,
    KEY,
    OTHER_KEY,
    held_stream,
    plan,
    request,
)
from .promises import NODES, OUTER, Make, assert_refused, scenario


@scenario
async def clients_of_azure_openai_are_served(make: Make) -> None:
    lab = make()
    deployed = "/openai/deployments/llama-3.2-3b"
    for path in ("/chat/completions", "/completions", "/embeddings"):
        query = [("api-version", "2024-10-21"), ("subscription-key", KEY)]
        got = await lab.ask(f"{deployed}{path}", key=None, headers={"api-key": KEY}, query=query)
        assert got.status == 200
        assert lab.sent[-1][0].removeprefix(NODES[0]).removeprefix(NODES[1]) == path
        assert lab.last.query == []
        assert KEY not in repr((list(lab.last.headers), lab.last.query))
        assert lab.last.headers.get("X-Huddle-Tenant") == "developers_playground"
    for path in ("/openai/models", "/openai/responses"):
        say = None if path.endswith("models") else "Hi"
        assert (await lab.ask(path, key=None, headers={"api-key": OTHER_KEY}, say=say)).status == 200
        assert lab.sent[-1][0].endswith(path.removeprefix("/openai"))
    got = await lab.ask(f"{deployed}/chat/completions")
    assert_refused(got, 401, ErrorType.AUTHENTICATION, "invalid_api_key")
    assert "header api-key" in got.error["message"], "the first API's header is none of this one's"


@scenario
async def all_apis_share_one_limit(make: Make) -> None:
    lab = make()
    for _ in range(2):
        assert (await lab.ask("/v1/models", say=None)).status == 200
        assert (await lab.ask("/openai/models", say=None, key=None, headers={"api-key": KEY})).status == 200
    bearer = {"Authorization": f"Bearer {KEY}"}
    assert (await lab.ask("/bearer/v1/models", say=None, key=None, headers=bearer)).status == 200
    got = await lab.ask("/bearer/v1/models", say=None, key=None, headers=bearer)
    assert_refused(got, 429, ErrorType.RATE_LIMIT, "rate_limit_exceeded")
    assert got.headers.get("Retry-After") == "60"


@scenario
async def bearer_tokens_are_keys(make: Make) -> None:
    lab = make()
    bearer = {"Authorization": f"Bearer {KEY}"}
    got = await lab.ask("/bearer/v1/chat/completions", key=None, headers=bearer)
    assert got.status == 200
    assert lab.sent[0][0] == f"{NODES[0]}/chat/completions"
    ((url, inner, timeout),) = lab.inside
    assert url == f"https://{plan().names.gateway}.azure-api.net/v1/chat/completions"
    assert timeout == 239
    assert sorted(name for name, value in inner.headers if KEY in value) == ["Ocp-Apim-Subscription-Key"]
    assert got.headers.get("X-Request-Id") == lab.last.headers.get("X-Request-Id")
    assert KEY not in repr(list(lab.last.headers))
    for headers in ({}, {"Authorization": f"Basic {KEY}"}, {"Authorization": "Bearer wrong"}):
        refused = await lab.ask("/bearer/v1/chat/completions", key=None, headers=headers)
        assert_refused(refused, 401, ErrorType.AUTHENTICATION, "invalid_api_key")
    query = [("subscription-key", KEY)]
    refused = await lab.ask("/bearer/v1/chat/completions", key=None, headers={}, query=query)
    assert refused.status == 401, "this address takes keys in Authorization, and nowhere else"
    refused = await lab.ask("/bearer/v1/chat/completions", key=KEY, headers={"Authorization": "Bearer wrong"})
    assert refused.status == 401
    refused = await lab.ask("/bearer/v1/chat/completions", key=None, headers={"Authorization": f"Bearer {API_KEY}"})
    assert_refused(refused, 403, ErrorType.PERMISSION, "no_product")
    assert len(lab.sent) == 1


@scenario
async def bearer_is_a_word_in_any_case_with_blanks_behind(make: Make) -> None:
    for said in (f"bearer {KEY}", f"BEARER {KEY}", f"Bearer   {KEY}"):
        got = await make().ask("/bearer/v1/models", say=None, key=None, headers={"Authorization": said})
        assert got.status == 200, said
    for said in (f"bearer{KEY}", f"not bearer {KEY}"):
        got = await make().ask("/bearer/v1/models", say=None, key=None, headers={"Authorization": said})
        assert_refused(got, 401, ErrorType.AUTHENTICATION, "invalid_api_key")


@scenario
async def an_extra_api_that_leads_nowhere_says_so(make: Make) -> None:
    lab = make()
    lab.broken_inside = BackendFault("BackendConnectionFailure")
    got = await lab.ask("/bearer/v1/models", say=None, key=None, headers={"Authorization": f"Bearer {KEY}"})
    assert_refused(got, 503, ErrorType.UPSTREAM, "engine_unavailable")
    lab.broken_inside = Failed(413, LastError("forward-request", "RequestTooLarge", "x"))
    got = await lab.ask("/bearer/v1/models", say=None, key=None, headers={"Authorization": f"Bearer {KEY}"})
    assert_refused(got, 400, ErrorType.INVALID_REQUEST, "bad_request")
    assert_refused(await lab.ask("/bearer/v1/x", key=None), 404, ErrorType.NOT_FOUND, "not_found")


@scenario
async def every_api_streams_unbuffered(make: Make) -> None:
    extra_apis = {
        "/bearer/v1/chat/completions": {"Authorization": f"Bearer {KEY}"},
        "/openai/deployments/x/chat/completions": {"api-key": KEY},
    }
    for path, headers in extra_apis.items():
        lab = make()
        stream = held_stream()
        lab.usual = stream.response
        response = await lab.gateway.handle(request(path, key=None, headers=headers, stream=True))
        chunks = aiter(response.body)
        for number in range(3):
            assert await anext(chunks) == stream.chunk(number)
            assert stream.given == number + 1
        assert response.close is not None
        await response.close()


@scenario
async def an_outer_policy_holds_for_every_api(make: Make) -> None:
    lab = make(OUTER)
    bearer = {"Authorization": f"Bearer {KEY}"}
    got = await lab.ask("/bearer/v1/models", key=None, headers=bearer, say=None)
    assert lab.inside[0][1].headers.get("X-Organisation") == "seen"
    outer = got.headers.get("X-Organisation")
    assert outer not in (None, got.headers.get("X-Request-Id")), "both passes run it, the outer one last"
    lab.broken_inside = BackendFault("Timeout")
    assert (await lab.ask("/bearer/v1/models", say=None, key=None)).status == 418
    for path in ("models", "deployments/x/embeddings"):
        say = None if path == "models" else "Hi"
        got = await lab.ask(f"/openai/{path}", key=None, headers={"api-key": KEY}, say=say)
        assert got.headers.get("X-Request-Id")
        assert got.headers.get("X-Organisation") == got.headers.get("X-Request-Id")
        assert lab.last.headers.get("X-Organisation") == "seen"
        lab.replies = [BackendFault("Timeout")]
        assert (await lab.ask(f"/openai/{path}", key=None, headers={"api-key": KEY}, say=say)).status == 418
