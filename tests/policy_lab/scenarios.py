"""What the gateway's policies promise, each promise as a scenario that the true policies pass.

The mutation tests take elements out of the policies and expect one of these to fail, so they assert exactly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from huddle.wrapper.errors import ErrorType
from simulator.policy_lab.exchange import BackendFault, Failed, LastError
from simulator.policy_lab.service import DEFAULT_POLICY

from .lab import (
    ALL_ACCESS_KEY,
    API_KEY,
    BACKEND_KEY,
    IDLE_KEY,
    KEY,
    ORIGIN,
    OTHER_KEY,
    Answered,
    Lab,
    answer,
    held_stream,
    request,
    streamed,
    words,
)


class Make(Protocol):
    """Makes a lab, with a policy of the whole service around ours."""

    def __call__(self, outer: str = DEFAULT_POLICY) -> Lab: ...


SCENARIOS: dict[str, Callable[[Make], Awaitable[None]]] = {}
NODES = ("http://10.0.0.4:8000/v1", "http://10.0.0.5:8000/v1")
OUTER = """
<policies>
  <inbound><set-header name="X-Organisation" exists-action="override"><value>seen</value></set-header></inbound>
  <backend><forward-request /></backend>
  <outbound>
    <set-header name="X-Organisation" exists-action="override">
      <value>@(context.RequestId.ToString())</value>
    </set-header>
  </outbound>
  <on-error><return-response><set-status code="418" reason="Ours" /></return-response></on-error>
</policies>
"""


def scenario(check: Callable[[Make], Awaitable[None]]) -> Callable[[Make], Awaitable[None]]:
    SCENARIOS[check.__name__] = check
    return check


def assert_refused(got: Answered, status: int, kind: ErrorType, code: str) -> None:
    """An error in the shape of OpenAI's API, with an id to ask about."""
    assert (got.status, got.error["type"], got.error["code"]) == (status, kind, code)
    assert list(got.error) == ["message", "type", "param", "code"]
    assert got.error["param"] is None
    assert got.error["message"]
    assert got.headers.get("Content-Type") == "application/json"
    assert len(got.headers.get("X-Request-Id") or "") == 36
    assert "10.0.0" not in got.body.decode()


@scenario
async def a_request_reaches_a_node_and_its_answer_the_client_unchanged(make: Make) -> None:
    lab = make()
    lab.usual = answer(200, b'{ "choices" : [] }\n')
    got = await lab.ask()
    (url, _, timeout) = lab.sent[0]
    assert url == f"{NODES[0]}/chat/completions"
    assert timeout == 200
    assert (got.status, got.body) == (200, b'{ "choices" : [] }\n')
    assert got.headers.get("Content-Type") == "application/json"
    assert got.headers.get("X-Request-Id") == lab.last.headers.get("X-Request-Id")
    assert len(got.headers.get("X-Request-Id") or "") == 36


@scenario
async def requests_go_to_the_nodes_in_turn(make: Make) -> None:
    lab = make()
    for _ in range(4):
        await lab.ask("/v1/models", say=None)
    assert [url for url, _, _ in lab.sent] == [f"{node}/models" for node in NODES * 2]


@scenario
async def the_wrapper_believes_headers_that_only_the_gateway_can_write(make: Make) -> None:
    lab = make()
    spoofed = {
        "x-huddle-product": "batch",
        "X-HUDDLE-TENANT": "somebody-else",
        "x-backend-key": "guess",
        "X-Request-ID": "mine",
    }
    got = await lab.ask(headers=spoofed)
    assert sorted((name.lower(), value) for name, value in lab.last.headers) == [
        ("content-type", "application/json"),
        ("x-backend-key", BACKEND_KEY),
        ("x-huddle-product", "developers"),
        ("x-huddle-tenant", "developers_playground"),
        ("x-request-id", got.headers.get("X-Request-Id")),
    ]


@scenario
async def no_key_of_a_client_goes_further(make: Make) -> None:
    lab = make()
    await lab.ask(headers={"api-key": KEY, "Authorization": f"Bearer {KEY}"})
    query = [("subscription-key", KEY), ("user", "ada"), ("subscription-key", KEY)]
    got = await lab.ask(key=None, query=query)
    assert got.status == 200
    for _, sent, _ in lab.sent:
        assert KEY not in repr((list(sent.headers), sent.query, sent.path))
    assert lab.last.query == [("user", "ada")]


@scenario
async def without_a_valid_key_there_is_no_answer(make: Make) -> None:
    lab = make()
    for key in (None, "no-such-key", IDLE_KEY):
        got = await lab.ask(key=key)
        assert_refused(got, 401, ErrorType.AUTHENTICATION, "invalid_api_key")
        assert "Ocp-Apim-Subscription-Key" in got.error["message"]
    assert not lab.sent


@scenario
async def a_key_of_no_product_is_refused(make: Make) -> None:
    """It would run without any product's limits."""
    lab = make()
    for key in (ALL_ACCESS_KEY, API_KEY):
        assert_refused(await lab.ask(key=key), 403, ErrorType.PERMISSION, "no_product")
    assert not lab.sent


@scenario
async def what_is_not_offered_is_not_found(make: Make) -> None:
    lab = make()
    for path, say in (("/v1/admin", "x"), ("/v1/models", "x"), ("/v1/chat/completions", None), ("/v1/", None)):
        got = await lab.ask(path, say=say)
        assert_refused(got, 404, ErrorType.NOT_FOUND, "not_found")
    assert not lab.sent


@scenario
async def requests_per_minute_are_limited_for_each_subscription(make: Make) -> None:
    lab = make()
    for left in (4, 3, 2, 1, 0):
        got = await lab.ask("/v1/models", say=None)
        assert got.status == 200
        assert got.headers.get("X-RateLimit-Remaining-Requests") == str(left)
        assert got.headers.get("X-RateLimit-Limit-Requests") == "5"
    lab.now += 10
    got = await lab.ask("/v1/models", say=None)
    assert_refused(got, 429, ErrorType.RATE_LIMIT, "rate_limit_exceeded")
    assert got.headers.get("Retry-After") == "50"
    assert len(lab.sent) == 5
    second = lab.service.subscriptions[2]
    assert second.id == "developers_second"
    assert (await lab.ask("/v1/models", say=None, key=second.keys[1])).status == 200
    assert (await lab.ask("/v1/models", say=None, key=OTHER_KEY)).status == 200
    lab.now += 50
    assert (await lab.ask("/v1/models", say=None)).status == 200


@scenario
async def tokens_per_minute_are_limited_for_each_subscription(make: Make) -> None:
    lab = make()
    lab.usual = answer(prompt=100, completion=900)
    first = await lab.ask(say="x" * 384)  # 96 tokens, and 4 around the message, by the lab's estimate
    assert (first.status, first.headers.get("X-RateLimit-Remaining-Tokens")) == (200, "900")
    lab.now += 20
    got = await lab.ask()
    assert_refused(got, 429, ErrorType.RATE_LIMIT, "rate_limit_exceeded")
    assert got.headers.get("Retry-After") == "40"
    assert (await lab.ask("/v1/models", say=None)).status == 200, "listing models costs no tokens"
    assert (await lab.ask(key=lab.service.subscriptions[2].keys[0])).status == 200
    lab.now += 40
    assert (await lab.ask()).status == 200


@scenario
async def a_prompt_over_what_is_left_is_refused_before_it_costs_anything(make: Make) -> None:
    lab = make()
    got = await lab.ask(say="x" * 4_000)
    assert_refused(got, 429, ErrorType.RATE_LIMIT, "rate_limit_exceeded")
    assert not lab.sent
    assert (await lab.ask(say="x" * 3_900)).status == 200


@scenario
async def tokens_of_a_period_are_limited(make: Make) -> None:
    lab = make()
    lab.usual = answer(prompt=10, completion=890)
    for left in (2_995, 2_095, 1_195, 295):
        got = await lab.ask()
        assert (got.status, got.headers.get("X-RateLimit-Remaining-Quota-Tokens")) == (200, str(left))
        lab.now += 60
    got = await lab.ask()
    assert_refused(got, 403, ErrorType.PERMISSION, "forbidden")
    lab.now += 86_400
    assert (await lab.ask()).status == 200


@scenario
async def streams_cost_what_plain_answers_cost(make: Make) -> None:
    lefts = []
    plain = answer(prompt=12, completion=34)
    for stream, usual in ((False, plain), (True, streamed(*words("Hel", "lo.", prompt=12, completion=34)))):
        lab = make()
        lab.usual = usual
        await lab.ask(stream=stream)
        lefts.append((await lab.ask("/v1/embeddings", say="")).headers.get("X-RateLimit-Remaining-Tokens"))
    assert lefts == [str(1_000 - 12 - 34 - 4)] * 2


@scenario
async def tokens_are_told_by_product_subscription_operation_and_backend(make: Make) -> None:
    lab = make()
    lab.usual = answer(prompt=12, completion=34)
    await lab.ask()
    await lab.ask("/v1/models", say=None)
    told = (
        ("Product ID", "developers"),
        ("Subscription ID", "developers_playground"),
        ("Operation ID", "create-chat-completion"),
        ("Backend ID", "node-1"),
    )
    assert [(metric.namespace, metric.name, metric.value) for metric in lab.metrics] == [
        ("huddle", "Prompt Tokens", 12),
        ("huddle", "Completion Tokens", 34),
        ("huddle", "Total Tokens", 46),
    ]
    assert {metric.dimensions for metric in lab.metrics} == {told}


@scenario
async def what_has_not_begun_is_tried_once_more_elsewhere(make: Make) -> None:
    for status in (429, 503):
        lab = make()
        lab.replies = [answer(status, headers={"Retry-After": "7"})]
        got = await lab.ask()
        assert got.status == 200
        assert [url for url, _, _ in lab.sent] == [f"{node}/chat/completions" for node in NODES]
        assert lab.sent[0][1].body == lab.sent[1][1].body
        assert lab.slept == []


@scenario
async def a_second_refusal_is_the_answer(make: Make) -> None:
    lab = make()
    lab.replies = [answer(429), answer(429, b'{"error": {"code": "engine_busy"}}', {"Retry-After": "7"})]
    got = await lab.ask()
    assert (got.status, got.error["code"], got.headers.get("Retry-After")) == (429, "engine_busy", "7")
    assert len(lab.sent) == 2


@scenario
async def what_may_have_begun_is_not_tried_again(make: Make) -> None:
    for status in (400, 404, 500, 502, 504):
        lab = make()
        lab.replies = [answer(status)]
        assert (await lab.ask()).status == status
        assert len(lab.sent) == 1


@scenario
async def a_node_that_cannot_serve_rests(make: Make) -> None:
    lab = make()
    lab.replies = [answer(502), answer(200), answer(502), answer(200), answer(502)]
    for _ in range(5):
        await lab.ask(key=OTHER_KEY)
    before = len(lab.sent)
    for _ in range(4):
        await lab.ask(key=OTHER_KEY)
    assert {url for url, _, _ in lab.sent[before:]} == {f"{NODES[1]}/chat/completions"}
    lab.now += 31
    await lab.ask(key=OTHER_KEY)
    assert lab.sent[-1][0] == f"{NODES[0]}/chat/completions"


@scenario
async def with_no_node_left_the_client_learns_when_to_come_back(make: Make) -> None:
    lab = make()
    lab.usual = answer(502)
    for _ in range(6):
        await lab.ask(key=OTHER_KEY)
    lab.now += 12
    got = await lab.ask(key=OTHER_KEY)
    assert_refused(got, 503, ErrorType.UPSTREAM, "engine_unavailable")
    assert got.headers.get("Retry-After") == "18"


@scenario
async def a_silent_node_is_an_error_that_says_no_more_than_it_must(make: Make) -> None:
    for reason in ("Timeout", "BackendConnectionFailure"):
        lab = make()
        lab.replies = [BackendFault(reason)]
        got = await lab.ask()
        assert_refused(got, 503, ErrorType.UPSTREAM, "engine_unavailable")
        assert got.headers.get("Retry-After") == "10"


@scenario
async def any_other_fault_of_a_request_is_a_bad_request(make: Make) -> None:
    lab = make()
    lab.replies = [Failed(413, LastError("forward-request", "RequestTooLarge", "secret of the gateway"))]
    got = await lab.ask()
    assert_refused(got, 400, ErrorType.INVALID_REQUEST, "bad_request")
    assert b"secret" not in got.body


@scenario
async def browsers_of_named_origins_may_ask(make: Make) -> None:
    lab = make()
    wish = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,api-key"}
    got = await lab.ask(key=None, method="OPTIONS", say=None, headers={"Origin": ORIGIN, **wish})
    assert (got.status, got.body) == (200, b"")
    assert got.headers.get("Access-Control-Allow-Origin") == ORIGIN
    assert got.headers.get("Access-Control-Allow-Methods") == "GET,POST"
    assert got.headers.get("Access-Control-Max-Age") == "3600"
    assert (got.headers.get("Access-Control-Allow-Headers") or "").split(",") == [
        *("Content-Type", "Ocp-Apim-Subscription-Key", "api-key", "Authorization", "X-Stainless-Arch"),
        *("X-Stainless-Async", "X-Stainless-Lang", "X-Stainless-OS", "X-Stainless-Package-Version"),
        *("X-Stainless-Read-Timeout", "X-Stainless-Retry-Count", "X-Stainless-Runtime"),
        *("X-Stainless-Runtime-Version", "X-Stainless-Timeout"),
    ]
    for _ in range(6):
        got = await lab.ask("/v1/models", say=None, headers={"Origin": ORIGIN})
        assert got.headers.get("Access-Control-Allow-Origin") == ORIGIN, "refusals are for pages to read, too"
        assert got.headers.get("Access-Control-Expose-Headers") == (
            "Retry-After,X-Request-Id,X-RateLimit-Limit-Requests,X-RateLimit-Remaining-Requests,"
            "X-RateLimit-Remaining-Tokens,X-RateLimit-Remaining-Quota-Tokens"
        )
    assert got.status == 429


@scenario
async def other_origins_may_not(make: Make) -> None:
    lab = make()
    for origin in ("https://evil.example.com", f"{ORIGIN}.evil.example.com", "null"):
        wish = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        for got in (
            await lab.ask(key=None, method="OPTIONS", say=None, headers=wish),
            await lab.ask("/v1/models", say=None, key=OTHER_KEY, headers={"Origin": origin}),
        ):
            assert got.status == 200
            assert not [name for name, _ in got.headers if name.lower().startswith("access-control-")]


@scenario
async def an_outer_policy_still_holds(make: Make) -> None:
    """The service's own policy, which the organisation may have set: its steps run around ours."""
    lab = make(OUTER)
    got = await lab.ask()
    assert got.status == 200
    assert lab.last.headers.get("X-Organisation") == "seen"
    assert got.headers.get("X-Organisation") == got.headers.get("X-Request-Id")
    lab.replies = [BackendFault("Timeout")]
    assert (await lab.ask()).status == 418, "with a product"
    assert (await lab.ask(key=None)).status == 418, "without one"


@scenario
async def streams_are_not_held_back(make: Make) -> None:
    lab = make()
    stream = held_stream()
    lab.usual = stream.response
    response = await lab.gateway.handle(request(stream=True))
    pieces = aiter(response.body)
    for number in range(5):
        assert await anext(pieces) == stream.piece(number)
        assert stream.given == number + 1, "the next piece was taken before this one was passed on"
    assert response.close is not None
    await response.close()


# --- The other doors


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
async def all_doors_share_one_limit(make: Make) -> None:
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
    assert url.endswith(".azure-api.net/v1/chat/completions")
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
async def a_door_that_leads_nowhere_says_so(make: Make) -> None:
    lab = make()
    lab.broken_inside = BackendFault("BackendConnectionFailure")
    got = await lab.ask("/bearer/v1/models", say=None, key=None, headers={"Authorization": f"Bearer {KEY}"})
    assert_refused(got, 503, ErrorType.UPSTREAM, "engine_unavailable")
    lab.broken_inside = Failed(413, LastError("forward-request", "RequestTooLarge", "x"))
    got = await lab.ask("/bearer/v1/models", say=None, key=None, headers={"Authorization": f"Bearer {KEY}"})
    assert_refused(got, 400, ErrorType.INVALID_REQUEST, "bad_request")
    assert_refused(await lab.ask("/bearer/v1/x", key=None), 404, ErrorType.NOT_FOUND, "not_found")


@scenario
async def every_door_streams_unbuffered(make: Make) -> None:
    doors = {
        "/bearer/v1/chat/completions": {"Authorization": f"Bearer {KEY}"},
        "/openai/deployments/x/chat/completions": {"api-key": KEY},
    }
    for path, headers in doors.items():
        lab = make()
        stream = held_stream()
        lab.usual = stream.response
        response = await lab.gateway.handle(request(path, key=None, headers=headers, stream=True))
        pieces = aiter(response.body)
        for number in range(3):
            assert await anext(pieces) == stream.piece(number)
            assert stream.given == number + 1
        assert response.close is not None
        await response.close()


@scenario
async def an_outer_policy_holds_for_every_door(make: Make) -> None:
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
