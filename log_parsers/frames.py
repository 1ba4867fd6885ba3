"""Who wrote a line of several frames: a progress bar is drawn anew behind carriage returns, and others write behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import LogLine
from rerail.lazy_patterns import lazy
from rerail.log_parsers.labels import PATH
from rerail.log_parsers.text import clean

_MOST = 400
_SLOTS = ("rank", "local_rank", "node", "pid", "place", "alias")
_BAR_SIGN = b"%|"
_CUT = b" ... "


def drawn_over(raw: bytes) -> bool:
    """Tell whether a line has several frames, or begins with a bar."""
    return b"\r" in raw.strip(b"\r\n") or _BAR_SIGN in raw


def written_by(line: LogLine, raw: bytes, parse: Callable[[str], LogLine]) -> LogLine:
    """Return `line` with the writer that its frames name behind their bars; with none where they name several.

    Args:
        line: The line as a whole was parsed.
        raw: The line as its file holds it.
        parse: Parses one frame as if it were a line.
    """
    named = [one for text in _behind_bars(raw) if (one := parse(text)).label]
    if not named:
        return line
    if (
        len(named) == 1 and _CUT in raw and b"\r" in raw
    ):  # who wrote the frames that were cut out is not known
        nobody: dict[str, Any] = dict.fromkeys(_SLOTS)
        return replace(line, label="", **nobody)
    writer: dict[str, Any] = {slot: _same({getattr(one, slot) for one in named}) for slot in _SLOTS}
    return replace(line, label=_same({one.label for one in named}) or "", **writer)


def _same(told: set[Any]) -> Any:
    return next(iter(told)) if len(told) == 1 else None


def _behind_bars(raw: bytes) -> Iterator[str]:
    """Yield each frame without the bar in front of it; what is a bar alone is none, nor is what repeats a front."""
    frames = raw.rstrip(b"\r\n").split(b"\r")
    for frame in (
        frames if len(frames) <= _MOST else (*frames[: _MOST // 2], *frames[-_MOST // 2 :])
    ):
        text = clean(frame)
        bar = _bar().match(text) if _BAR_SIGN in frame else None
        if rest := text[bar.end() if bar else 0 :].strip():
            yield rest


@lru_cache(maxsize=1)
def _bar() -> re.Pattern[str]:
    return lazy(load_cached(PATH)["bar_in_front"]["pattern"])
