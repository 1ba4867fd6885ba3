"""Compiled patterns kept between starts: compiling them is the largest part of a small diagnosis.

What is kept is what CPython's `re` makes of a pattern before its last step, so a start has only that step to do.
It belongs to one version of the interpreter; where `re` looks different inside, patterns are compiled as always.
"""

from __future__ import annotations

import os
import re
import sys
from array import array
from binascii import a2b_base64, b2a_base64
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, AnyStr
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MOST = 600  # patterns; a start asks for 250 to 400, and reads all that is kept: each costs it 20 microseconds
# What is raised where the inside of `re`, or what was kept of it, is not what this code knows.
_LOOKS_DIFFERENT = (
    ImportError,
    AttributeError,
    TypeError,
    LookupError,
    ArithmeticError,
    ValueError,
    RuntimeError,
)
_keeper: Keeper | None = None


def kept_pattern(
    pattern: AnyStr, flags: int = 0, change: Callable[[Any], None] | None = None
) -> re.Pattern[AnyStr]:
    """Return what `re.compile` returns, kept from an earlier start where the command keeps patterns.

    It is for patterns of rerail and its data: one that is made of a log's words would only fill the file.

    Args:
        pattern: the pattern.
        flags: those of `re`.
        change: changes what `re` has parsed before it is compiled; the result has no text of its own.

    Raises:
        re.error: when the pattern is not valid.
    """
    if _keeper is None:
        return _compiled(pattern, flags, change)
    return _keeper.compiled(pattern, int(flags), change)


def keep_in(folder: Callable[[], Path]) -> Keeper:
    """Keep the patterns of this process in a file of a folder, which is asked for when the first one is compiled."""
    global _keeper
    _keeper = Keeper(folder)
    return _keeper


class Keeper:
    """The patterns of one file of the cache."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._held: dict[str, Any] | None = None
        self._asked: dict[str, None] = {}
        self._made: dict[str, Any] = {}

    def compiled(
        self, pattern: AnyStr, flags: int, change: Callable[[Any], None] | None
    ) -> re.Pattern[AnyStr]:
        """Return a pattern, from the file where it was kept; raises `re.error` where it is not valid."""
        if self._held is None:
            self._held = self._read()
        key = f"{flags}|{pattern!r}" if change is None else f"{_code(change)}|{flags}|{pattern!r}"
        self._asked[key] = None
        parts = self._held.get(key)
        with suppress(*_LOOKS_DIFFERENT):
            if parts is None:
                parts = _before_last_step(_parsed(pattern, flags, change), flags)
                self._held[key] = self._made[key] = parts
            return _last_step(pattern if change is None else None, *parts)
        return _compiled(pattern, flags, change)

    def save(self) -> None:
        """Write what was compiled anew beside what the file holds by now; if that fails, a later start compiles it.

        Of more than are of use those go that were asked for longest ago; who asks for more than are kept, as the tests
        of all rules do, is no diagnosis and keeps none.
        """
        if self._made and len(self._asked) <= _MOST:
            import json

            from rerail.cached_yaml import write_whole

            known = self._read() | self._made
            latest = {key: known[key] for key in self._asked if key in known}
            older = {key: parts for key, parts in known.items() if key not in latest}
            kept = [*older.items(), *latest.items()][-_MOST:]
            content = json.dumps(dict(kept)).encode()
            write_whole(self._file(), b"%08x\n" % crc32(content) + content)
            self._made = {}

    def _read(self) -> dict[str, Any]:
        import json

        # A flipped bit in a pattern would be a line that is not found: the sum tells it.
        try:
            summed, _, content = self._file().read_bytes().partition(b"\n")
            held = json.loads(content) if int(summed, 16) == crc32(content) else {}
        except (OSError, ValueError):
            return {}
        return held if isinstance(held, dict) else {}

    def _file(self) -> Path:
        # Two builds of one version may differ in what `re` makes; `MAGIC` is the number of that form.
        import _sre  # type: ignore[import-not-found]

        version = f"{sys.implementation.cache_tag}-{sys.hexversion:x}-{_sre.MAGIC}"
        return self._folder() / f"patterns-{version}.json"


def _compiled(
    pattern: AnyStr, flags: int, change: Callable[[Any], None] | None
) -> re.Pattern[AnyStr]:
    if change is None:
        return re.compile(pattern, flags)
    from re import _compiler  # type: ignore[attr-defined]

    return _compiler.compile(_parsed(pattern, flags, change), flags)  # type: ignore[no-any-return]


def _parsed(pattern: str | bytes, flags: int, change: Callable[[Any], None] | None) -> Any:
    from re import _parser  # type: ignore[attr-defined]

    tree = _parser.parse(pattern, flags)
    if change is not None:
        change(tree)
    return tree


def _before_last_step(tree: Any, flags: int) -> list[Any]:
    """Return flags, steps, the number of groups and their names, as `re._compiler.compile` makes them."""
    from re import _compiler  # type: ignore[attr-defined]

    steps = array("I", _compiler._code(tree, flags)).tobytes()
    state = tree.state
    kept = b2a_base64(steps, newline=False).decode()
    return [flags | state.flags, kept, state.groups - 1, dict(state.groupdict)]


def _last_step(
    pattern: AnyStr | None, flags: int, kept: str, groups: int, numbers: dict[str, int]
) -> re.Pattern[AnyStr]:
    import _sre

    names: list[str | None] = [None] * (groups + 1)
    for name, number in numbers.items():
        names[number] = name
    steps = array("I", a2b_base64(kept)).tolist()
    return _sre.compile(pattern, flags, steps, groups, numbers, tuple(names))  # type: ignore[no-any-return]


@lru_cache(maxsize=8)
def _code(change: Callable[[Any], None]) -> str:
    """Return what is another text once the file of a function has changed."""
    stat = os.stat(change.__code__.co_filename)
    return f"{change.__qualname__}|{stat.st_size}|{stat.st_mtime_ns}"
