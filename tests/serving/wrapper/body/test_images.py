"""What an image unpacks to is read from its header, however it is written, and bounded before the engine has it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.content import Checker
from huddle.wrapper.body.images import pixels
from huddle.wrapper.errors import RequestError
from tests.serving.wrapper.pictures import TINY, chunk, data_url, gif, jpeg, png, segment, webp

CAPS = Caps(media_bytes=3_000, media_pixels=1_000_000)
SIDES = st.integers(1, 2**16 - 1)
SHORT = st.binary(max_size=255)
JPEG_EXTRAS = st.lists(st.builds(segment, st.sampled_from([0xC4, 0xDB, 0xE0, 0xE1, 0xEF, 0xFE]), SHORT), max_size=3)
PNG_EXTRAS = st.lists(st.builds(chunk, st.sampled_from([b"gAMA", b"PLTE", b"tEXt"]), SHORT), max_size=3)
GIF_EXTRAS = st.lists(
    st.binary(min_size=1, max_size=255).map(lambda data: b"\x21\xfe" + bytes([len(data)]) + data + b"\0"), max_size=3
)


@given(st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1), PNG_EXTRAS)
def test_png(width: int, height: int, extras: list[bytes]) -> None:
    assert pixels(png(width, height, *extras)) == width * height


@given(SIDES, SIDES, JPEG_EXTRAS, st.sampled_from([0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCF]))
def test_jpeg(width: int, height: int, extras: list[bytes], marker: int) -> None:
    assert pixels(jpeg(width, height, *extras, b"\xff\xff", marker=marker)) == width * height


@given(SIDES, SIDES, GIF_EXTRAS)
def test_gif(width: int, height: int, extras: list[bytes]) -> None:
    assert pixels(gif(width, height, *extras)) == width * height
    assert pixels(gif(1, 1, *extras, screen=(width, height))) == width * height


@given(st.integers(1, 2**14 - 1), st.integers(1, 2**14 - 1), st.sampled_from([b"VP8L", b"VP8 "]))
def test_webp(width: int, height: int, kind: bytes) -> None:
    assert pixels(webp(width, height, kind=kind)) == width * height


@given(st.integers(1, 2**24), st.integers(1, 2**24))
def test_a_webps_canvas(width: int, height: int) -> None:
    assert pixels(webp(width, height)) == width * height


LARGE: dict[str, bytes] = {
    "a second frame header of a JPEG": jpeg(1, 1, jpeg(50_000, 50_000)[2:-4]),
    "a first frame header of a JPEG": jpeg(50_000, 50_000, jpeg(1, 1)[2:-4]),
    "a GIF's frame outside its screen": gif(1, 1, at=(50_000, 50_000)),
}


@pytest.mark.parametrize("case", LARGE)
def test_the_largest_size_that_a_header_names_counts(case: str) -> None:
    assert (pixels(LARGE[case]) or 0) >= 2_500_000_000


UNREADABLE: dict[str, bytes] = {
    "nothing": b"",
    "a BMP": b"BM" + bytes(60),
    "a TIFF": b"II*\0" + bytes(60),
    "an SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "a PNG of two headers": png(1, 1, chunk(b"IHDR", png(50_000, 50_000)[16:29])),
    "a PNG whose header is not first": png(1, 1)[:8] + chunk(b"gAMA", bytes(4)) + png(1, 1)[8:],
    "a PNG of no height": png(1, 0),
    "a PNG of many small chunks": png(1, 1, *[chunk(b"tEXt", b"")] * 20_000),
    "a JPEG with junk before a segment": jpeg(1, 1, b"junk"),
    "a JPEG whose scan comes first": jpeg(1, 1, segment(0xDA, b"")),
    "a JPEG whose height comes later": jpeg(1, 0),
    "a JPEG of empty segments": jpeg(1, 1, b"\xff\xe0\0\0"),
    "a GIF without a frame": gif(1, 1)[:19] + b";",
    "a RIFF that is a sound": b"RIFF" + bytes(4) + b"WAVEfmt " + bytes(40),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_is_no_header_has_no_size(case: str) -> None:
    assert pixels(UNREADABLE[case]) is None


@given(st.sampled_from([png(3, 5), jpeg(3, 5), gif(3, 5), webp(3, 5)]), st.integers(0, 60), SHORT)
def test_damaged_headers_are_sizes_or_none(image: bytes, at: int, put: bytes) -> None:
    found = pixels(image[:at] + put)
    assert found is None or found > 0


def parts(*urls: str) -> list[dict[str, Any]]:
    return [{"type": "image_url", "image_url": {"url": url}} for url in urls]


def refusal(*urls: str) -> RequestError:
    with pytest.raises(RequestError) as refused:
        Checker(CAPS, ()).messages([{"role": "user", "content": parts(*urls)}])
    assert refused.value.status == 400
    return refused.value


MAKERS: list[Callable[[int, int], bytes]] = [png, jpeg, gif, webp]


@pytest.mark.parametrize("make", MAKERS)
def test_pixels_of_one_request_are_bounded_together(make: Callable[[int, int], bytes]) -> None:
    half = data_url(make(1_000, 500), "IMAGE/x")
    content = parts(half, half)
    assert Checker(CAPS, ()).messages([{"role": "user", "content": content}])[0]["content"] == content
    assert refusal(half, half, TINY).message == (
        "1000001 pixels in the images of one request; at most 1000000 are allowed here"
    )


def test_bytes_of_an_image_are_bounded_exactly() -> None:
    for padding in range(3):
        room = CAPS.media_bytes - padding
        fits = png(1, 1) + bytes(room - len(png(1, 1)))
        Checker(CAPS, ()).messages([{"role": "user", "content": parts(data_url(fits))}])
    assert refusal(data_url(fits + bytes(3))).message == (
        "3001 bytes in 'messages[0].content[0].image_url'; at most 3000 are allowed here"
    )


@pytest.mark.parametrize(
    "url",
    [
        "data:,",
        "data:image/png;base64",
        TINY.replace(";base64", ""),
        TINY.replace(";base64", ";charset=x;base64"),
        TINY.replace(",", ", "),
        TINY + "!",
        data_url(png(1, 1) + b"x") + "AAAA",
        data_url(UNREADABLE["a BMP"]),
        TINY.replace(",", ",é"),
    ],
)
def test_what_the_engine_would_not_read_is_refused(url: str) -> None:
    assert "must be a PNG, JPEG, GIF or WebP image in base64" in refusal(url).message


def test_images_in_items_of_responses_are_judged_too() -> None:
    part = {"type": "input_image", "image_url": data_url(png(50_000, 50_000))}
    for item in (
        {"role": "user", "content": [part]},
        {"type": "function_call_output", "call_id": "c", "output": [part]},
    ):
        with pytest.raises(RequestError, match="2500000000 pixels"):
            Checker(CAPS, ()).input_items([item])
