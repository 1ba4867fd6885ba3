"""Tables of timers: a row or a column of each rank, and in them the one whose own work takes far longer.

Whoever prints such a table, its titles say which times are work that a rank does alone and which are waiting for
others. A rank whose own part is far above that of all others, while it waits less than they do, is the slow one. Where
waiting for data takes most of every rank's time, it is the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase_in_bytes, says
from rerail.knowledge_base.placement.column_tables import words
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.middle import median
from rerail.log_parsers.text import ZERO
from rerail.log_parsers.view import LogView

_LEAST_RANKS, _MOST_TABLES, _MOST_ROWS, _REMEMBERED = 4, 16, 4_096, 20_000
_APART, _STANDS_OUT, _OF_ALL = 1.4, 3.0, 0.1
"""How far the odd one is above all others: as a factor, in spreads of the others, and as a share of a rank's time."""
_WAITS_LESS, _CLOCK_LOW, _OF_DATA = 0.8, 0.8, 0.6
_ABOVE = 2  # lines above the titles that may say what the table shows
_CELL = lazy(r"(?P<value>-?\d[\d,]*(?:\.\d+)?)(?:[ ]?(?:ms|s|us|sec|MHz|%))?")
_RANK = lazy(r"(?:[Rr]ank[ _-]?|r)?(\d{1,6})")
_COLUMNS = lazy(r"[\s|│]+")


@dataclass(frozen=True, slots=True)
class TableFinding:
    """The leaf that a table shows, at which line, and of which rank."""

    leaf: str
    line: LogLine
    what: str
    rank: int | None = None


@dataclass(slots=True)
class _Table:
    """The times of all ranks by title, and the line of each rank or, where ranks are columns, of each title."""

    times: dict[str, dict[int, float]]
    about: str
    rows: dict[int, LogLine]
    parts: dict[str, LogLine]

    def own(self) -> list[str]:
        return [t for t in self.times if self._is("title-of-own-work", t)]

    def waiting(self) -> list[str]:
        return [t for t in self.times if says("title-of-waiting", t)]

    def _is(self, name: str, title: str) -> bool:
        told = title if not says("title-of-a-statistic", title) else self.about
        return says(name, told) and not says("title-of-waiting", title)

    def named(self, title: str) -> str:
        return title if not says("title-of-a-statistic", title) else "own work"


def in_timer_tables(case: Case) -> list[TableFinding]:
    """Return what the last table of timers shows that shows anything."""
    found = [one for view in case.views for table in _tables(view) if (one := _judge(case, table))]
    return found[-1:]


def _judge(case: Case, table: _Table) -> TableFinding | None:
    own, waiting = table.own(), table.waiting()
    if not own or not (waiting or says("speaks-of-time", " ".join([table.about, *table.times]))):
        return None  # of samples and bytes a rank may have more
    if not case.says("ranks-work-apart"):
        odd = [one for title in own if (one := _odd_one(table, title, own + waiting, waiting))]
        ranks = {rank for rank, _ in odd}
        if len(ranks) == 1:
            return _of_one(table, *max(odd, key=lambda one: max(table.times[one[1]].values())))
        if ranks:
            return None
    return _of_data(table, own, waiting)


def _odd_one(
    table: _Table, title: str, parts: Sequence[str], waiting: Sequence[str]
) -> tuple[int, str] | None:
    """Return the one rank whose time is far above that of all others and that does not wait as they do."""
    times = table.times[title]
    ranked = sorted(times, key=lambda rank: times[rank])
    if len(ranked) < _LEAST_RANKS:
        return None
    top, value, second, least = ranked[-1], times[ranked[-1]], times[ranked[-2]], times[ranked[0]]
    whole = median([sum(table.times[p].get(rank, 0.0) for p in parts) for rank in ranked])
    far = value >= _APART * second and value - second >= _STANDS_OUT * (second - least)
    if not far or value - second < _OF_ALL * whole:
        return None
    less = [_waits_less(table.times[one], top) for one in waiting]
    # The first rank has work of its own (logs, checkpoints): only that all others wait for it shows that it is slow.
    if not any(less) and (less or top == 0):
        return None
    return top, title


def _waits_less(times: Mapping[int, float], rank: int) -> bool:
    others = [value for one, value in times.items() if one != rank]
    return bool(others) and times.get(rank, 0.0) <= _WAITS_LESS * min(others)


def _of_one(table: _Table, rank: int, title: str) -> TableFinding:
    times = table.times[title]
    line = table.rows.get(rank) or table.parts[title]
    others = max(value for one, value in times.items() if one != rank)
    leaf = "slow_dataloading_storage" if says("timer-of-data", title) else "fail_slow_unexplained"
    if leaf == "fail_slow_unexplained" and _held_back(table, rank):
        leaf = "slow_gpu"
    takes = f"takes {times[rank]:.5g}, that of the others {others:.5g} at most"
    what = f"rank {rank} is the slow one: its {table.named(title)} {takes}"
    return TableFinding(leaf, line, what, rank)


def _held_back(table: _Table, rank: int) -> bool:
    """Tell whether the rank's row says that its clock is held back, or shows a clock far below all others."""
    row = table.rows.get(rank)
    if row is not None and says("clock-held-back", row.text):
        return True
    for title, clocks in table.times.items():
        others = [value for one, value in clocks.items() if one != rank]
        low = rank in clocks and others and clocks[rank] <= _CLOCK_LOW * min(others)
        if low and says("title-of-a-clock", title):
            return True
    return False


def _of_data(table: _Table, own: Sequence[str], waiting: Sequence[str]) -> TableFinding | None:
    """Most of the time of each rank goes into waiting for its data."""
    data = [title for title in own if says("timer-of-data", title)]
    if len(data) != 1 or len(own) < 2:
        return None
    times = table.times[data[0]]
    shares = [
        value / whole
        for rank, value in times.items()
        if (whole := sum(table.times[t].get(rank, 0.0) for t in [*own, *waiting])) > 0
    ]
    if len(shares) < _LEAST_RANKS or min(shares) < _OF_DATA:
        return None
    line = table.parts.get(data[0]) or next(iter(table.rows.values()))
    what = f"{data[0]} takes {100 * median(shares):.0f} % of the time of every rank"
    return TableFinding("slow_dataloading_storage", line, what)


def _tables(view: LogView) -> Iterator[_Table]:
    near, tables = phrase_in_bytes("near-table-of-ranks"), 0
    # Of lines that differ in numbers alone, all are titles or none is.
    no_titles: set[bytes] = set()
    for number in view.numbers:
        raw = view.survey.kept[number][:400]
        if near.search(raw) is None or (alike := raw.translate(ZERO)) in no_titles:
            continue
        head = view.line(number)
        cells = _words(head, head) if head is not None else []
        if (
            head is None
            or len(cells) < 2
            or not any(says("title-of-ranks", cell) for cell in cells[:2])
        ):
            if len(no_titles) < _REMEMBERED:
                no_titles.add(alike)
            continue
        table = _ranks_in_columns(view, head, cells) or _ranks_in_rows(view, head, cells)
        if table is not None:
            yield table
            tables += 1
            if tables >= _MOST_TABLES:
                return


def _words(line: LogLine, head: LogLine) -> list[str]:
    text = words(line, head).strip().lstrip("# ")
    titles = words(head, head)
    if "," in titles and "|" not in titles:
        return [cell.strip() for cell in text.split(",")]
    return [cell for cell in _COLUMNS.split(text) if cell]


def _value(cell: str) -> float | None:
    match = _CELL.fullmatch(cell)
    return float(match["value"].replace(",", "")) if match else None


def _above(view: LogView, number: int) -> str:
    return " ".join(view.text(n) or "" for n in view.between(number - _ABOVE, number - 1))


def _ranks_in_rows(view: LogView, head: LogLine, titles: Sequence[str]) -> _Table | None:
    at = next(i for i, title in enumerate(titles) if says("title-of-ranks", title))
    times: dict[str, dict[int, float]] = {}
    rows: dict[int, LogLine] = {}
    for below in range(head.number + 1, head.number + _MOST_ROWS):
        line = view.line(below)
        cells = _words(line, head) if line is not None else []
        if line is not None and cells and not any(c.isalnum() for c in "".join(cells)):
            continue  # a rule below the titles
        named = _RANK.fullmatch(cells[at]) if len(cells) == len(titles) else None
        if line is None or named is None:
            break
        rank = int(named[1])
        if rank in rows:
            return None  # rounds of the same ranks, or no ranks at all
        rows[rank] = line
        for title, cell in zip(titles, cells, strict=True):
            if (value := _value(cell)) is not None:
                times.setdefault(title, {})[rank] = value
    whole = {t: v for t, v in times.items() if len(v) == len(rows) and t != titles[at]}
    return _Table(whole, _above(view, head.number), rows, {}) if len(rows) >= _LEAST_RANKS else None


def _ranks_in_columns(view: LogView, head: LogLine, titles: Sequence[str]) -> _Table | None:
    ranks = [int(cell) for cell in titles[1:] if cell.isdigit() and len(cell) < 7]
    if len(ranks) < max(_LEAST_RANKS, len(titles) - 1) or len(set(ranks)) != len(ranks):
        return None
    times: dict[str, dict[int, float]] = {}
    parts: dict[str, LogLine] = {}
    for below in range(head.number + 1, head.number + _MOST_ROWS):
        line = view.line(below)
        cells = _words(line, head) if line is not None else []
        values = [_value(cell) for cell in cells[-len(ranks) :]]
        if line is None or len(cells) <= len(ranks) or None in values:
            break
        title = "_".join(cells[: -len(ranks)])
        times[title] = {r: v for r, v in zip(ranks, values, strict=True) if v is not None}
        parts[title] = line
    return _Table(times, _above(view, head.number), {}, parts) if times else None
