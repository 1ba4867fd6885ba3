"""Time stamps of every program that writes into a training log, as seconds since the epoch.

A stamp without a zone is read as UTC: only differences inside one job matter. A stamp without a
year takes the year given by the caller. A kernel stamp since boot is on a clock of its own
(`boot`), which only an event shared with a wall clock can tie to the others; a time of day without
a date is on one of its own as well (`day`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.pattern_union import union_of, which
from rerail.log_parsers.text import ZERO

WALL = "wall"
BOOT = "boot"
DAY = "day"
"""A time of day without its date, which no other file shares and midnight begins anew."""

_MONTHS = {
    m: i + 1 for i, m in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split())
}
_MON = r"(?P<mon>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_HMS = r"(?P<h>[0-2]?\d):(?P<mi>[0-5]\d):(?P<s>[0-6]\d)(?:[.,](?P<f>\d{1,9}))?"

_Forms = tuple[tuple[str, re.Pattern[str]], ...]
_FORMS: _Forms = (
    (
        "iso",
        lazy(
            r"(?P<y>20\d\d|19\d\d)[-/](?P<mo>[01]?\d)[-/](?P<d>[0-3]?\d)[T _-]"
            + _HMS
            + r"(?:\s?(?P<z>Z|[+-]\d\d:?\d\d))?(?:\s(?P<ap>AM|PM)\b)?"
        ),
    ),
    (
        "us",
        lazy(r"\b(?P<mo>[01]?\d)/(?P<d>[0-3]?\d)/(?P<y>20\d\d|19\d\d|\d\d)(?: \|)? " + _HMS),
    ),
    (
        "dmesg",
        lazy(
            r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) "
            + _MON
            + r" +(?P<d>[0-3]?\d) "
            + _HMS
            + r"(?: (?:[A-Z]{2,5}|[+-]\d{2}))? (?P<y>20\d\d)"
        ),
    ),
    ("mdy", lazy(_MON + r" +(?P<d>[0-3]?\d),? (?P<y>20\d\d) " + _HMS)),
    (
        "glog",
        lazy(
            r"(?:^|[\[\s:])[IWEF](?P<y>20\d\d)?(?P<mo>0[1-9]|1[0-2]|[1-9])(?P<d>[0-2]\d|3[01]) "
            + _HMS
        ),
    ),
    ("syslog", lazy(_MON + r" +(?P<d>[0-3]?\d) " + _HMS + r"(?P<z>Z)?")),
    ("md", lazy(r"(?:^|[\s\[])(?P<mo>[01]\d)-(?P<d>[0-3]\d) " + _HMS)),
    ("boot", lazy(r"(?:^|\s)\[\s*(?P<boot>\d{1,9}\.\d{3,6})\]")),
    ("mllog", lazy(r'"time_ms": ?(?P<ms>1\d{12})\b')),
    # Behind the day 0000 a log of absl has the time since 1970 where it is not set up yet.
    (
        "epoch",
        lazy(
            r"(?:^|[\s\[=]|[IWEF]0000 00:00:)(?P<epoch>1\.\d{6,}e\+09|1\d{9}\.\d{1,9})(?=[\s\],:]|$)"
        ),
    ),
)
# At the head of a line, or behind the name of who prints it.
_OF_DAY = lazy(r"(?:[a-z0-9][\w.-]{1,80}(?: {2,}| {0,3}\| ?))?\[?" + _HMS + r"(?:\]|(?=[ \t|,]))")
_WITHOUT_CLOCK = _FORMS[-3:]
_CLOCK = lazy(r"\d:[0-5]\d:[0-6]\d")
# What both need, whatever the digits are.
_ANY_STAMP = lazy(rb"\d:\d\d:\d\d|time_ms|\d\.\d{6,}e\+\d\d|\d{10}\.\d|\[\s*\d+\.\d{3,6}\]")
_LAST_YEAR = 2100
_YEARS = lazy(rb"[12][09]\d\d(?!\d)|time_ms")
_BARE = lazy(r"time_ms|1\.\d{6,}e\+09|1\d{9}\.\d|\[\s*\d+\.\d{3,6}\]")


@dataclass(frozen=True, slots=True)
class Stamp:
    """A time in seconds, the clock it was read from, and where it stands in the text."""

    seconds: float
    clock: str
    has_year: bool
    start: int
    end: int


def find_stamp(text: str, *, year: int, limit: int = 400) -> Stamp | None:
    """Return the first time stamp in the first `limit` characters of `text`, or None."""
    head = text[:limit]
    if not _may_be_stamped(head.encode("utf-8", "replace").translate(ZERO)):
        return None
    with_clock = _CLOCK.search(head) is not None
    if not with_clock and _BARE.search(head) is None:
        return None
    if not with_clock:
        return _first_stamp(head, _WITHOUT_CLOCK, year)
    match = _union().search(head)
    form = which(match)
    if match is None or form is None:
        return _time_of_day(head)
    name, pattern = _FORMS[form]
    found = _stamp(name, pattern.match(head, match.start()), year)
    found = found or _first_stamp(head, _FORMS, year)
    return _time_of_day(head) if found is None else found


def _time_of_day(head: str) -> Stamp | None:
    match = _OF_DAY.match(head)
    if match is None:
        return None
    part = float(f"0.{match['f']}") if match["f"] else 0.0
    seconds = int(match["h"]) * 3600 + int(match["mi"]) * 60 + int(match["s"]) + part
    return Stamp(seconds, DAY, False, match.start("h"), match.end())


@lru_cache(maxsize=8192)
def _may_be_stamped(zeroed: bytes) -> bool:
    """Tell whether lines that are so with their digits zeroed may tell a time; programs print the same lines again."""
    return _ANY_STAMP.search(zeroed) is not None


@lru_cache(maxsize=1)
def _union() -> re.Pattern[str]:
    union = union_of([pattern.pattern for _, pattern in _FORMS])
    assert union is not None  # no form refers back to a group
    return union


def _first_stamp(head: str, forms: _Forms, year: int) -> Stamp | None:
    """Return the first of what each form finds first; of a form that first finds no date, nothing."""
    best: Stamp | None = None
    for name, pattern in forms:
        match = pattern.search(head)
        if match is None or (best is not None and match.start() >= best.start):
            continue
        best = _stamp(name, match, year) or best
        if best is not None and best.start == 0:
            break
    return best


def _stamp(name: str, match: re.Match[str] | None, year: int) -> Stamp | None:
    """Return the time that a match of a form tells, None where it is no date."""
    seconds = None if match is None else _seconds(name, match, year)
    if match is None or seconds is None:
        return None
    clock = BOOT if name == "boot" else WALL
    has_year = bool(match["y"]) if name == "glog" else name not in ("syslog", "md")
    return Stamp(seconds, clock, has_year, match.start(), match.end())


def _seconds(name: str, match: re.Match[str], year: int) -> float | None:
    groups = match.groupdict()
    if name == "boot":
        return float(groups["boot"])
    if name == "epoch":
        return float(groups["epoch"])
    if name == "mllog":
        return int(groups["ms"]) / 1000.0
    month = _MONTHS[groups["mon"].lower()] if groups.get("mon") else int(groups["mo"])
    day, hour = int(groups["d"]), int(groups["h"])
    if groups.get("y"):
        year = int(groups["y"])
        year += 2000 if year < 100 else 0
    if groups.get("ap") == "PM" and hour < 12:
        hour += 12
    if groups.get("ap") == "AM" and hour == 12:
        hour = 0
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour <= 23):
        return None
    seconds = hour * 3600 + int(groups["mi"]) * 60 + int(groups["s"])
    base = _days(year, month, day) * 86_400 + seconds
    fraction = float("0." + groups["f"]) if groups.get("f") else 0.0
    return base + fraction - _offset(groups.get("z"))


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970; a day that the month has not is one of the next month."""
    # Counted from March, the days before a month follow one formula, and a leap day is the last of its year.
    # The library's calendar loads the words of the locale, which takes as long as reading a small log.
    year -= month < 3
    before = (153 * ((month + 9) % 12) + 2) // 5
    return 365 * year + year // 4 - year // 100 + year // 400 + before + day - 719_469


def _offset(zone: str | None) -> int:
    if not zone or zone == "Z":
        return 0
    sign = -1 if zone[0] == "-" else 1
    digits = zone[1:].replace(":", "")
    return sign * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def latest_year(heads: Sequence[bytes], year: int) -> int:
    """Return the latest year that fronts of lines name, or `year` where none names a later one."""
    text, end = b"\n".join(heads), 0
    for match in _YEARS.finditer(text):
        # Few lines are read: most of a file name the same year.
        word = match[0]
        if match.start() < end or (word.isdigit() and not year < int(word) < _LAST_YEAR):
            continue
        end = text.find(b"\n", match.end()) % (len(text) + 1)
        head = text[text.rfind(b"\n", 0, match.start()) + 1 : end]
        found = year_in(head.decode("utf-8", "replace"))
        if found is not None and year < found < _LAST_YEAR:
            year = found
    return year


def year_in(text: str) -> int | None:
    """Return the year of a full date in `text`, or None."""
    for name, pattern in _FORMS[:4]:
        match = pattern.search(text)
        if match and match["y"] and len(match["y"]) == 4 and name != "us":
            return int(match["y"])
    match = _FORMS[8][1].search(text)
    return 1970 + int(int(match["ms"]) / 1000 / 31_556_952) if match else None
