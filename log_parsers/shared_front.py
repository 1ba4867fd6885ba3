"""What a collector puts in front of every line of a file alike, and what the lines are behind it.

`kubectl logs --prefix`, Compose, stern, a journal or a container runtime label all lines of a job with the same
words. They tell of the file as a whole; the launcher's labels, tables and headings stand behind them, as they would
stand in the file without a collector. A front that tells a rank, or that a kernel or scheduler writes, is no
collector's, and stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rerail.domain.evidence import LogLine, Stream
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_counter, is_device, looks_like_host
from rerail.log_parsers.labels import peel
from rerail.log_parsers.prefixes import Origin, parse_line
from rerail.log_parsers.survey import FileSurvey
from rerail.log_parsers.text import clean
from rerail.log_parsers.timestamps import find_stamp

_LEAST_LINES = 6
_FEW, _SAMPLE, _HEAD = 4, 200, 400
_LEAST_SHARE = 0.9
"""Somebody's command may stand above, or a message of the collector below."""
_BEGINNING = 4  # characters by which the lines that share a front are found
_STAMP_WITHIN = 60
_MOST_SIGNS = 3
_ON_A_HOST = 8
# Where a message was written, or what was raised.
_NO_COLLECTOR = lazy(
    r"\.(?:py|cc|cpp|cu|c|h|so|go|rs|java|json|ya?ml)$|(?:Error|Exception|Warning)$"
)
# A label is a name or what stands in brackets, with a sign behind it; a host or a pod may have one word and no sign.
_PIECE = lazy(
    r"(?:\[[^\[\]\s]{1,120}\]|\([^()\s]{1,120}\)|<[^<>\s]{1,120}>|(?P<name>[A-Za-z0-9][\w./@-]{0,100})(?:\[\d{1,8}\])?)"
    r"(?P<sign> {0,12}[|:>](?= |$)|(?<=[\])>]))? {0,4}"
)
_MOST_PIECES, _PARTS_OF_A_RUN = 3, 3


@dataclass(frozen=True, slots=True)
class BehindFront:
    """A file behind the front that its lines share, and its lines as they stand there."""

    survey: FileSurvey
    originals: dict[int, bytes]


def behind_shared_front(one: FileSurvey, *, year: int) -> BehindFront | None:
    """Return a file behind the front that nearly all its kept lines share, or None where they share none.

    Args:
        one: the file; its facts of all lines stay as they are.
        year: of stamps that carry none.
    """
    numbers = sorted(one.kept)
    if len(numbers) < _LEAST_LINES or one.source.origin.stream is not None:
        return None
    few = [*numbers[: _FEW + 1], *numbers[-_FEW:]]
    front = _front_of([one.kept[number] for number in few], year)
    if front is None or _is_rank(
        parse_line("", 1, _with_its_time(one, front, few, year), year=year)
    ):
        return None  # most files are known by these
    sample = numbers if len(numbers) <= 2 * _SAMPLE else [*numbers[:_SAMPLE], *numbers[-_SAMPLE:]]
    front = _front_of([one.kept[number] for number in sample], year)
    if front is None:
        return None
    told = parse_line("", 1, _with_its_time(one, front, sample, year), year=year)
    if _is_rank(told):
        return None
    kernel = [_of_kernel(one.kept[number], year) for number in few]
    if told.stream is not Stream.TRAIN or 2 * sum(kernel) > len(few):
        return None
    host = told.node or told.place or _named(front)
    if told.node is None and told.place is None and host == front.strip():
        return None  # a host alone: what stands behind it is the tag of a syslog
    if told.node is not None and any(_of_kernel(one.kept[number], year) for number in sample):
        return None  # a machine's own log
    kept = {number: _body(raw, front, year) for number, raw in one.kept.items()}
    bodies = [kept[number] for number in sample]
    origin = _origin(one.source.origin, replace(told, node=told.node or host), bodies, year)
    stripped = replace(one, kept=kept, source=replace(one.source, origin=origin))
    return BehindFront(stripped, one.kept)


def _is_rank(told: LogLine) -> bool:
    """Tell whether a front is the label of one rank, which is no collector's."""
    return told.rank is not None or told.local_rank is not None


def _named(front: str) -> str | None:
    """Return the host or pod that a front begins with, or None."""
    word = front.split(" ", 1)[0]
    return word if looks_like_host(word) else None


def _of_kernel(raw: bytes, year: int) -> bool:
    return parse_line("", 1, clean(raw[:_HEAD]), year=year).stream is Stream.KERNEL


def _with_its_time(one: FileSurvey, front: str, numbers: Sequence[int], year: int) -> str:
    """Return what stands in front of a line, its time included, before a word that tells nothing."""
    raws = (one.kept[number] for number in numbers)
    whole = next(
        (text for raw in raws if front in (text := clean(raw)) and _body(raw, front, year)), front
    )
    return f"{whole[: whole.index(front) + len(front)]}x"


def _front_of(raws: Sequence[bytes], year: int) -> str | None:
    """Return the words that nearly all lines have behind their time, "" where a collector's signs are all, or None."""
    rests = [_behind_time(clean(raw[:_HEAD]), year) for raw in raws]
    told = [rest for rest, _ in rests if rest.strip()]
    if not told:
        return None
    begins, count = Counter(rest[:_BEGINNING] for rest in told).most_common(1)[0]
    if count >= _LEAST_SHARE * len(told):
        first, last = min(alike := [r for r in told if r.startswith(begins)]), max(alike)
        front = _label(first[: _shared(first, last)])  # what these two share, all share
        if front:
            return front
    return "" if all(signs for _, signs in rests) else None


def _shared(first: str, last: str) -> int:
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)))


def _behind_time(text: str, year: int) -> tuple[str, bool]:
    """Return a line behind its time and a collector's signs that tell nothing, and whether it has such signs."""
    stamp = find_stamp(text, year=year, limit=_STAMP_WITHIN)
    at = 0
    if stamp is not None and stamp.start <= 1:
        at = stamp.end
        while at < len(text) and text[at] in "]:), ":
            at += 1
    signs = False
    for _ in range(_MOST_SIGNS):
        found = peel(text, at, True, stamp)
        if found is None or found[0].kind != "collector" or any(found[1].groupdict().values()):
            break
        at, signs = found[1].end(), True
        at += text[at : at + 1] == " "
    return text[at:], signs


def _label(shared: str) -> str:
    """Return the part of a common beginning that is a label, or ""; levels, files and counters begin a message."""
    at, end = 0, 0
    for count in range(_MOST_PIECES):
        piece = _PIECE.match(shared, at)
        name = piece["name"] if piece is not None else None
        word = name or (piece[0].strip(" []()<>:|") if piece is not None else "")
        if piece is None or is_device(word) or _NO_COLLECTOR.search(word):
            break
        # Compose calls a container after its service and its number.
        if name and is_counter(name) and "|" not in (piece["sign"] or ""):
            break
        at = piece.end()
        if piece["sign"] is not None:
            end = at
        elif not (_stands_alone(name or "") if count == 0 else shared[at - 1 : at] == " "):
            break
        elif count == 0 or looks_like_host(shared.split(" ", 1)[0]):
            end = at
    return shared[:end] if shared[end - 1 : end] in (" ", "]") else ""


def _stands_alone(name: str) -> bool:
    """Tell whether a name needs no sign behind it: that of a host, or of a run in its space (mpt-7b/default/0f7f22a1)."""
    return looks_like_host(name) or name.count("/") >= _PARTS_OF_A_RUN - 1


def _body(raw: bytes, front: str, year: int) -> bytes:
    """Return a line behind its time and the front; one that has another front is left as it is."""
    text = clean(raw)
    rest, signs = _behind_time(text, year)
    if front and not rest.startswith(front):
        return b"" if rest and front.startswith(rest) else raw
    body = rest[len(front) :] if front or signs else text
    return body.encode("utf-8", "surrogateescape")


def _origin(own: Origin, front: LogLine, bodies: Iterable[bytes], year: int) -> Origin:
    """Return where the lines are from: as the front says, unless labels behind it tell of several hosts."""
    lines = [parse_line("", 1, clean(body[:_HEAD]), year=year) for body in bodies]
    ranks = {line.rank for line in lines if line.rank is not None}
    elsewhere = any(line.node or line.place for line in lines)
    if elsewhere or (ranks and max(ranks) - min(ranks) >= _ON_A_HOST):
        return own
    pid = own.pid if ranks or own.pid is not None else front.pid
    return replace(own, collected_from=front.node or front.place, pid=pid)


def told_apart(found: Sequence[BehindFront | None]) -> list[BehindFront | None]:
    """Return files of which several tell of several hosts in their fronts as those of these hosts.

    What is in front of a single file may be where the launcher runs that prints for all hosts.
    """
    hosts = {one.survey.source.origin.collected_from for one in found if one is not None} - {None}
    return [_at_home(one) if one is not None and len(hosts) > 1 else one for one in found]


def _at_home(one: BehindFront) -> BehindFront:
    source = one.survey.source
    host = source.origin.collected_from
    origin = replace(source.origin, node=source.origin.node or host)
    return replace(one, survey=replace(one.survey, source=replace(source, origin=origin)))
