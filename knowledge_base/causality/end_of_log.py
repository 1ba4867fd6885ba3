"""Where a log that just stops was: at which of how many steps, since when, and who was behind.

Nothing in such a log tells a run that goes on from one that hangs or one whose log was cut; these
are what an engineer needs to find out.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime

from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.progress import LastStep, step_rows
from rerail.knowledge_base.phrases import says
from rerail.log_parsers.view import LogView

_LEAST_RANKS = 3
_LAST_ROWS, _TAKEN_APART = 2_000, 20_000
_MOST_BEHIND = 0.25
_LEAST_STEPS_BEHIND = 2


def planned_steps(last: LastStep) -> int | None:
    """Return the number of steps that the run was to make, where its last step line says so."""
    if last.step is None:
        return None
    match = re.search(rf"(?<![\d.]){last.step} ?/ *(\d[\d,]*)(?![\d.])", last.line.text)
    total = int(match[1].replace(",", "")) if match else 0
    return total if total > last.step else None


def stop(last: LastStep) -> str:
    """Return where the log stops: "step 399 of 5000, 2026-03-01 02:07:18"."""
    if last.step is None:
        file, number = last.line.lies
        return f"line {number} of {file}"
    total = planned_steps(last)
    place = f"step {last.step}" + (f" of {total}" if total is not None else "")
    if last.time is None or not 946_684_800 <= last.time < 4e9:  # a clock since boot is no date
        return place
    return f"{place}, {datetime.fromtimestamp(last.time, UTC):%Y-%m-%d %H:%M:%S}"


def says_done(case: Case) -> bool:
    """Tell whether the last line of each file is nothing but a word which says that it is done, and none cries."""
    last = [_last_words(view) for view in case.views]
    if not last or not all(says("nothing-but-done", text) for text in last):
        return False
    bad = ("cry", "ended-by-a-signal")
    return not any(any(case.lines_with(view, name)) for view in case.views for name in bad)


def _last_words(view: LogView) -> str:
    """Return what the last line of a file says that is not empty."""
    lines = (view.line(number) for number in reversed(view.numbers))
    return next((one.message.strip() for one in lines if one and one.message.strip()), "")


def behind(case: Case) -> dict[int, int]:
    """Return the last step of each rank that was seen `_LEAST_STEPS_BEHIND` steps behind the others.

    Ranks that wait for each other cannot be so far apart, so few that are behind did not come
    along. Nobody is when the ranks differ among themselves, as those do whose output is buffered,
    and nobody where a file that may hold their further steps was read in part only.
    """
    furthest: dict[int, int] = {}
    for view in case.views:
        told = {rank: step for rank, (_, step) in last_steps(case, view).items()}
        for rank, step in (told or _furthest(view)).items():
            furthest[rank] = max(step, furthest.get(rank, step))
    if len(furthest) < _LEAST_RANKS:
        return {}
    front, count = Counter(furthest.values()).most_common(1)[0]
    late = {r: step for r, step in furthest.items() if step <= front - _LEAST_STEPS_BEHIND}
    together = count + len(late) == len(furthest) and len(late) <= _MOST_BEHIND * len(furthest)
    return late if together and not case.unread_of(late) else {}


def last_steps(case: Case, view: LogView) -> dict[int, tuple[int, int]]:
    """Return the line and the step of the last step that each rank told in the last attempt of a file.

    Nothing where the labels of its lines do not tell all ranks that its steps tell.
    """
    told = case.facts.last_steps(view.name)
    if len(told) < _LEAST_RANKS or {row.rank for row in step_rows(view)} - {None, *told}:
        return {}
    begun = _begun(view)
    return {rank: one for rank, one in told.items() if one[0] >= begun}


def _begun(view: LogView) -> int:
    """Return the line of the first step that was kept of the last attempt, below which the steps do not begin anew."""
    lowest, begun = 1 << 62, 0
    for row in reversed(step_rows(view)):
        if row.step is None:
            continue
        if row.step >= lowest + _LEAST_STEPS_BEHIND:
            return begun
        lowest, begun = min(row.step, lowest), row.line
    return 0


def _furthest(view: LogView) -> dict[int, int]:
    """Return how far each rank came in the last rows of a file; above them count those alone whom these do not show.

    Of thousands of ranks the last rows hold a step or two of each. Above a row at which the steps begin anew is another
    attempt.
    """
    rows = step_rows(view)
    furthest: dict[int, int] = {}
    own: set[int | None] = set()  # ranks that rows tell by themselves
    lowest, left = 1 << 62, _TAKEN_APART
    for place, row in enumerate(reversed(rows)):
        above = place >= _LAST_ROWS
        if above and (not furthest or view.origin.rank is not None):
            break
        if row.step is None:
            continue
        if above and row.step >= lowest + _LEAST_STEPS_BEHIND:
            break
        lowest = min(row.step, lowest)
        if above and row.rank in own:
            continue
        rank = view.origin.rank
        if rank is None:  # lines are only taken apart where the file does not tell whose they are
            line = view.line(row.line) if left > 0 else None
            left -= line is not None
            rank = row.rank if line is None or line.rank is None else line.rank
            if rank == row.rank is not None:
                own.add(rank)
        if rank is not None:
            furthest[rank] = max(row.step, furthest.get(rank, row.step))
    return furthest


def laggards(late: dict[int, int]) -> str:
    """Return who was last seen `behind` the others, as a sentence, or nothing."""
    if not late:
        return ""
    ranks = sorted(late)
    named = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    steps = sorted(set(late.values()))
    at = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    return (
        f"{'Rank' if len(ranks) == 1 else 'Ranks'} {named} "
        f"{'was' if len(ranks) == 1 else 'were'} last seen at {at}, behind all others."
    )
