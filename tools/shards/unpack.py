"""Packed results of other processes, unpacked within a limit: a small file may unpack to any size."""

from __future__ import annotations

import gzip
import io

LEAST_LIMIT = 64 << 20
_TIMES = 100


def unpack(raw: bytes) -> bytes:
    """Return what gzip bytes hold, 64 MB or 100 times their size at most.

    What rerail writes packs seventeenfold even where the logs of all ranks are alike, a gzip bomb a thousandfold.

    Raises:
        OSError: the bytes are no gzip, or hold more than that.
        EOFError: they are cut off.
    """
    limit = max(LEAST_LIMIT, _TIMES * len(raw))
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        found = stream.read(limit + 1)
    if len(found) > limit:
        raise OSError(f"it unpacks to more than {limit >> 20} MB, which no result of rerail does")
    return found
