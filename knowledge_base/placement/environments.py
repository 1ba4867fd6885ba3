"""Who a process is by the environment that it prints: variables one a line, or several side by side.

What a task, an MPI process or a rank has in its environment it was given by its launcher; it prints that of itself.
The variables are data (`environments.yaml`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import LogLine
from rerail.kept_patterns import kept_pattern
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import says
from rerail.knowledge_base.placement.introductions import Writer, writer_of
from rerail.knowledge_base.placement.processes import Identity
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_local
from rerail.log_parsers.view import LogView

FILE = Path(__file__).with_name("environments.yaml")
_LONGEST, _MOST_LINES = 4_000, 4_000
# Nothing is read in two ways: a line of many signs would be tried in all of them.
_NAME = r"['\"]?[A-Z][A-Z0-9_]{2,50}['\"]?\s?+[=:]\s?+"
_VALUE = r"(?:\"[^\"]{0,200}\"|'[^']{0,200}'|[^\s,;'\"]{0,200})"
_PAIR = lazy(
    rf"['\"]?(?<![\w$])(?P<name>[A-Z][A-Z0-9_]{{2,50}})['\"]?\s?[=:]\s?(?P<value>{_VALUE})"
)
_ALL = lazy(rf"{_NAME}{_VALUE}(?:[\s,;]++{_NAME}{_VALUE}){{0,59}}[\s,;]*[)}}\]]?\s*$")
_STARTS = lazy(r"(?:^|[\s{:(\[])(?=['\"]?[A-Z][A-Z0-9_]{2,50}['\"]?\s?[=:])")
_MOST_STARTS = 4
_ALONE = lazy(r"^\s*(?:export |declare -x |setenv |env: ?|[+#>] (?:export )?)?$")
_HOST = lazy(r"[A-Za-z0-9][\w.-]{1,100}")
_MOST_RANKS = 1 << 17


@lru_cache(maxsize=1)
def _sieve() -> re.Pattern[bytes]:
    return kept_pattern(load_cached(FILE)["sieve"].encode())


@lru_cache(maxsize=1)
def _not_in() -> re.Pattern[str]:
    return kept_pattern(load_cached(FILE)["not_in"])


@dataclass(slots=True)
class _Printed:
    """The variables that one writer prints, and the lines on which it does."""

    values: dict[str, set[str]]
    lines: list[LogLine]


def environments(case: Case) -> dict[Writer, tuple[Identity, LogLine]]:
    """Return who the writers are that print their environment, where it tells a rank.

    Of several writers each has to have a rank of its own; one alone may be the first rank, which prints for all.
    """
    found: dict[Writer, tuple[Identity, LogLine]] = {}
    for view in case.views:
        launched = None
        for writer, printed in _printed(case, view).items():
            values = {name: one.pop() for name, one in printed.values.items() if len(one) == 1}
            if launched is None:
                launched = any(
                    says("launched-per-node", view.text(n) or "")
                    for n in view.numbers[:_MOST_LINES]
                )
            who = _who(values, launched=launched)
            if who is not None:
                found[writer] = who, printed.lines[0]
    ranks = [who.rank for who, _ in found.values()]
    if len(set(ranks)) < len(ranks) or (len(ranks) == 1 and ranks[0] == 0):
        return {}
    return found


def _printed(case: Case, view: LogView) -> dict[Writer, _Printed]:
    """Return what is printed of environments in a file, by whoever prints it."""
    found: dict[Writer, _Printed] = defaultdict(lambda: _Printed(defaultdict(set), []))
    kept = view.survey.kept
    for number in view.numbers[:_MOST_LINES]:
        raw = kept[number]
        if len(raw) > _LONGEST or not _sieve().search(raw):
            continue
        line = view.line(number)
        pairs = dict(_pairs(line.text)) if line is not None else {}
        if line is None or (len(pairs) == 1 and not _beside_another(view, number)):
            continue
        one = found[writer_of(case, line)]
        one.lines.append(line)
        for name, value in pairs.items():
            one.values[name].add(value)
    return {writer: one for writer, one in found.items() if one.values}


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the variables of a line that ends in nothing else."""
    starts = islice((match.end() for match in _STARTS.finditer(text)), _MOST_STARTS)
    at = next((start for start in starts if _ALL.match(text, start)), None)
    if at is None or _not_in().search(text[:at]):
        return
    found = [(m["name"], m["value"].strip("'\"")) for m in _PAIR.finditer(text, at)]
    if len(found) > 1 or _ALONE.match(text[:at]):
        yield from found


def _beside_another(view: LogView, number: int) -> bool:
    """Tell whether another line of one variable stands next to a line."""
    for other in (number - 1, number + 1):
        text = view.text(other)
        if text is not None and len(list(_pairs(text))) == 1:
            return True
    return False


def _number(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 7 else None


def _first(values: Mapping[str, str], names: list[str]) -> int | None:
    return next((n for name in names if (n := _number(values, name)) is not None), None)


def _who(values: Mapping[str, str], *, launched: bool) -> Identity | None:
    data = load_cached(FILE)
    rank = _first(values, data["rank"])
    if rank is None:
        rank = _of_torch(values, data["torch"], launched=launched)
    if rank is None:
        rank = _of_task(values, data)
    if rank is None or rank > _MOST_RANKS:
        return None
    return Identity(rank=rank, local_rank=_first(values, data["local"]), node=_host(values, data))


def _of_task(values: Mapping[str, str], data: Mapping[str, Any]) -> int | None:
    several = (_first(values, data["tasks_of_a_host"]) or 1) > 1
    for name, local in data["tasks"].items():
        rank = _number(values, name)
        if rank is not None and (several or (_number(values, local) or 0) > 0):
            return rank
    return None


def _of_torch(values: Mapping[str, str], names: Mapping[str, Any], *, launched: bool) -> int | None:
    rank, local = _number(values, names["rank"]), _number(values, names["local"])
    world = _number(values, names["world"])
    if rank is not None:
        # The first process of a launcher prints in the launcher's own output, which is that of all of its processes.
        own = bool(local) or (not launched and (local == 0 or world is not None))
        return rank if own and (world is None or rank < world) else None
    node, each = _first(values, names["node"]), _first(values, names["per_node"])
    if node is None or local is None:
        return None
    if each is not None:
        return node * each + local if local < each else None
    # The last node of as many as there are processes: each has one.
    return node if world is not None and node + 1 == world and local == 0 else None


def _host(values: Mapping[str, str], data: Mapping[str, Any]) -> str | None:
    for name in data["host"]:
        beside = data["not_beside"].get(name)
        if beside is not None and any(other.startswith(beside) for other in values):
            continue
        host = values.get(name, "").partition(":")[0]
        if host and _HOST.fullmatch(host) and not is_local(host):
            return host
    return None
