"""Which rank, host and process id belong together, where a job prints a line for each of its processes.

Such lines differ from program to program and are alike within one: the same words, and in the same places a rank, a
host, a process id. One of them proves little; that the others say the same of the other ranks, each once and on hosts
that no other line contradicts, does. The words in front of values are data (`rosters.yaml`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import LogLine
from rerail.knowledge_base.placement.names import short
from rerail.knowledge_base.placement.processes import Identity, pid_in_front
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_address, is_local, looks_like_host, series_of
from rerail.log_parsers.text import ZERO
from rerail.log_parsers.view import LogView

FILE = Path(__file__).with_name("rosters.yaml")
_HEAD, _TAIL = 2_000, 200  # lines of a file that are read: processes say it where a job starts
_LONGEST = 400
_MOST_RANKS = 1 << 17
_MOST_WORDS = 4  # of a name in front of a value
# A word, or what stands between two.
_WORD = lazy(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")
_JOINED = lazy(r"(?P<name>[A-Za-z]+)[_-]?(?P<number>\d{1,6})")
_NAME = lazy(r"[A-Za-z0-9](?:[\w.-]{0,120}[A-Za-z0-9])?")
_BETWEEN = lazy(r"[\s=:\"'#@]{0,8}")
_APART = lazy(r"[_\s-]+")


@dataclass(frozen=True, slots=True)
class Row:
    """One process of a roster, and the line that tells of it."""

    who: Identity
    line: LogLine


@dataclass(frozen=True, slots=True)
class _Data:
    sure: frozenset[str]
    counted: frozenset[str]
    kinds: dict[str, str]
    """What the value behind a name is, by the name."""
    other_ranks: frozenset[str]
    plain: frozenset[str]
    not_in: re.Pattern[str]
    sieve: re.Pattern[bytes]


@lru_cache(maxsize=1)
def _data() -> _Data:
    raw = load_cached(FILE)
    sure, counted = frozenset(raw["rank"]["sure"]), frozenset(raw["rank"]["counted"])
    kinds = dict.fromkeys(raw["others"], "other")
    for kind in ("gpu", "pid", "local", "preposition", "host"):
        kinds |= dict.fromkeys(raw[kind], kind)
    kinds |= dict.fromkeys(sure | counted, "rank")
    lasts = {name.split()[-1] for name in sure | counted}
    words = "|".join(sorted(lasts, key=lambda one: (-len(one), one)))
    sieve = re.compile(rf"(?i)(?:^|[^a-z])(?:{words})[\s=:\"'#_-]{{0,4}}\d".encode())
    return _Data(
        sure,
        counted,
        kinds,
        frozenset(raw["other_ranks"]),
        frozenset(raw["plain"]) | {word for name in kinds for word in name.split()},
        lazy(raw["not_in"]),
        sieve,
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """What one line says of a process."""

    about: tuple[str, ...]
    """The kinds of its values, in their order, with the names in front of the rank and the host."""
    rank: int
    sure: bool
    host: str | None
    named: str
    """How the host is named: `host` or `preposition` by the words in front of it, or nothing."""
    strange: bool
    """It holds words that tell of something else."""
    pid: int | None
    local: int | None
    gpu: int | None
    line: LogLine


def rosters(
    views: Iterable[LogView], known: frozenset[str], world: int | None, ranks: frozenset[int]
) -> list[list[Row]]:
    """Return the processes of which a job's lines tell rank and host or process id, those of one wording together.

    Args:
        views: the files of the job.
        known: hosts that other lines name.
        world: how many ranks the job has, or None.
        ranks: those that are heard of.
    """
    tables: dict[tuple[str, ...], list[_Read]] = defaultdict(list)
    for line in _lines(views):
        read = _read(line, known)
        if read is not None:
            tables[read.about].append(read)
    told = (_rows(_with_pids(one), known, world, ranks) for one in tables.values())
    return [rows for rows in told if rows]


def _lines(views: Iterable[LogView]) -> Iterator[LogLine]:
    """Yield the lines on which a process may be told of: with a name for a rank, and a number behind it."""
    data, out = _data(), set()
    for view in views:
        numbers, kept = view.numbers, view.survey.kept
        chosen = numbers if len(numbers) <= _HEAD + _TAIL else [*numbers[:_HEAD], *numbers[-_TAIL:]]
        for number in chosen:
            raw = kept[number]
            if len(raw) > _LONGEST or (zeroed := raw.translate(ZERO)) in out:
                continue
            text = view.text(number) if data.sieve.search(raw) else None
            if text is None or data.not_in.search(text):
                out.add(zeroed)
                continue
            line = view.line(number)
            if line is not None:
                yield line


def _read(line: LogLine, known: frozenset[str]) -> _Read | None:
    """Return what a line says of one process; None where it tells of none, or of several."""
    data, text = _data(), line.text
    names: list[str] = []
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    about: list[str] = []
    strange, end = False, 0
    for match in _WORD.finditer(text):
        word, between = match[0], text[end : match.start()]
        end = match.end()
        kind, name = _kind(names, data) if _BETWEEN.fullmatch(between) else ("", "")
        if "@" in between:
            kind, name = "preposition", "@"
        if kind == "preposition" and not (looks_like_host(word) or _is_name(word)):
            kind = ""
        if _fits(kind, word):
            found[kind].append((word, name))
            about.append(f"{kind} {name}" if kind in ("rank", "host", "preposition") else kind)
            names = []
            continue
        joined = _JOINED.fullmatch(word)
        if joined is not None and joined["name"].lower() in ("rank", "r") and not names:
            found["rank"].append((joined["number"], joined["name"].lower()))
            about.append("rank joined")
            continue
        if word in known or looks_like_host(word):
            found[""].append((word, ""))
            about.append("")
            names = []
            continue
        if any(letter.isdigit() for letter in word):
            names = []
            continue
        plain = _APART.split(word.lower())
        strange = strange or not ("." in word or data.plain.issuperset(plain))
        names = [*(names if _APART.fullmatch(between) else ()), *plain][-_MOST_WORDS:]
    return _told(line, found, tuple(about), strange)


def _kind(names: list[str], data: _Data) -> tuple[str, str]:
    """Return what stands behind some words, and the longest name among them that tells it."""
    for first in range(len(names)):
        name = " ".join(names[first:])
        kind = data.kinds.get(name, "")
        if kind == "rank" and first and names[first - 1] in data.other_ranks:
            return "other", name
        if kind:
            return kind, name
    return "", ""


def _fits(kind: str, word: str) -> bool:
    """Tell whether a word can be the value of its kind."""
    if kind in ("rank", "pid", "local", "gpu"):
        return word.isdigit() and len(word) < 8
    if kind in ("host", "preposition"):
        plain = word.isdigit() or word.lower() in _data().plain or is_local(word)
        return not plain and _NAME.fullmatch(word) is not None
    return bool(kind) and any(letter.isdigit() for letter in word)


def _is_name(word: str) -> bool:
    """Tell whether a word behind `on` may be a host that is called by a name without a number."""
    return word.islower() and word not in _data().plain


def _told(
    line: LogLine, found: dict[str, list[tuple[str, str]]], about: tuple[str, ...], strange: bool
) -> _Read | None:
    data = _data()
    ranks = found["rank"]
    sure = [one for one in ranks if one[1] in data.sure]
    chosen = sure or ranks
    hosts = found["host"] or found["preposition"] or found[""]
    if all(is_address(host) for host, _ in hosts):  # a name beside it tells more
        hosts = [one for one in found[""] if not is_address(one[0])] or hosts
    elif len(hosts) > 1:
        hosts = [one for one in hosts if not is_address(one[0])]
    several = len({host for host, _ in hosts}) > 1 or any(
        len(set(found[k])) > 1 for k in ("pid", "local")
    )
    if len(chosen) != 1 or several:
        return None
    rank = int(chosen[0][0])
    if line.rank not in (None, rank) or rank > _MOST_RANKS:
        return None

    def number(kind: str) -> int | None:
        return int(found[kind][0][0]) if found[kind] else None

    named = next((kind for kind in ("host", "preposition") if found[kind]), "")
    host = hosts[0][0] if hosts else None
    return _Read(
        about,
        rank,
        bool(sure),
        host,
        named,
        strange,
        number("pid"),
        number("local"),
        number("gpu"),
        line,
    )


def _with_pids(reads: list[_Read]) -> list[_Read]:
    """Add the process ids in front of the lines, where each rank has one of its own: no process tells of others."""
    ranks: dict[int | None, set[int]] = defaultdict(set)
    for one in reads:
        ranks[pid_in_front(one.line)].add(one.rank)
    if None in ranks or any(len(held) > 1 for held in ranks.values()):
        return reads
    return [one if one.pid else replace(one, pid=pid_in_front(one.line)) for one in reads]


def _rows(
    reads: list[_Read], known: frozenset[str], world: int | None, ranks: frozenset[int]
) -> list[Row]:
    """Return the processes of a table of lines; none where it tells a rank of two places, or is no table."""
    by_rank: dict[int, _Read] = {}
    for one in reads:
        first = by_rank.setdefault(one.rank, one)
        if short(first.host or "") != short(one.host or "") or first.pid != one.pid:
            return []  # lines about events, or another attempt of the job
    told = set(by_rank)
    whole = told == set(range(len(told)))
    if len(told) < 2 or (world is not None and max(told) >= world):
        return []
    if not all(one.sure for one in reads) and not (
        whole and world in (None, len(told)) and max(ranks, default=0) <= max(told)
    ):
        return []
    if not _are_hosts(reads, known, whole):
        return []
    if all(one.host is None and one.pid is None for one in reads):
        return []
    return [
        Row(
            Identity(rank=one.rank, node=one.host, pid=one.pid, local_rank=one.local, gpu=one.gpu),
            one.line,
        )
        for one in by_rank.values()
    ]


def _are_hosts(reads: list[_Read], known: frozenset[str], whole: bool) -> bool:
    """Tell whether what stands beside the ranks are their hosts."""
    hosts = {one.host for one in reads if one.host is not None}
    apart = len(hosts) > 1
    strange = any(one.strange for one in reads)
    if not hosts or (hosts <= known and (apart or not strange)):
        return True
    if all(one.named == "host" for one in reads):
        return not strange or all(map(looks_like_host, hosts))
    alike = len({series_of(host) for host in hosts}) == 1 or all(map(is_address, hosts))
    if all(one.named for one in reads):
        return apart and whole and (not strange or all(map(looks_like_host, hosts)))
    return apart and whole and alike and not strange
