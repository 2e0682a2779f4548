"""F18: a prefix of a URL holds for its path, too, however the engine reads the URL."""

from pathlib import Path
from typing import Any

import pytest

from huddle.wrapper import config
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.content import Checker
from huddle.wrapper.errors import RequestError

CHECKER = Checker(Caps(), ("https://cdn.example/images/",))


def checked(url: str) -> Any:
    part = {"type": "image_url", "image_url": {"url": url}}
    return CHECKER.messages([{"role": "user", "content": [part]}])[0]["content"][0]["image_url"]["url"]


@pytest.mark.parametrize("path", ["a.png", "b/c.v1..2/d.png?size=2", "...png", ".well/x", "%C3%A9.png"])
def test_what_lies_under_a_prefix_is_allowed(path: str) -> None:
    assert checked(f"https://cdn.example/images/{path}") == f"https://cdn.example/images/{path}"


def test_a_host_means_the_same_in_any_case(tmp_path: Path) -> None:
    assert checked("HTTPS://CDN.Example/images/A.png") == "HTTPS://CDN.Example/images/A.png"
    file = tmp_path / "wrapper.yaml"
    file.write_text("models: {tiny: {}}\nmedia_url_prefixes: ['HTTPS://CDN.Example/Images/']\n")
    assert config.load(file, {}).media_url_prefixes == ("https://cdn.example/Images/",)


UPWARDS = [
    "../secret",
    "%2e%2e/secret",
    ".%2E/secret",
    "..%2fsecret",
    "..\\secret",
    "a/../../secret",
    "..",
    "./..?x",
    "..;/x",
]
OTHERS = ["%252e%252e/x", "%5c..%5cx", "\t../x", "é/x", " ../x", "a\n/../x"]
HOSTS = [
    *("https://cdn.example@evil/images/a", "https://cdn.example:1/images/a", "HTTPS://CDN.example/IMAGES/a", "//x"),
    *("https://evil?https://cdn.example/images/a", "https://cdn.example#@evil/images/a"),
]


@pytest.mark.parametrize(
    "url", [*(f"https://cdn.example/images/{path}" for path in UPWARDS + OTHERS), *HOSTS, "file:///etc/passwd"]
)
def test_f18_what_another_reader_finds_elsewhere_is_not(url: str) -> None:
    with pytest.raises(RequestError) as refused:
        checked(url)
    assert refused.value.code == "media_url_not_allowed"
