"""Loopback and proxies: what child processes and HTTP clients are told."""

import urllib.request

import httpx2
import pytest

from huddle import loopback
from huddle.client.api import Client
from huddle.launch.command import Command


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"no_proxy": "intranet.example"}, "intranet.example,localhost,127.0.0.1,::1"),
        ({"no_proxy": "a", "NO_PROXY": "b"}, "a,b,localhost,127.0.0.1,::1"),
        ({"NO_PROXY": " localhost, 10.0.0.0/8 ,"}, "localhost,10.0.0.0/8,127.0.0.1,::1"),
        ({"no_proxy": "*"}, "*"),
    ],
)
def test_a_child_hears_of_loopback_in_both_spellings(given: dict[str, str], wanted: str) -> None:
    made = loopback.environment({"PATH": "/bin", "http_proxy": "http://proxy:3128", **given})
    assert made["no_proxy"] == made["NO_PROXY"] == wanted
    assert made["PATH"] == "/bin"
    assert made["http_proxy"] == "http://proxy:3128", "everything else still goes through the proxy"
    assert "no_grpc_proxy" not in made


def test_grpcs_own_list_gets_it_too_where_there_is_one() -> None:
    """gRPC then looks into no other."""
    assert loopback.environment({"no_grpc_proxy": "a"})["no_grpc_proxy"] == "a,localhost,127.0.0.1,::1"


def test_doing_it_twice_changes_nothing() -> None:
    once = loopback.environment({"no_proxy": "a"})
    assert loopback.environment(once) == once


def test_pythons_own_reader_and_the_clients_understand_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    for name, value in loopback.environment({}).items():
        monkeypatch.setenv(name, value)
    for host in loopback.HOSTS:
        assert urllib.request.proxy_bypass(host)
    assert not urllib.request.proxy_bypass("example.com")
    with httpx2.Client() as client:
        direct = client._transport_for_url(httpx2.URL("http://[::1]:8000"))
        assert direct is not client._transport_for_url(httpx2.URL("http://example.com"))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "[::1]", "LOCALHOST", "api.localhost"])
def test_loopback_addresses(host: str) -> None:
    assert loopback.is_loopback(f"http://{host}:8000/v1")


@pytest.mark.parametrize("host", ["10.0.0.4", "localhost.example.com", "gateway.azure-api.net", "128.0.0.1", "[::2]"])
def test_other_addresses(host: str) -> None:
    assert not loopback.is_loopback(f"https://{host}/v1")


def test_a_gateway_is_still_asked_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    for url, through in (("https://gateway.azure-api.net/v1", True), ("https://127.0.0.1:8000/v1", False)):
        with Client(url, "key") as client:
            assert client._transport["trust_env"] is through


def test_the_engine_and_its_workers_hear_of_it() -> None:
    made = Command(("vllm",), {"A": "b"}).environment({"http_proxy": "http://proxy:3128", "LD_PRELOAD": "x"})
    assert made["A"] == "b"
    assert "127.0.0.1" in made["no_proxy"]
