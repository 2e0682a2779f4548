"""What the first API promises: who may pass, what is sent, what errors look like, that streams flow."""

from __future__ import annotations

from huddle.wrapper.errors import ErrorType
from simulator.apim_policies.exchange import BackendFault, Failed, LastError

from .lab import (
    ALL_ACCESS_KEY,
    API_KEY,
    BACKEND_KEY,
    IDLE_KEY,
    KEY,
    ORIGIN,
    OTHER_KEY,
    answer,
    held_stream,
    request,
)
from .promises import NODES, OUTER, Make, assert_refused, scenario


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
async def the_hash_of_a_prompt_stays_behind_the_gateway(make: Make) -> None:
    lab = make()
    lab.usual = answer(200, headers={"x-huddle-prompt-id": "p", "x-huddle-prompt-sha256": "5" * 64})
    got = await lab.ask()
    assert got.headers.get("X-Huddle-Prompt-Id") == "p"
    assert got.headers.get("X-Huddle-Prompt-Sha256") is None


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
async def a_node_that_restarts_is_asked_until_its_breaker_opens(make: Make) -> None:
    """The pool may pick it each time; the third refusal opens its breaker, and the fourth try goes elsewhere."""
    lab = make()
    refused = answer(503, b'{"error": {"code": "going_away"}}', {"Retry-After": "30"})
    lab.replies = [refused] * 3
    assert (await lab.ask()).status == 200
    assert (len(lab.sent), lab.slept) == (4, [1, 1])
    lab = make()
    lab.replies = [refused] * 4
    got = await lab.ask()
    assert (got.status, got.error["code"], len(lab.sent)) == (503, "going_away", 4)


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
    lab.replies = [Failed(429, LastError("forward-request", "TooMany", "without a Retry-After"))]
    assert (await lab.ask()).headers.get("Retry-After") == "60"


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
    chunks = aiter(response.body)
    for number in range(5):
        assert await anext(chunks) == stream.chunk(number)
        assert stream.given == number + 1, "the next chunk was taken before this one was passed on"
    assert response.close is not None
    await response.close()
