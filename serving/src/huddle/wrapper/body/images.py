"""How many pixels an image unpacks to, read from its header: a few kilobytes can be gigabytes.

A header may name several sizes; the largest counts, since readers differ in which they believe. What stands where the
format has nothing is no header.
"""

import struct
from collections.abc import Iterator
from struct import unpack_from
from typing import Final

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_BLOCKS_MAX: Final = 10_000
_JPEG_SIZES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15 without DHT, JPG, DAC
_JPEG_SEGMENTS: Final = _JPEG_SIZES | {0xC4, 0xCC} | frozenset(range(0xDB, 0xF0)) | {0xFE}
_JPEG_SCAN: Final = 0xDA


def pixels(data: bytes) -> int | None:
    """The pixels of a PNG, JPEG, GIF or WebP image (its first frame); None when no such header can be read."""
    for signature, sizes in _FORMATS:
        if data.startswith(signature):
            try:
                return max((width * height for width, height in sizes(data)), default=0) or None
            except (struct.error, IndexError, ValueError):
                return None
    return None


def _png(data: bytes) -> Iterator[tuple[int, int]]:
    """ISO/IEC 15948: chunks of length, type, data, checksum; IHDR is the first."""
    at = len(_PNG)
    for block in range(_BLOCKS_MAX):
        length, kind = unpack_from(">I4s", data, at)
        if (kind == b"IHDR") != (block == 0):
            raise ValueError
        if kind == b"IDAT":
            return
        if block == 0:
            yield unpack_from(">II", data, at + 8)
        at += 12 + length
    raise ValueError


def _jpeg(data: bytes) -> Iterator[tuple[int, int]]:
    """ITU-T T.81: segments of marker, length, data; one of them is the frame header, the scan ends them."""
    at = 2
    for _ in range(_BLOCKS_MAX):
        fill, marker, length = unpack_from(">BBH", data, at)
        if fill != 0xFF:
            raise ValueError
        if marker == 0xFF:  # any number of these may stand before a marker
            at += 1
            continue
        if marker == _JPEG_SCAN:
            return
        if marker not in _JPEG_SEGMENTS or length < 2:
            raise ValueError
        if marker in _JPEG_SIZES:
            yield unpack_from(">HH", data, at + 5)
        at += 2 + length
    raise ValueError


def _gif(data: bytes) -> Iterator[tuple[int, int]]:
    """GIF89a: the screen, then blocks up to the first frame, by which some readers enlarge the screen."""
    width, height, flags = unpack_from("<HHB", data, 6)
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    inside = False
    for _ in range(_BLOCKS_MAX):
        if inside:
            inside = data[at] > 0
            at += 1 + data[at]
        elif data[at] == 0x21:
            inside, at = True, at + 2
        elif data[at] == 0x2C:
            left, top, wide, high = unpack_from("<HHHH", data, at + 1)
            yield max(width, left + wide), max(height, top + high)
            return
        else:
            break
    raise ValueError


def _webp(data: bytes) -> Iterator[tuple[int, int]]:
    """RFC 9649: the first chunk names the canvas (VP8X), or is the image in VP8 or VP8L."""
    form, kind = unpack_from("4s4s", data, 8)
    if form != b"WEBP":
        raise ValueError
    if kind == b"VP8X":
        sizes = int.from_bytes(data[24:30], "little")
        unpack_from("6x", data, 24)
        yield (sizes & 0xFFFFFF) + 1, (sizes >> 24) + 1
    elif kind == b"VP8L":
        signature, sizes = unpack_from("<BI", data, 20)
        if signature != 0x2F:
            raise ValueError
        yield (sizes & 0x3FFF) + 1, (sizes >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        start, width, height = unpack_from("<3sHH", data, 23)
        if start != b"\x9d\x01\x2a":
            raise ValueError
        yield width & 0x3FFF, height & 0x3FFF


_FORMATS: Final = (
    (_PNG, _png),
    (b"\xff\xd8\xff", _jpeg),
    (b"GIF87a", _gif),
    (b"GIF89a", _gif),
    (b"RIFF", _webp),
)
