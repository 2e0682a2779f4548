"""Keep one GPU architecture in a CUDA library: the machine code of the others is overwritten with zeros.

Zeros compress to nothing, so the library travels in a tenth of its size; sizes and offsets inside it stay as they were.
The layout is that of NVIDIA's fat binaries as `cuobjdump` shows it: a container (magic, version, header size, length),
and in it entries, each with its kind (1: PTX, 2: machine code), header size, payload size and architecture.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_CONTAINER = struct.pack("<IHH", 0xBA55ED50, 1, 16)
_ENTRY = struct.Struct("<HHIQIIHHI")
_MACHINE_CODE = 2


@dataclass(frozen=True)
class Entry:
    """Code for one architecture: where its payload lies in the file."""

    kind: int
    architecture: int
    begin: int
    end: int


def entries(data: bytes) -> Iterator[Entry]:
    """Every entry of every container in a library."""
    at = data.find(_CONTAINER)
    while at >= 0:
        (length,) = struct.unpack_from("<Q", data, at + 8)
        end = at + 16 + length
        at += 16
        while at < end:
            kind, _, header, payload, *_, architecture = _ENTRY.unpack_from(data, at)
            yield Entry(kind, architecture, at + header, at + header + payload)
            at += header + payload
        at = data.find(_CONTAINER, end)


def keep(data: bytes, architecture: int) -> bytes:
    """The library with machine code for one architecture only. Same length.

    PTX goes, too: it is compiled only where there is no machine code that fits.
    """
    kept = bytearray(data)
    for entry in entries(data):
        if (entry.kind, entry.architecture) != (_MACHINE_CODE, architecture):
            kept[entry.begin : entry.end] = bytes(entry.end - entry.begin)
    return bytes(kept)
