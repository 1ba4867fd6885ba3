"""Which claims of a broken machine do not stand against a failure of the program's own.

Anything in a job can write to the job's output: a logger, a test string, an attacker. There a line
that accuses the machine weighs by what came with it, since no fault of a machine raises an
`AttributeError` in the script, fills a disk, or makes an allocator count wrongly. A kernel's line
is true wherever it stands: of a GPU it stays the first fault, though in doubt; of a disk, a link or a
file server it explains no such failure unless something of it reached the job.
"""

from __future__ import annotations

from collections.abc import Iterable

from rerail.domain.evidence import LogLine, Observation, Role, Stream, Tier
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import says
from rerail.knowledge_base.taxonomy import has

_BELOW = (Tier.HARDWARE, Tier.HOST)
_STOPPED_S = 60.0
"""A step that was under way ends within it."""


def outweighed(case: Case, candidates: list[Observation]) -> list[tuple[Observation, str]]:
    """Return the candidates that are no first fault beside the others, each with the reason."""
    found: list[tuple[Observation, str]] = []
    own = _first_by_file(o for o in candidates if is_own(o))
    # A CUDA error with a traceback does not contradict a sentence that names its cause.
    raised = [
        o
        for o in candidates
        if o.lines and not has(o.leaf, "machine") and not has(o.leaf, "reaches_others")
    ]
    ends = _first_by_file(
        [*raised, *(o for o in case.observations if "collective_timeout" in o.marks)]
    )
    reached: dict[tuple[str, str | None], bool] = {}
    for claim in candidates:
        machine, file = has(claim.leaf, "machine"), claim.line.file
        by_kernel = not machine and claim.line.stream is Stream.KERNEL and claim.tier in _BELOW
        outside = machine or by_kernel or has(claim.leaf, "ended_from_outside")
        if is_own(claim) or not outside:
            continue
        beside, end = own.get(file), ends.get(file)
        if beside is None and by_kernel:
            beside = next(iter(own.values()), None)
        elif beside is not None and _known_before(case, beside.line, claim.line):
            found.append((claim, "told behind a failure that no fault of a machine raises"))
            continue
        if not machine and not by_kernel:
            continue
        if (
            beside is not None
            and not claim.lines
            and not says("thrown-outside-python", claim.line.message)
        ):
            key = (file, claim.leaf)
            if key not in reached:
                reached[key] = _reached_the_job(case, claim)
            if not reached[key]:
                found.append((claim, "nothing in the job's output shows that this reached it"))
        elif end is not None and end.line.number < claim.line.number and _is_bare(claim):
            found.append((claim, "a sentence behind the failure, and nothing that raised it"))
    return found


def _first_by_file(observations: Iterable[Observation]) -> dict[str, Observation]:
    first: dict[str, Observation] = {}
    for observation in observations:
        known = first.setdefault(observation.line.file, observation)
        if observation.line.number < known.line.number:
            first[observation.line.file] = observation
    return first


def is_own(observation: Observation) -> bool:
    """Tell whether the program failed by itself, and its whole traceback shows it."""
    if not observation.lines or "thread" in observation.fields or observation.leaf is None:
        return False
    if has(observation.leaf, "own_account") or says("class-of-own-error", observation.line.message):
        return True
    return has(observation.leaf, "own_program") and not has(observation.leaf, "may_be_storage")


def in_doubt(case: Case, winner: Observation) -> bool:
    """Tell whether a machine is accused beside what can end a job as well.

    That is: in the job's own output beside a time-out or a failure of the program's own, or wherever
    it is told when the job shows such a failure and no trace of the machine's.
    """
    if not has(winner.leaf, "of_a_host"):
        return False
    own = [o for o in case.observations if is_own(o)]
    if any(o.line.file == winner.line.file for o in own):
        return True
    if not has(winner.leaf, "machine"):
        return False
    if not _reached_the_job(case, winner) and (own or _runs_elsewhere(case, winner)):
        return True
    return any(
        "collective_timeout" in o.marks
        and o.line.file == winner.line.file
        and o.line.number < winner.line.number
        for o in case.observations
    )


def _known_before(case: Case, a: LogLine, b: LogLine) -> bool:
    """Tell whether a stands above b, and the clocks, where both have one, do not deny it."""
    if a.number > b.number:
        return False
    if b.stream is Stream.KERNEL and case.time(b) is None:
        return False  # pasted kernel logs count from the boot: that is no order
    time_a, time_b = case.near_time(a), case.time(b)
    return time_a is None or time_b is None or time_a <= time_b + 0.5


def _reached_the_job(case: Case, claim: Observation) -> bool:
    """Tell whether anything besides claims of its kind shows a device, a peer or a process lost."""
    for other in case.observations:
        machine = has(other.leaf, "machine")
        if is_own(other):
            continue
        if other.line.file != claim.line.file and machine:
            return True
        if other.line.stream is Stream.KERNEL or other.role is Role.BENIGN:
            continue
        if other.role is Role.CASCADE or has(other.leaf, "reaches_others"):
            return True
        if machine and (other.lines or not _is_bare(other)) and claim.leaf != other.leaf:
            return True
    return False


def _runs_elsewhere(case: Case, claim: Observation) -> bool:
    """Tell whether a kernel speaks in a file of its own, beside a training of which no clock says that it stopped then."""
    if claim.line.stream is not Stream.KERNEL:
        return False
    told = case.time(claim.line)
    for view in case.views:
        last = view.line(view.survey.steps[-1].line) if view.survey.steps else None
        if last is None or view.name == claim.line.file:
            continue
        stopped = case.near_time(last)
        if told is None or stopped is None or stopped > told + _STOPPED_S:
            return True
    return False


def _is_bare(observation: Observation) -> bool:
    """Tell whether this claims to be an exception, and no traceback or runtime raised it."""
    if observation.lines or observation.line.stream not in (Stream.TRAIN, Stream.AGENT):
        return False
    text = observation.line.text
    return says("claimed-exception", text) and not says("raised-in-fact", text)
