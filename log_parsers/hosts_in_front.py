"""Lines that all begin with a host, and beside it with something that differs from line to line: a role, a program, a task.

`[server/gn-3] `, `gn-3/kern `, `[gn-3:0] `, `gn-3 trainer[8821]: `: what stands beside the host takes many forms in one
file, so that no two lines need to have one in common; the hosts take turns there, and are names of one series.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rerail.lazy_patterns import lazy
from rerail.log_parsers.front_parts import behind
from rerail.log_parsers.host_names import is_no_host, looks_like_host, series_of
from rerail.log_parsers.labels import INDUCED, Label
from rerail.log_parsers.timestamps import find_stamp

_LEAST_LINES = 6
_LEAST_SHARE = 0.75
_ROLE = r"(?:[a-z][a-z_-]{1,15}[/@:])?"
_BESIDE = r"(?:[/:](?:[a-z][\w-]{0,20}|\d{1,6}))?"
_PROGRAM = r"(?: {1,2}[a-z][\w.-]{0,30}\[\d{1,7}\])?"
_HOST = r"(?P<host>(?=[\w.-]*\d)[A-Za-z][A-Za-z0-9]*(?:[-.][A-Za-z0-9]+){1,6})"
_FRONT = lazy(rf"[\[(<@]?{_ROLE}{_HOST}{_BESIDE}[\])>]?{_PROGRAM}(?::|(?= ))")
_RANK = lazy(r"[/:](?P<task>\d{1,6})[\])>]? .{0,40}\[rank(?P<rank>\d{1,6})\]:")


def hosts_first(texts: Sequence[str], *, year: int) -> tuple[Label, ...]:
    """Return the label of lines that begin with a host and with what stands beside it, where most lines of a file do.

    Args:
        texts: the fronts of a sample of the lines, in their order.
        year: of a time in front that tells none.
    """
    rest = [text for text in _behind_times(texts, year) if text]
    seen = [match["host"] for text in rest if (match := _FRONT.match(text))]
    # Capitals in the middle are those of a class: SpawnProcess-2.
    names = {
        name
        for name in seen
        if name in (name.lower(), name.upper()) and looks_like_host(name) and not is_no_host(name)
    }
    hosts = [name for name in seen if name in names]
    if len(hosts) < max(_LEAST_LINES, _LEAST_SHARE * len(rest)) or len(names) < 2:
        return ()
    runs = 1 + sum(a != b for a, b in pairwise(hosts))
    often = Counter(hosts).most_common(2)[1][1]
    if len(set(map(series_of, names))) != 1 or runs <= len(names) or often < 2:
        return ()
    node = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    told = [match for text in rest if (match := _RANK.search(text))]
    ranked = len(told) > 1 and all(match["task"] == match["rank"] for match in told)
    beside = _BESIDE.replace(r"|\d{1,6}", r"|(?P<rank>\d{1,6})") if ranked else _BESIDE
    pattern = rf"[\[(<@]?{_ROLE}(?P<node>{node}){beside}[\])>]?{_PROGRAM}(?::|(?= )) ?"
    return (Label(INDUCED, "collector", pattern, generic=True),)


def _behind_times(texts: Sequence[str], year: int) -> Iterator[str]:
    for text in texts:
        stamp = find_stamp(text, year=year)
        yield text[behind(stamp, text) :] if stamp is not None and stamp.start <= 1 else text
