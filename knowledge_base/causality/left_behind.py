"""Who did not go through the last round of a job that then stood still until it was ended.

Where every rank prints a line of the same kind in each round, the few whose last one is of an earlier round than those
of all others are where the job stopped; and so are the few whose last line begins a work that all others say they have
ended. It says nothing of a job that went on to its end: there the last lines of some ranks are
always a round behind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from rerail.domain.evidence import LogLine, Observation
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.end_of_log import last_steps
from rerail.knowledge_base.causality.progress import step_rows
from rerail.knowledge_base.phrases import phrase
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import named
from rerail.knowledge_base.placement.place import Reason, runs_there
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.timestamps import find_stamp
from rerail.log_parsers.view import LogView

_RECENT = 8  # lines of a rank
_LEAST_RANKS = 3
_LEAST_WHO_SAY = 3
"""So many say what a few do not, which may also have nothing to say of it."""
_STEM, _LEAST_SHARED = 3, 2  # letters of a word that its forms share, words
_QUOTED = 60  # characters
_MOST_LINES = 20_000
_FEW = 1 / 3
_ROUNDS, _LEAST_S, _UNKNOWN_S = 10, 10.0, 60.0
"""The job stood for so many rounds, and for so long; for so long where a round's time is not known."""
_BELOW = 4  # lines
_NUMBER = lazy(r"(?<![\w.])\d{1,9}(?![\w.])")
_OWN = lazy(r"\d*\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+")
"""What each rank measures for itself: a loss, a time."""
_WORD = lazy(r"[A-Za-z]?[a-z]{3,}")


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The ranks, the last line of one of them, and what all others printed behind a line like it."""

    ranks: tuple[int, ...]
    line: LogLine
    rounds: tuple[int, int] | None = None
    """The round that they came to, and that of all others."""
    unsaid: str = ""
    """What all others said and they did not."""

    def describe(self) -> str:
        """Say in one clause how it is known."""
        theirs = "its" if len(self.ranks) == 1 else "their"
        if self.rounds is not None:
            reached, others = self.rounds
            return f"{theirs} last round is {reached}, that of all others {others}, and none came after it"
        went_on = f"“{self.unsaid[:_QUOTED].rstrip()}”"
        return f"all others print {went_on} behind a line that {theirs} last one is like, and nothing came after it"

    @property
    def why(self) -> str:
        """The same as a sentence about them."""
        return f"{named(self.ranks)} stopped first: {self.describe()}"

    def node(self, identities: Identities) -> str | None:
        """Return the one node of the ranks, or None where they have several or one of them has none."""
        nodes = {identities.undisputed(rank) for rank in self.ranks}
        return nodes.pop() if len(nodes) == 1 else None

    def place(self, identities: Identities) -> tuple[list[str], list[Reason]]:
        """Return the one node of the ranks, if they have one, and why they and it are named."""
        reasons = [Reason(named(self.ranks), self.describe(), self.line)]
        node = self.node(identities)
        if node is None:
            return [], reasons
        return [node], [*reasons, runs_there(identities, self.ranks, node)]


def lost_with_host(case: Case, identities: Identities, end: Observation) -> LeftBehind | None:
    """Return the ranks of the one host that was left behind when an event tells that a host was lost, or None."""
    late = left_behind(case, end.line, stood=False)
    node = late.node(identities) if late is not None else None
    if late is None or node is None:
        return None
    return late if identities.ranks_on(node) == list(late.ranks) else None


def left_behind(
    case: Case, end: LogLine, *, stood: bool = True, rounds: bool = True
) -> LeftBehind | None:
    """Return who was left behind before a line told of the end, or None; as long as the job `stood` still before it."""
    recent = _recent(case, end)
    ends = _last_steps(case, end) if rounds else {}
    if len(ends) > len(recent):
        return _behind_in_steps(case, end, ends, stood=stood)  # of so many not all lines are kept
    if len(recent) < _LEAST_RANKS:
        return None
    told_in: dict[str, dict[int, list[tuple[int, LogLine]]]] = defaultdict(dict)
    for rank, lines in recent.items() if rounds else ():
        for line in lines:
            if (told := _round(line)) is not None:
                told_in[told[0]].setdefault(rank, []).append((told[1], line))
    found = [
        one
        for of_rank in told_in.values()
        if len(of_rank) == len(recent) and (one := _few(of_rank)) is not None
        if not stood or _stood(case, end, of_rank)
    ]
    last = {rank: [(0, one) for one in lines] for rank, lines in recent.items()}
    if not stood or _stood(case, end, last):
        found += _unsaid(recent)
    if not found and ends.keys() >= recent.keys():  # a line of a step may tell several numbers
        return _behind_in_steps(case, end, ends, stood=stood)
    ranks = {one.ranks for one in found}
    return found[0] if len(ranks) == 1 and not case.unread_of(ranks.pop()) else None


def behind_in_last_steps(case: Case, end: LogLine) -> LeftBehind | None:
    """Return the few whose last step is before that of all others, whether the job stood or not."""
    told = _last_steps(case, end) or _steps_kept(case, end)
    return _behind_in_steps(case, end, told, stood=False)


def _steps_kept(case: Case, end: LogLine) -> dict[int, tuple[int, LogView, int]]:
    """Return the same of files that were kept whole, by the labels of their lines."""
    found: dict[int, tuple[int, LogView, int]] = {}
    for view in case.views if all(view.survey.whole for view in case.views) else ():
        for row in step_rows(view):
            line = view.line(row.line) if row.step is not None else None
            if line is None or line.rank is None or row.step is None:
                continue
            if view.name == end.file and row.line > end.number:
                return {}
            if line.rank not in found or row.step > found[line.rank][0]:
                found[line.rank] = row.step, view, row.line
    return found


def _last_steps(case: Case, end: LogLine) -> dict[int, tuple[int, LogView, int]]:
    """Return by rank its last step, and where it stands; nothing where a step stands behind the end."""
    found: dict[int, tuple[int, LogView, int]] = {}
    for view in case.views:
        for rank, (number, step) in last_steps(case, view).items():
            if view.name == end.file and number > end.number:
                return {}
            if rank not in found or step > found[rank][0]:
                found[rank] = step, view, number
    return found


def _behind_in_steps(
    case: Case, end: LogLine, told: dict[int, tuple[int, LogView, int]], *, stood: bool
) -> LeftBehind | None:
    """Return the few whose last step is before that of all others, by the facts of all lines."""
    top = max((step for step, _, _ in told.values()), default=0)
    late = sorted(rank for rank, (step, _, _) in told.items() if step < top)
    reached = {told[rank][0] for rank in late}
    if len(told) < _LEAST_RANKS or not late or len(late) > _FEW * len(told) or len(reached) > 1:
        return None
    of_each = {at: list(_a_line_of_each_step(view)) for at, view in enumerate(case.views)}
    if (stood and not _stood(case, end, of_each)) or case.unread_of(late):
        return None
    _, view, number = told[late[0]]
    line = view.line(number)
    return None if line is None else LeftBehind(tuple(late), line, rounds=(reached.pop(), top))


def _a_line_of_each_step(view: LogView) -> Iterator[tuple[int, LogLine]]:
    """Yield the last steps with the first line of each that was kept, and the last line of all."""
    first: dict[int, LogLine] = {}
    for row in reversed(step_rows(view)):
        if row.step is not None and (line := view.line(row.line)) is not None:
            if not first:
                yield row.step, line
            first[row.step] = line
            if len(first) > _RECENT:
                break
    yield from first.items()


def _unsaid(recent: dict[int, list[LogLine]]) -> Iterator[LeftBehind]:
    """Yield the few whose last line all others have too, who print the end of the same work behind it.

    Who never prints a wording that the others repeat has another part in the job; the first rank and the last one may
    have one whatever the others print.
    """
    said: dict[str, dict[int, int]] = defaultdict(dict)
    kinds: dict[str, Counter[int]] = defaultdict(Counter)
    last: dict[int, str] = {}
    for rank, lines in recent.items():
        for at, item in enumerate(map(item_of, lines)):  # the latest first
            last.setdefault(rank, item)
            said[item].setdefault(rank, at)
            kinds[_NUMBER.sub("0", item)][rank] += 1
    for item, others in said.items():
        late = recent.keys() - others.keys()
        if not late or len(late) > _FEW * len(recent) or len(others) < _LEAST_WHO_SAY:
            continue
        told = kinds[_NUMBER.sub("0", item)]
        apart = late & {min(recent), max(recent)} or max(told.values()) > 1
        if apart and not late <= told.keys():
            continue
        behind = [last[rank] for rank in late]
        if any(len(said[one]) < len(recent) or _not_above(said[one], others) for one in behind):
            continue
        if not all(_of_one_work(one, item) for one in behind):
            continue
        yield LeftBehind(tuple(sorted(late)), recent[min(late)][0], unsaid=item)


def _of_one_work(begun: str, done: str) -> bool:
    """Tell whether two lines are of the same work, as its beginning and its end: they share most of their words."""
    if _NUMBER.sub("0", begun) == _NUMBER.sub("0", done):
        return False  # another round of the same words is told by its number
    words = [{word[:_STEM].lower() for word in _WORD.findall(text)} for text in (begun, done)]
    shared = len(words[0] & words[1])
    return shared >= _LEAST_SHARED and 2 * shared >= min(map(len, words))


def _not_above(common: dict[int, int], later: dict[int, int]) -> bool:
    """Tell whether somebody has what all have in common not above what came later; places count from the end."""
    return any(common[rank] <= at for rank, at in later.items())


def _without_time(line: LogLine) -> str:
    stamp = find_stamp(line.message, year=1970)
    return line.message if stamp is None else line.message[stamp.end :]


def item_of(line: LogLine) -> str:
    """Return what a line says, without its time and what its writer measured."""
    return _OWN.sub("0.0", _without_time(line)).strip()


def _recent(case: Case, end: LogLine) -> dict[int, list[LogLine]]:
    """Return the last lines of each rank above the end, the latest first."""
    found: dict[int, list[LogLine]] = {}
    for view in case.views:
        last = (
            end.number - 1 if view.name == end.file else (view.numbers[-1] if view.numbers else 0)
        )
        for number in reversed(list(view.between(max(1, last - _MOST_LINES), last))):
            line = view.line(number)
            if line is not None and line.rank is not None:
                lines = found.setdefault(line.rank, [])
                if len(lines) < _RECENT:
                    lines.append(line)
    return found


def _round(line: LogLine) -> tuple[str, int] | None:
    """Return the wording of a line that tells one number, and the number."""
    text = item_of(line)
    numbers = _NUMBER.findall(text)
    return (_NUMBER.sub("0", text), int(numbers[0])) if len(numbers) == 1 else None


def _few(of_rank: dict[int, list[tuple[int, LogLine]]]) -> LeftBehind | None:
    """Return the few ranks whose highest number is below the one that all others have."""
    highest = {rank: max(told, key=lambda one: one[0]) for rank, told in of_rank.items()}
    top = max(number for number, _ in highest.values())
    late = {rank: told for rank, told in highest.items() if told[0] < top}
    reached = {number for number, _ in late.values()}
    if not late or len(late) > _FEW * len(highest) or len(reached) != 1:
        return None
    first = min(late)
    return LeftBehind(tuple(sorted(late)), late[first][1], rounds=(reached.pop(), top))


def _stood(case: Case, end: LogLine, of_rank: dict[int, list[tuple[int, LogLine]]]) -> bool:
    """Tell whether the job printed nothing for many rounds before it was ended."""
    stamped = sorted(
        t for told in of_rank.values() for _, one in told if (t := case.time(one)) is not None
    )
    ended = case.time(end)
    if ended is None and (limit := _limit(case, end)) is not None:
        began = [time for view in case.views for time in _first_times(case, view)]
        ended = min(began) + limit if began else None
    if not stamped or ended is None:
        return False
    each = max(_gaps(case, of_rank), default=None)
    needed = _UNKNOWN_S if each is None else max(_LEAST_S, _ROUNDS * each)
    return ended - stamped[-1] >= needed


def _gaps(case: Case, of_rank: dict[int, list[tuple[int, LogLine]]]) -> Iterator[float]:
    """Yield the seconds that the rounds took which ranks told of."""
    for told in of_rank.values():
        timed = sorted((number, t) for number, one in told if (t := case.time(one)) is not None)
        for (number, time), (other, later) in pairwise(timed):
            if other > number:
                yield (later - time) / (other - number)


def _first_times(case: Case, view: LogView) -> Iterator[float]:
    """Yield the times that the first lines of a file tell."""
    for number in view.numbers[:_RECENT]:
        line = view.line(number)
        if line is not None and (time := case.time(line)) is not None:
            yield time


def _limit(case: Case, line: LogLine) -> float | None:
    """Return the limit in seconds that the line, or one just below it, tells."""
    view = case.view(line)
    for number in view.between(line.number, line.number + _BELOW):
        if match := phrase("limit-in-seconds").search(view.text(number) or ""):
            return float(match["seconds"])
    return None
