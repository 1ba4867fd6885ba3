"""Which hosts hold which ranks, where a line lists them: ranges beside hosts, or hosts in the order of their ranks.

Ranges that follow each other without a gap, each beside a name of its own, tell it whoever prints
them. Hosts in order tell it together with how many processes each holds. What contradicts a place
that another line tells is not believed at all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import LogLine
from rerail.errors import RerailError
from rerail.kept_patterns import kept_pattern
from rerail.knowledge_base.placement.names import short
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.digit_blind import zero_image
from rerail.log_parsers.host_names import is_address, looks_like_host, series_of
from rerail.log_parsers.text import ZERO
from rerail.log_parsers.view import LogView

FILE = Path(__file__).with_name("rank_tables.yaml")
_HEAD = 2_000  # lines of a file that are read: tables stand where a job starts, or at its end
_TAIL = 200
_MOST_RANKS = 1 << 20
_MOST_ON_A_HOST = 4_096
_ITEM = lazy(
    r"(?P<range>(?<![\w./-])(?<![^\w-]\d\d:)(?<![^\w-]\d:)(?:\[1,)?(?:[Rr]ank_?|r)?(?P<a>\d{1,7})\s?(?:-|\.\.)\s?(?:r)?(?P<b>\d{1,7})(?![\w/.]|:(?!\s)|-\d))"
    r"|(?P<list>(?<![\w./-])\d{1,7}(?:(?:, ?\d{1,7}){1,200}|(?: \d{1,7}){2,200})(?![\w:/.]|-\d))"
    r"|(?P<word>(?<![\w.-])(?:\d{1,3}(?:\.\d{1,3}){3}|[A-Za-z][\w.-]{0,100}))"
)
_RANGE = lazy(
    r"(?<![\w./-])(?<!\d\d:\d\d:)(?<!\W\d:\d\d:)(?:[Rr]ank_?|r)?\d{1,7}"
    r"\s?(?:-|\.\.|,| \d{1,7} )\s?r?\d{1,7}(?![\w/.]|:(?!\s)|-\d)"
)
_FRONT, _ROWS = 200, 256
_ADDRESS_FIRST = lazy(rb"#? ?[\w -]{0,40}(?:: )?\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\s")
_ALIAS = lazy(r"(?P<address>\d{1,3}(?:\.\d{1,3}){3})[ \t=]+(?P<host>[A-Za-z][\w.-]{0,100})")
_ONE = r"\d{1,3}(?:\.\d{1,3}){3}[ \t=]+[A-Za-z][\w.-]{0,100}"
_ALIASES = lazy(rf"(?:#? ?[\w -]{{0,40}}: )?{_ONE}(?:(?: ?[,;|] ?|\s+){_ONE})*")
_TIMES = lazy(r"x\d{1,3}")  # how many processes stand on an address: `10.4.2.11 x8`
_DIGITS = lazy(r"\d+")
_BRACKETS = lazy(r"[\w.-]*\[[\d,-]+\][\w.,\[\]-]*")


@dataclass(frozen=True, slots=True)
class Held:
    """One host with the ranks that it holds, `first` to `last`, and the line that tells it."""

    host: str
    first: int
    last: int
    line: LogLine


@dataclass(frozen=True, slots=True)
class Order:
    """Hosts in the order of their ranks: how many processes each holds (0: not told here), and the line."""

    hosts: tuple[str, ...]
    counts: tuple[int, ...]
    line: LogLine
    needs_known: bool = False
    """Only where a rank whose place is known stands in its block."""


@dataclass(frozen=True, slots=True)
class _Form:
    pattern: re.Pattern[str]
    on: re.Pattern[str] | None
    needs_known: bool
    of_one_series: bool
    unless: str
    """The phrase on any line of the job that says that this form tells no order."""


@dataclass(frozen=True, slots=True)
class _Data:
    connectives: frozenset[str]
    other: frozenset[str]
    sieve: re.Pattern[bytes]
    not_in: re.Pattern[str]
    orders: tuple[_Form, ...]
    counts: tuple[_Form, ...]
    node_ranks: tuple[_Form, ...]


@lru_cache(maxsize=1)
def _data() -> _Data:
    raw = load_cached(FILE)

    def forms(name: str) -> tuple[_Form, ...]:
        return tuple(_form(one) for one in raw[name])

    return _Data(
        frozenset(raw["connectives"]), frozenset(raw["other_ranges"]), kept_pattern(raw["sieve"].encode()),
        lazy(raw["not_in"]), forms("orders"), forms("counts"), forms("node_ranks"),
    )  # fmt: skip


def _form(raw: dict[str, Any]) -> _Form:
    on = lazy(raw["where"]) if "where" in raw else None
    known, alike = bool(raw.get("needs_known")), bool(raw.get("of_one_series"))
    return _Form(lazy(raw["pattern"]), on, known, alike, raw.get("unless", ""))


def lines_with_tables(views: Iterable[LogView]) -> Iterator[LogLine]:
    """Yield the lines of a job on which a table of ranks may stand, file by file.

    Of lines that differ in their numbers alone as many of a file are looked at as a table may have rows for hosts.
    """
    known = _Texts(_data())
    for view in views:
        kept = view.survey.kept
        seen: Counter[bytes] = Counter()
        for number in view.at_ends(_HEAD, _TAIL):
            raw = kept[number]
            zeroed = raw.translate(ZERO)
            if zeroed in known.out or not known.sieved(raw, zeroed):
                continue
            same = zeroed[:_FRONT]
            seen[same] += 1
            if seen[same] > _ROWS or zeroed in known.without:
                continue
            if not _may_hold(view.text(number) or "", known.data):
                known.without.add(zeroed)
                continue
            line = view.line(number)
            if line is not None:
                yield line


class _Texts:
    """What is known of texts, all digits zeroed: hundreds of files of one job say much the same.

    Attributes:
        out: The sieve lets none of the lines with such a text pass.
        without: It does, and no table stands on them: none of the patterns of tables tells digits apart.
    """

    def __init__(self, data: _Data) -> None:
        self.data = data
        self.out: set[bytes] = set()
        self.without: set[bytes] = set()
        self._image = zero_image("(?a)" + data.sieve.pattern.decode())

    def sieved(self, raw: bytes, zeroed: bytes) -> bool:
        """Tell whether a table may stand on a line at all."""
        if self.data.sieve.search(raw) or _ADDRESS_FIRST.match(raw):
            return True
        if self._image is not None and not self._image.search(zeroed.decode("latin-1")):
            self.out.add(zeroed)
        return False


def _may_hold(text: str, data: _Data) -> bool:
    """Tell whether a text holds a range, an address or an order, before its labels are read."""
    return (
        _RANGE.search(text) is not None
        or _ADDRESS_FIRST.match(text.encode()) is not None
        or any((form.on or form.pattern).search(text) for form in (*data.orders, *data.counts))
        or any(len(_numbered(form, text)) > 1 for form in data.node_ranks)
    )


def _numbered(form: _Form, text: str) -> list[tuple[int, str]]:
    """Return number and host of all nodes that a form finds on a line."""
    start = form.on.search(text) if form.on is not None else None
    if start is None:
        return []
    rest = text[start.end() :].partition(";")[0]
    return [(int(m["node_rank"]), m["host"]) for m in form.pattern.finditer(rest)]


def held(lines: Iterable[LogLine]) -> list[Held]:
    """Return the hosts that lines list beside ranges of ranks.

    A line with one range counts together with others of its kind: the ranges must follow each other.
    """
    found: list[Held] = []
    single: list[Held] = []
    for line in lines:
        pairs = _pairs(line)
        (single if len(pairs) == 1 else found).extend(pairs)
    taken = _tables(single, lambda one: series_of(one.host))
    known = {one.host for one in taken}
    # Hosts whose names are not of one series, in rows of one wording.
    rest = [one for one in single if one.host not in known]
    return [*found, *taken, *_tables(rest, _wording)]


def _tables(single: Sequence[Held], kind: Callable[[Held], str]) -> list[Held]:
    """Return the rows whose ranges follow each other, of those of one kind."""
    tables: dict[str, dict[tuple[str, int, int], Held]] = {}
    # A log given twice, or merged from copies, says it twice.
    for one in reversed(single):
        tables.setdefault(kind(one), {})[one.host, one.first, one.last] = one
    return [one for rows in tables.values() if _follow([*rows.values()]) for one in rows.values()]


def _wording(one: Held) -> str:
    return _DIGITS.sub("0", one.line.message.replace(one.host, "\0"))


def _pairs(line: LogLine) -> list[Held]:
    """Return the hosts beside ranges of a line; a host where a label stands only where it must be one."""
    found = _pairs_in(line, line.message) if line.message != line.text else []
    return found if len(found) > 1 else _pairs_in(line, line.text) or found


def _pairs_in(line: LogLine, text: str) -> list[Held]:
    data = _data()
    if _RANGE.search(text) is None or data.not_in.search(text):
        return []
    ranges: list[tuple[int, int]] = []
    before: list[str | None] = []
    after: list[str | None] = []
    listed: list[str] = []  # names in front of the first range
    word: str | None = None
    counted = False  # the word before counts something else
    for item in _ITEM.finditer(text):
        if item["word"] is not None:
            name = item["word"].rstrip(".")
            plain = name.lower()
            counted = plain in data.other
            if plain in data.connectives or counted or _counts(text, item.start(), name):
                continue
            if word is not None and is_address(name):
                continue  # a host's own name stands for it
            if word is not None and looks_like_host(word) and not looks_like_host(name):
                continue  # what a host holds, by its kind
            word = name
            if not ranges:
                listed.append(name)
            if after and after[-1] is None:
                after[-1] = name
        else:
            a, b = _bounds(item)
            if counted or not a < b or b > _MOST_RANKS or b - a >= _MOST_ON_A_HOST:
                continue
            ranges.append((a, b))
            before.append(word)
            after.append(None)
            word = None
    if not ranges:
        return []
    last = listed[-len(ranges) :] if len(ranges) > 1 else []
    names = next(
        (n for n in (before, after, last) if len(n) == len(ranges) and _are_hosts(n)), None
    )
    if names is None:
        return []
    pairs = [Held(str(name), a, b, line) for name, (a, b) in zip(names, ranges, strict=True)]
    return pairs if len(pairs) == 1 or _follow(pairs) else []


def _bounds(item: re.Match[str]) -> tuple[int, int]:
    """Return the first and the last of a range, or of numbers that follow each other; else the same twice."""
    if item["range"] is not None:
        return int(item["a"]), int(item["b"])
    listed = [int(number) for number in item["list"].replace(",", " ").split()]
    whole = listed == list(range(listed[0], listed[0] + len(listed)))
    return listed[0], listed[-1] if whole else listed[0]


def _counts(text: str, at: int, word: str) -> bool:
    """Tell whether a word stands behind a number that it counts: `8 ranks`."""
    return (
        not looks_like_host(word)
        and re.search(r"(?:^|[\s(,])\d{1,6} $", text[max(0, at - 9) : at]) is not None
    )


def _are_hosts(names: Sequence[str | None]) -> bool:
    """Tell whether each range has a name of its own, and all are of one series."""
    if any(name is None for name in names) or len(set(names)) != len(names):
        return False
    return len({series_of(str(name)) for name in names}) == 1


def _follow(pairs: list[Held]) -> bool:
    """Tell whether ranges of distinct hosts follow each other without a gap, all of one size."""
    ordered = sorted(pairs, key=lambda one: one.first)
    sizes = {one.last - one.first for one in ordered}
    return (
        len(ordered) > 1
        and len({one.host for one in ordered}) == len(ordered)
        and all(a.last + 1 == b.first for a, b in pairwise(ordered))
        and (len(sizes) == 1 or ordered[0].first == 0)
    )


def aliases(lines: Iterable[LogLine]) -> Iterator[tuple[str, str, LogLine]]:
    """Yield address, host and line where a line is nothing but pairs of them, as /etc/hosts is."""
    for line in lines:
        if _ALIASES.fullmatch(line.text.strip()):
            for match in _ALIAS.finditer(line.text):
                if _TIMES.fullmatch(match["host"]) is None:
                    yield match["address"], match["host"], line


def orders(lines: Iterable[LogLine], says: Callable[[str], bool]) -> list[Order]:
    """Return the hosts that lines list in the order of their ranks.

    Args:
        lines: those on which tables may stand.
        says: tells whether a phrase stands on any line of the job.
    """
    data = _data()
    found: list[Order] = []
    single: list[tuple[LogLine, str, int]] = []  # files of hosts have one a line
    alike: list[tuple[LogLine, str, int]] = []
    for line in lines:
        text = line.text
        for form, counted in _counted(line, data, says):
            if len(counted) == 1:
                (alike if form.of_one_series else single).append((line, *counted[0]))
            elif len({host for host, _ in counted}) == len(counted):
                hosts, counts = zip(*counted, strict=True)
                found.append(Order(hosts, counts, line))
        for form in data.node_ranks:
            numbered = dict(_numbered(form, text))
            if len(numbered) > 1 and sorted(numbered) == list(range(len(numbered))):
                hosts = tuple(numbered[number] for number in sorted(numbered))
                found.append(Order(hosts, (0,) * len(hosts), line))
        for form in data.orders:
            match = form.pattern.search(text)
            if match is None:
                continue
            slots = match.groupdict()
            hosts = _listed(slots["hosts"])
            each = int(slots.get("per_node") or slots.get("per_node2") or 0)
            if len(hosts) > 1:
                found.append(Order(hosts, (each,) * len(hosts), line, form.needs_known))
    if len({series_of(host) for _, host, _ in alike}) == 1:
        single = single or alike
    return found + _one_a_line(single)


def _counted(
    line: LogLine, data: _Data, says: Callable[[str], bool]
) -> Iterator[tuple[_Form, list[tuple[str, int]]]]:
    """Yield the hosts of a line with how many processes each holds, by the form that tells it."""
    for form in data.counts:
        if form.on is not None and not form.on.search(line.text):
            continue
        counted = [
            (
                m["host"],
                int(m["count"]) if "count" in m.groupdict() else m["list"].count(",") + 1,
            )
            for m in form.pattern.finditer(line.text)
        ]
        if counted and not (form.unless and says(form.unless)):
            yield form, counted


def _one_a_line(single: list[tuple[LogLine, str, int]]) -> list[Order]:
    """Return the order of lines that follow each other, each with one host of its own."""
    if len(single) < 2 or len({host for _, host, _ in single}) != len(single):
        return []
    first = single[0][0]
    if any(
        line.file != first.file or line.number != first.number + i
        for i, (line, _, _) in enumerate(single)
    ):
        return []
    return [Order(tuple(h for _, h, _ in single), tuple(c for _, _, c in single), first)]


def _listed(text: str) -> tuple[str, ...]:
    """Return the hosts of a list: with brackets or nothing but commas between, else those of one series in front."""
    text = text.strip().lstrip("[('\"{")
    if match := _BRACKETS.match(text):
        from rerail.tools.clusters.host_list import expand

        try:
            return tuple(expand(match[0].strip(",")))
        except (RerailError, ValueError):
            return ()
    if re.fullmatch(r"[\w.-]+(?:,[\w.-]+)+", text):
        return tuple(dict.fromkeys(text.split(",")))
    found: list[str] = []
    shape = None
    for word in re.split(r"['\"]?[\s,|]+['\"]?", text):
        name = word.strip("'\"])}.;")
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,100}", name) or name in found:
            break
        shape = shape or series_of(name)
        if series_of(name) != shape:
            break
        found.append(name)
        if word.endswith((";", "]", ")", "}")):
            break
    return tuple(found)


def placed(
    order: Order, per_node: int | None, world: int | None, known: dict[int, str]
) -> list[Held]:
    """Return the block of ranks of each host of an order; none where it contradicts what is known.

    Args:
        order: the hosts.
        per_node: how many processes each holds, where the order does not tell.
        world: the number of ranks, or None.
        known: hosts of ranks by other lines.
    """
    counts = [count or per_node or 0 for count in order.counts]
    total = sum(counts)
    if not all(counts) or total > _MOST_RANKS or (world is not None and world != total):
        return []
    blocks: list[Held] = []
    first = 0
    for host, count in zip(order.hosts, counts, strict=True):
        blocks.append(Held(host, first, first + count - 1, order.line))
        first += count
    by_host = {short(block.host): block for block in reversed(blocks)}
    seen = 0
    for rank, host in known.items():
        own = by_host.get(short(host))
        if own is None:
            continue
        if not own.first <= rank <= own.last:
            return []
        seen += 1
    return blocks if seen or not order.needs_known else []
