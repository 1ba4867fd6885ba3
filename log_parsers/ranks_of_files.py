"""What files side by side tell by the ranks in them: whose file each is.

Files of single processes, each of which calls itself by a rank of its own, are those of the ranks. Files that hold
several ranks each, no rank twice and together all of a job, are those of its hosts, by whose names they are called; so
are folders that hold the files of several ranks each.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.kept_patterns import kept_pattern
from rerail.lazy_patterns import lazy
from rerail.log_parsers.file_names import is_no_machine
from rerail.log_parsers.host_names import looks_like_host, series_of
from rerail.log_parsers.named_after_hosts import may_be_one, stem_of

PATH = Path(__file__).with_name("ranks_of_files.yaml")
_LINES, _WIDTH = 120, 300
_LEAST = 2  # ranks of a host, files
_LAST_NUMBER = lazy(r"\d{1,6}(?=[^\d/]*$)")
_PARTS = lazy(r"[/._]")
_LETTER = lazy(r"(?<=[-_])[a-z]$")


@lru_cache(maxsize=1)
def patterns() -> dict[str, re.Pattern[bytes]]:
    """Return how lines call their writer by a rank, by name."""
    raw = load_cached(PATH)
    return {name: kept_pattern(raw[name]["pattern"].encode()) for name in ("own", "named")}


def own_ranks(files: Sequence[tuple[str | None, int, Iterable[bytes]]]) -> list[int | None]:
    """Return the rank of each file of one process, given its host, its local rank and its first lines.

    A file counts that calls itself by one rank of a world, where no other file has the rank, all tell the same world,
    and the ranks of each host are as far apart as their local ranks.
    """
    told = [_told(lines) for _, _, lines in files]
    counted = Counter(one for one in told if one is not None)
    firsts: dict[str | None, set[int]] = defaultdict(set)
    for (node, local, _), one in zip(files, told, strict=True):
        if one is not None:
            firsts[node].add(one[0] - local)
    sound = (
        len(counted) >= _LEAST
        and max(counted.values()) == 1
        and len({world for _, world in counted}) == 1
        and all(len(first) == 1 and min(first) >= 0 for first in firsts.values())
    )
    return [one[0] if sound and one is not None else None for one in told]


def _told(lines: Iterable[bytes]) -> tuple[int, int] | None:
    found = set()
    for line, _ in zip(lines, range(_LINES), strict=False):
        for match in patterns()["own"].finditer(line[:_WIDTH]):
            found.add((int(match["rank"]), int(match["world"])))
    one = found.pop() if len(found) == 1 else None
    return one if one is not None and one[0] < one[1] else None


def hosts_by_ranks(files: Sequence[tuple[str, Iterable[bytes]]]) -> dict[str, str]:
    """Return the hosts that files side by side are called after, by their names; none where the ranks do not tell."""
    series: dict[str, list[tuple[str, str, Iterable[bytes]]]] = defaultdict(list)
    for name, lines in files:
        stem = stem_of(name)
        if may_be_one(stem) and may_be_one(_LETTER.sub("1", stem)):
            series[series_of(stem)].append((name, stem, lines))
    found: dict[str, str] = {}
    for members in series.values():
        if len({stem for _, stem, _ in members}) < max(_LEAST, len(members)):
            continue
        ranks = [_named(lines) for _, _, lines in members]
        together = sorted(rank for one in ranks for rank in one)
        if min(map(len, ranks)) >= _LEAST and together == list(range(len(together))):
            found |= {name: stem for name, stem, _ in members}
    return found


def hosts_by_folders(files: Sequence[tuple[str, int | None]]) -> dict[str, str]:
    """Return the hosts that folders side by side are called after, where they part all ranks of a job evenly between them.

    Args:
        files: paths, and the rank of each, None where it is not of one rank.
    """
    ranks: dict[str, list[int]] = defaultdict(list)
    for name, rank in files:
        if rank is not None:
            ranks[name.partition("/")[0] if "/" in name else ""].append(rank)
    together = sorted(rank for one in ranks.values() for rank in one)
    counts = {len(one) for one in ranks.values()}
    if (
        len(ranks) < _LEAST
        or together != list(range(len(together)))
        or len(counts) > 1
        or counts.pop() < _LEAST
        or not all(may_be_one(folder) and not is_no_machine(folder) for folder in ranks)
    ):
        return {}
    return {name: folder for name, _ in files if (folder := name.partition("/")[0]) in ranks}


def counted_on_each_host(files: Iterable[tuple[int | None, str | None]]) -> bool:
    """Tell whether the numbers of files of several hosts are local ranks: `n1/rank_3.log`, `n2/rank_3.log`.

    Args:
        files: the rank and the host that each is called after.
    """
    hosts: dict[int, set[str]] = defaultdict(set)
    for rank, host in files:
        if rank is not None and host is not None:
            hosts[rank].add(host)
    return len(set(map(frozenset, hosts.values()))) == 1 and len(min(hosts.values(), key=len)) > 1


def ranks_across_hosts(files: Sequence[tuple[str, str | None]]) -> dict[str, tuple[str, int]]:
    """Return host and rank of files that are numbered on from host to host, so that all ranks of a job are there once.

    `train.gn-4.0.err` and `train.gn-4.1.err` go on with gn-5 at 2; numbers that began anew would be local.

    Args:
        files: paths, and the host of each, None where only its name may tell it.
    """
    series: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for name, node in files:
        host = node if node is not None and node in name else _host_in(name)
        rest = name.replace(host, "*", 1) if host is not None else ""
        last = _LAST_NUMBER.search(rest)
        if host is not None and last is not None:
            key = f"{rest[: last.start()]}#{rest[last.end() :]}"
            series[key].append((name, host, int(last[0])))
    found: dict[str, tuple[str, int]] = {}
    for members in series.values():
        numbers: dict[str, list[int]] = defaultdict(list)
        for _, host, number in sorted(members, key=lambda one: one[2]):
            numbers[host].append(number)
        each = {len(one) for one in numbers.values()}
        on = [number for one in sorted(numbers.values()) for number in one]
        if (
            len(numbers) >= _LEAST
            and len(each) == 1
            and min(each) >= _LEAST
            and on == list(range(len(on)))
        ):
            found |= {name: (host, number) for name, host, number in members}
    return found


def _host_in(name: str) -> str | None:
    hosts = {part for part in _PARTS.split(name) if looks_like_host(part) and may_be_one(part)}
    return hosts.pop() if len(hosts) == 1 else None


def _named(lines: Iterable[bytes]) -> set[int]:
    """Return the ranks that the first lines of a file name."""
    heads = (line[:_WIDTH] for line, _ in zip(lines, range(_LINES), strict=False))
    return {int(match["rank"]) for head in heads for match in patterns()["named"].finditer(head)}
