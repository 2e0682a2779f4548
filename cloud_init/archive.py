"""Archives that are the same bytes for the same files, on any machine and on any day."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Mapping

_EPOCH = 0
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


def tar_xz(files: Mapping[str, bytes], executables: frozenset[str] = frozenset()) -> bytes:
    """A .tar.xz of relative path -> content: sorted, owned by root, dated 1970, with directories implied by paths."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size = len(files[path])
            entry.mtime = _EPOCH
            entry.mode = 0o755 if path in executables else 0o644
            archive.addfile(entry, io.BytesIO(files[path]))
    return lzma.compress(tar.getvalue(), check=lzma.CHECK_CRC32, filters=_FILTERS)
