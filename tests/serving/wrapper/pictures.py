"""Images of any size in a few bytes: their headers, with nothing behind them."""

import base64
import struct


def png(width: int, height: int, *between: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [chunk(b"IHDR", head), *between, chunk(b"IDAT", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I4s", len(data), kind) + data + bytes(4)


def jpeg(width: int, height: int, *before: bytes, marker: int = 0xC0) -> bytes:
    frame = segment(marker, struct.pack(">BHHB", 8, height, width, 0))
    return b"\xff\xd8" + b"".join(before) + frame + segment(0xDA, b"")


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def gif(
    width: int, height: int, *before: bytes, at: tuple[int, int] = (0, 0), screen: tuple[int, int] = (1, 1)
) -> bytes:
    return (
        b"GIF89a"
        + struct.pack("<HHBBB", *screen, 0x80, 0, 0)
        + bytes(6)
        + b"".join(before)
        + (struct.pack("<BHHHHB", 0x2C, *at, width, height, 0))
    )


def webp(width: int, height: int, *, kind: bytes = b"VP8X") -> bytes:
    sizes = {
        b"VP8X": bytes(4)
        + (width - 1 & 0xFFFFFF).to_bytes(3, "little")
        + (height - 1 & 0xFFFFFF).to_bytes(3, "little"),
        b"VP8L": b"\x2f" + ((width - 1 & 0x3FFF) | (height - 1 & 0x3FFF) << 14 | 1 << 28).to_bytes(4, "little"),
        b"VP8 ": bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", width & 0x3FFF | 1 << 14, height & 0x3FFF),
    }
    data = sizes[kind]
    return b"RIFF" + bytes(4) + b"WEBP" + kind + struct.pack("<I", len(data)) + data


def data_url(image: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(image).decode()}"


TINY = data_url(png(1, 1))
