"""Who is let in, to what, and that nothing of a key is ever written down."""

import json

import httpx
import pytest

from huddle.wrapper.access.auth import Caller, Keyring, Via, cache_salt, new_key, read_backend_keys
from huddle.wrapper.config import ConfigError, ProductConfig
from huddle.wrapper.http.http1 import Head
from tests.serving.wrapper.conftest import BACKEND_KEY, MakeWrapper, Wrapper
from tests.serving.wrapper.fake_engine import MODEL
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
ALLOWED = {
    ("GET", "/v1/models"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/responses"),
    ("GET", "/health"),
    ("GET", "/ready"),
}
# What vLLM has besides (real_vllm/test_routes.py takes a live list from the engine), and ways to write a path.
HIDDEN = [
    "/metrics",
    "/tokenize",
    "/detokenize",
    "/version",
    "/docs",
    "/openapi.json",
    "/ping",
    "/load",
    "/pause",
    "/resume",
    "/sleep",
    "/wake_up",
    "/reset_prefix_cache",
    "/collective_rpc",
    "/v1/load_lora_adapter",
    "/v1/audio/transcriptions",
    "/v1/messages",
    "/v1/responses/resp_1",
    "/v1/models/tiny",
    "/pooling",
    "/score",
    "/rerank",
    "/",
    "//v1/models",
    "/v1/models/",
    "/v1//models",
    "/V1/models",
    "/v1/../v1/models",
    "/%76%31/models",
    "/v1%2fmodels",
    "/v1/models;x",
    "/v1/models%00",
    "/./v1/models",
]


@pytest.mark.parametrize("path", HIDDEN)
async def test_everything_else_is_404_for_everybody(wrapper: Wrapper, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        for key in (BACKEND_KEY, "wrong-wrong-wrong"):
            request = f"{method} {path} HTTP/1.1\r\nhost: a\r\nx-backend-key: {key}\r\nconnection: close\r\n\r\n"
            answer = await wrapper.raw(request.encode())
            assert answer.startswith(b"HTTP/1.1 404"), (method, path, answer)
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "not_found_error"
    assert wrapper.engine.completions == []


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "POST"])
async def test_methods(wrapper: Wrapper, method: str) -> None:
    for good, path in ALLOWED:
        if method != good:
            answer = await wrapper.http.request(method, path)
            assert answer.status_code == 405
            assert good in answer.headers["allow"]


async def test_health_and_readiness_need_no_key(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{wrapper.port}", timeout=scaled(10)) as nobody:
        assert (await nobody.get("/health")).json() == {"status": "ok"}
        await wrapper.until(lambda: wrapper.service.engines.problem is None)
        assert (await nobody.get("/ready")).status_code == 200
        for method, path in sorted(ALLOWED - {("GET", "/health"), ("GET", "/ready")}):
            answer = await nobody.request(method, path)
            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_readiness_follows_the_engine(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(models={"other": {}})
    await wrapper.until(lambda: wrapper.service.engines.problem != "the engine has not been asked yet")
    answer = await wrapper.http.get("/ready")
    assert (answer.status_code, answer.json()["reason"]) == (503, "the engine does not serve other")


async def test_models_are_those_of_the_product(make_wrapper: MakeWrapper) -> None:
    key, digest = new_key()
    products = {"team": {"models": ["b"], "keys": [{"name": "alice", "sha256": digest}]}}
    wrapper = await make_wrapper(models={"a": {}, "b": {"upstream_model": MODEL}}, products=products)
    await wrapper.until(lambda: wrapper.service.runtime.preparers[""].served["b"].max_model_len == 4096)
    whole = (await wrapper.http.get("/v1/models")).json()
    assert [card["id"] for card in whole["data"]] == ["a", "b"]
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{wrapper.port}", headers={"authorization": f"Bearer {key}"}, timeout=scaled(10)
    ) as alice:
        assert [card["id"] for card in (await alice.get("/v1/models")).json()["data"]] == ["b"]
        assert (await alice.post("/v1/chat/completions", json={**CHAT, "model": "a"})).status_code == 404
        assert (await alice.post("/v1/chat/completions", json={**CHAT, "model": "b"})).status_code == 200
    assert wrapper.engine.completions[0].json["model"] == MODEL


async def test_the_product_header_counts_only_beside_the_backend_key(make_wrapper: MakeWrapper, tmp_path) -> None:
    key, digest = new_key()
    (tmp_path / "gold.txt").write_text("Gold prompt.")
    products = {
        "gold": {"system_prompt_file": tmp_path / "gold.txt"},
        "plain": {"keys": [{"name": "alice", "sha256": digest}]},
    }
    wrapper = await make_wrapper(products=products)
    answer = await wrapper.chat(headers={"x-huddle-product": "gold"})
    assert answer.headers["x-huddle-prompt-id"] == "gold+test-prompt"
    assert wrapper.engine.completions[-1].json["messages"][0]["content"].startswith("Gold prompt.\n\n")
    assert (await wrapper.chat(headers={"x-huddle-product": "none"})).status_code == 403
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{wrapper.port}", timeout=scaled(10)) as client:
        headers = {"authorization": f"Bearer {key}", "x-huddle-product": "gold", "x-huddle-tenant": "bob"}
        answer = await client.post("/v1/chat/completions", json=CHAT, headers=headers)
        assert answer.headers["x-huddle-prompt-id"] == "test-prompt"
        assert wrapper.request_lines()[-1]["tenant"] == "alice"
        wrong = {"x-backend-key": "wrong-wrong-wrong-wrong", "authorization": f"Bearer {key}"}
        assert (await client.post("/v1/chat/completions", json=CHAT, headers=wrong)).status_code == 401


async def test_tenants_have_salts_of_their_own(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(products={"team": {}})
    salts = []
    for tenant in ("a", "b", "a"):
        await wrapper.chat(headers={"x-huddle-product": "team", "x-huddle-tenant": tenant}, cache_salt="mine")
        salts.append(wrapper.engine.completions[-1].json["cache_salt"])
    assert salts[0] == salts[2] != salts[1]
    assert "mine" not in salts
    assert all(len(salt) == 32 and salt.isalnum() for salt in salts)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer  x"},
        {"authorization": "Basic YTpi"},
        {"authorization": f"Bearer {BACKEND_KEY}"},  # the gateway's key is not a subscriber's
        {"x-backend-key": ""},
        {"x-backend-key": BACKEND_KEY[:-1]},
        {"x-backend-key": BACKEND_KEY + "x"},
        {"x-backend-key": BACKEND_KEY.upper()},
        {"api-key": BACKEND_KEY},
        {"cookie": f"x-backend-key={BACKEND_KEY}"},
    ],
)
async def test_no_or_wrong_keys(wrapper: Wrapper, headers: dict[str, str]) -> None:
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{wrapper.port}", headers=headers, timeout=scaled(10)
    ) as client:
        for path in ("/v1/chat/completions", f"/v1/chat/completions?key={BACKEND_KEY}&x-backend-key={BACKEND_KEY}"):
            answer = await client.post(path, json=CHAT)
            assert answer.status_code == 401
            assert BACKEND_KEY not in answer.text
    assert wrapper.engine.completions == []


async def test_keys_and_prompts_are_never_written_down(make_wrapper: MakeWrapper) -> None:
    """One unmistakable word through every place where a secret can be put; it must be nowhere in log and metrics."""
    canary = "canary7f3a9"
    key, digest = new_key()
    wrapper = await make_wrapper(prompt=f"prompt {canary}", products={"t": {"keys": [{"name": "a", "sha256": digest}]}})
    base = f"http://127.0.0.1:{wrapper.port}"
    async with httpx.AsyncClient(base_url=base, timeout=scaled(10)) as client:
        for headers in (
            {"x-backend-key": f"{canary}-{canary}"},
            {"authorization": f"Bearer {canary}"},
            {"x-backend-key": BACKEND_KEY, "x-huddle-product": canary},
            {"x-backend-key": BACKEND_KEY, "authorization": f"Bearer {canary}"},
            {"authorization": f"Bearer {key}"},
            {"x-request-id": f"{canary} {BACKEND_KEY}", "x-backend-key": BACKEND_KEY},
        ):
            for body in (
                {**CHAT, "messages": [{"role": "user", "content": canary}]},
                {**CHAT, "messages": [{"role": canary, "content": canary}]},
                {**CHAT, "model": canary},
                {**CHAT, canary: canary},
                [canary],
            ):
                for path in ("/v1/chat/completions", f"/v1/chat/completions?key={key}&c={canary}", f"/{canary}"):
                    await client.post(path, json=body, headers=headers)
    await wrapper.raw(f"GET /{canary} HTTP/1.1\r\n{canary}\r\n\r\n".encode())
    await wrapper.raw(f"POST /v1/chat/completions HTTP/1.1\r\nhost: {canary}\r\nx: {key}\r\n y\r\n\r\n".encode())
    wrapper.log_lines()
    written = wrapper.log.getvalue().decode() + wrapper.metrics()
    for secret in (canary, key, BACKEND_KEY):
        assert secret not in written


def test_the_keys_file(tmp_path) -> None:
    file = tmp_path / "keys"
    file.write_text("# the gateway's\n\n  first-key-0123456789  \nsecond-key-0123456789\n")
    assert read_backend_keys(file) == ["first-key-0123456789", "second-key-0123456789"]
    keyring = Keyring(read_backend_keys(file), {}, authentication=True)
    for key in ("first-key-0123456789", "second-key-0123456789"):
        keyring.identify(Head(headers={b"x-backend-key": key.encode()}))
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "huddle-backend-keys").write_text("third-key-0123456789\n")
    assert read_backend_keys(None, {"CREDENTIALS_DIRECTORY": str(credentials)}) == ["third-key-0123456789"]
    assert read_backend_keys(None, {}) == []
    for bad in ("short", "has spaces in it 0123456789", "ümläut-0123456789-key"):
        file.write_text(bad)
        with pytest.raises(ConfigError) as refused:
            read_backend_keys(file)
        assert bad not in str(refused.value)
    file.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        read_backend_keys(file)
    with pytest.raises(ConfigError, match="cannot read"):
        read_backend_keys(tmp_path / "none")


def test_own_keys_are_kept_as_hashes() -> None:
    key, digest = new_key()
    assert key.startswith("hk-")
    assert len(key) > 40
    keyring = Keyring([], {"p": ProductConfig(keys=({"name": "a", "sha256": digest},))}, authentication=True)
    assert keyring.identify(Head(headers={b"authorization": f"bearer {key}".encode()})).tenant == "a"
    assert key not in repr(vars(keyring))


def test_salts_depend_on_the_secret() -> None:
    keyring = Keyring(["k" * 20], {"p": ProductConfig()}, authentication=True)
    caller = keyring.identify(Head(headers={b"x-backend-key": b"k" * 20, b"x-huddle-product": b"p"}))
    assert cache_salt(b"one", caller) != cache_salt(b"two", caller)


def test_a_key_and_a_tenant_of_the_same_name_are_two_callers() -> None:
    own, tenant = Caller(Via.OWN_KEY, "team", "alice"), Caller(Via.GATEWAY, "team", "alice")
    assert own.holder != tenant.holder
    assert cache_salt(b"secret", own) != cache_salt(b"secret", tenant)


def test_long_names_of_tenants_stay_apart() -> None:
    keyring = Keyring(["k" * 16], {}, authentication=True)

    def tenant(name: str) -> str:
        return keyring.identify(Head(headers={b"x-backend-key": b"k" * 16, b"x-huddle-tenant": name.encode()})).tenant

    names = [tenant("t" * 128 + end) for end in ("", "a", "b")]
    assert len({*names, *map(tenant, names)}) == 6
    assert all(len(name) <= 128 for name in names)
    assert tenant("alice") == "alice"
