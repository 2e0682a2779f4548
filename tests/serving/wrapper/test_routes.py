"""Routes of the engine that a model or a product does not offer."""

from typing import Any

import pytest

from huddle.wrapper.routes import EngineRoute, Route

from .conftest import BACKEND_KEY, MakeWrapper
from .fake_engine import MODEL

pytestmark = pytest.mark.anyio

BODIES: dict[EngineRoute, dict[str, Any]] = {
    EngineRoute.CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    EngineRoute.COMPLETIONS: {"prompt": "hi"},
    EngineRoute.RESPONSES: {"input": "hi"},
    EngineRoute.EMBEDDINGS: {"input": "hi"},
}
TEAM = {"x-huddle-product": "team"}


def path(word: EngineRoute) -> str:
    return Route[word.name].value


@pytest.mark.parametrize("off", EngineRoute)
@pytest.mark.parametrize(
    ("whose", "status", "kind"), [("model", 404, "not_found_error"), ("product", 403, "permission_error")]
)
async def test_a_route_that_is_off(
    make_wrapper: MakeWrapper, off: EngineRoute, whose: str, status: int, kind: str
) -> None:
    left = {"routes": [word for word in EngineRoute if word is not off]}
    whole = {"models": {MODEL: {}}, "products": {"team": {}}}
    wrapper = await make_wrapper(
        **whole | ({"models": {MODEL: left}} if whose == "model" else {"products": {"team": left}})
    )
    for word, body in BODIES.items():
        answer = await wrapper.http.post(path(word), json={"model": MODEL, **body}, headers=TEAM)
        if word is not off:
            assert answer.status_code not in (403, 404)
            continue
        allowed = ", ".join(each for each in Route if each in map(path, left["routes"]))
        assert answer.status_code == status
        assert answer.json()["error"] == {
            "message": f"this {whose} does not offer {path(off)}; allowed: {allowed}",
            "type": kind,
            "param": None,
            "code": "route_not_offered",
        }
    assert path(off) not in [request.path for request in wrapper.engine.completions]


async def test_other_products_and_callers_without_one_keep_their_routes(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(products={"team": {"routes": ["responses"]}, "other": {}})
    for headers, status in ((TEAM, 403), ({"x-huddle-product": "other"}, 200), ({}, 200)):
        assert (await wrapper.chat(headers=headers)).status_code == status


async def test_a_products_routes_are_judged_before_its_body_is_there(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(products={"team": {"routes": ["chat"]}})
    head = (
        f"POST /v1/responses HTTP/1.1\r\nhost: a\r\nx-backend-key: {BACKEND_KEY}\r\nx-huddle-product: team\r\n"
        "content-type: application/json\r\ncontent-length: 100\r\n\r\n"
    )
    assert (await wrapper.raw(head.encode())).startswith(b"HTTP/1.1 403")


async def test_a_model_refuses_with_what_the_product_has_too(make_wrapper: MakeWrapper) -> None:
    """Every route that the sentence names can be used."""
    models = {MODEL: {"routes": ["completions", "responses"]}}
    wrapper = await make_wrapper(models=models, products={"team": {"routes": ["chat", "responses"]}})
    answer = await wrapper.chat(headers=TEAM)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].endswith("; allowed: /v1/responses")


async def test_a_model_without_any_of_the_products_routes_is_unknown_to_it(make_wrapper: MakeWrapper) -> None:
    models = {MODEL: {}, "vectors": {"routes": ["embeddings"]}}
    wrapper = await make_wrapper(models=models, products={"team": {"routes": ["chat"]}})
    listed = (await wrapper.http.get("/v1/models", headers=TEAM)).json()["data"]
    assert [card["id"] for card in listed] == [MODEL]
    answer = await wrapper.chat(model="vectors", headers=TEAM)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
