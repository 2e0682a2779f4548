"""Archives that are the same bytes for the same files, on any machine and on any day."""

from __future__ import annotations

import bz2
import io
import tarfile
from collections.abc import Mapping

_EPOCH = 0


def pack(files: Mapping[str, bytes], executables: frozenset[str] = frozenset()) -> bytes:
    """An archive of relative path -> content: sorted, owned by root, dated 1970, with directories implied by paths.

    bzip2: as small as xz on a bundle's text, five times faster, and its output has not changed between releases of the
    library for twenty years, while zlib's and liblzma's may.
    """
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size = len(files[path])
            entry.mtime = _EPOCH
            entry.mode = 0o755 if path in executables else 0o644
            archive.addfile(entry, io.BytesIO(files[path]))
    return bz2.compress(tar.getvalue())
