"""The bounds of a request's headers hold before its end, and for its trailers."""

import pytest

from huddle.wrapper.errors import RequestError
from huddle.wrapper.http.http1 import HttpLimits, RequestReader

START = b"POST /v1/chat/completions HTTP/1.1\r\n"
HOST = b"host: a\r\n"
CHUNKED = START + HOST + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
LIMITS = HttpLimits(max_head_bytes=4_096, max_headers=16)


@pytest.mark.parametrize("before", [START, CHUNKED], ids=["head", "trailers"])
@pytest.mark.parametrize(("size", "count"), [(1, 18), (1_000, 6)], ids=["many", "long"])
@pytest.mark.parametrize("end", [b"", HOST + b"\r\n"], ids=["open", "ended"])
def test_too_many_or_too_long_headers(before: bytes, size: int, count: int, end: bytes) -> None:
    reader = RequestReader(LIMITS)
    with pytest.raises(RequestError) as refused:
        reader.feed(before + b"".join(b"x%d: %b\r\n" % (i, b"a" * size) for i in range(count)) + end)
    assert (refused.value.status, reader.complete) == (431, False)
    assert len(reader.head.headers) <= LIMITS.max_headers


def test_the_next_request_s_headers_are_not_this_one_s() -> None:
    reader = RequestReader(LIMITS)
    reader.feed(CHUNKED + b"\r\n" + START + HOST + b"x: a\r\n" * 100)
    assert (reader.complete, reader.extra) == (True, True)
    assert reader.head.headers.keys() == {b"host", b"transfer-encoding"}
