"""Patterns of a module that are compiled when one first looks for them: a start compiles what its log needs."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

from rerail.kept_patterns import kept_pattern


def lazy(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what stands for `re.compile(pattern, flags)`; it has the methods of a pattern, and its text."""
    return cast("re.Pattern[AnyStr]", LazyPattern(pattern, flags))


class LazyPattern:
    """A pattern that is compiled when a method of it is first asked for."""

    def __init__(self, pattern: Any, flags: int = 0) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # Asked only for what is not there yet, so the second call of a method costs what it always does.
        found = getattr(kept_pattern(self.pattern, self._flags), name)
        if not name.startswith("__"):
            setattr(self, name, found)
        return found
