"""Whether the installed Hyperscan library finds what its patterns match.

Vectorscan 5.4.12, which the Python package holds from 0.7.23 to 0.9.1, misses true matches behind some thirty signs
that begin like one; 5.4.11 and Intel's own 5.4.2 find them, as RE2 and `re` do. A log that is read with such a library
would lose its first fault, so it is not used. Of the packages with 5.4.11 those from 0.7.19 on bring a C++ library that
aborts a process which imports torch behind them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_MATCHES = (
    (
        rb'\|\s*(?:Fail|Warn|Skip - All)\b|"status"\s*:\s*"FAIL',
        b"| GPU Memory                | Fail - GPU: 3 |",
    ),
    (
        rb"\[[\d, ]{1,200}\] (?:joined but didn't finish collective #\d|finished collective #\d{1,12}, but)",
        b"|  [ ] finished .....................................[,] joined but didn't finish collective #9.",
    ),
)


class BlindLibraryError(ImportError):
    """The library is installed and misses matches."""


@lru_cache(maxsize=1)
def must_find(hyperscan: Any) -> None:
    """Return where the library finds what it must.

    Raises:
        BlindLibraryError: where it does not.
    """
    for pattern, line in _MATCHES:
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        database.compile(expressions=[pattern], ids=[0], elements=1, flags=[0])
        found: list[int] = []
        database.scan(
            line + b"\n", match_event_handler=lambda at, *_, found=found: found.append(at)
        )
        if not found:
            raise BlindLibraryError(
                f"the installed hyperscan {getattr(hyperscan, '__version__', '')} misses matches: "
                "pip install 'hyperscan<0.7.14'"
            )
