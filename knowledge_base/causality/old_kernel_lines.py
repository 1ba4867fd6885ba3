"""Tells which of a kernel's faults are of days before the job: a node's log is longer than a run."""

from __future__ import annotations

from collections.abc import Sequence

from rerail.domain.evidence import LogLine, Observation, Role, Stream
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase

_SHORTLY_S, _LONG_BEFORE_S = 600.0, 6 * 3600.0
_LOOKED_AT_S = 14 * 86_400.0
"""A node's log is read no later than this after the run that failed."""
_FELT = (Role.CASCADE, Role.INITIATING, Role.TEARDOWN)


def told_hours_before(case: Case, candidates: Sequence[Observation]) -> list[Observation]:
    """Return what a kernel told long before the failure, where it tells of another fault shortly before it."""
    felt = [
        time
        for o in case.observations
        if o.line.stream is not Stream.KERNEL
        and o.role in _FELT
        and (time := case.not_after(o.line)) is not None
    ]
    told = [(o, case.time(o.line)) for o in candidates if o.line.stream is Stream.KERNEL]
    first = min(felt, default=None)
    if first is None or not any(t is not None and 0 <= first - t < _SHORTLY_S for _, t in told):
        return []
    return [o for o, t in told if t is not None and first - t > _LONG_BEFORE_S]


def told_before_the_job(case: Case, candidates: Sequence[Observation]) -> list[Observation]:
    """Return what a kernel told weeks before its last line, more than the job ran: it had not begun.

    A clock that counts from the boot tells no date, but how far two lines of a host are apart. Where nobody tells a
    date, nothing is known of how long the job ran.
    """
    stamped = [(o, at) for o in candidates if (at := _since_boot(o.line)) is not None]
    if not stamped:
        return []
    ran = case.facts.span(lambda name: case.offsets.get(name, 0.0))
    if ran is None:
        return []
    return [o for o, at in stamped if _last_of_host(case, o.line, at) - at > ran + _LOOKED_AT_S]


def _last_of_host(case: Case, line: LogLine, at: float) -> float:
    """Return the seconds since boot of the last line that the same host's kernel wrote in the same part of a file."""
    view = case.view(line)
    here = view.section(line.number)
    for number in reversed([*view.between(line.number, view.numbers[-1])]):
        other = view.line(number) if view.section(number) == here else None
        if other is not None and (other.node, other.label) == (line.node, line.label):
            last = _since_boot(other)
            if last is not None:
                return last
    return at


def _since_boot(line: LogLine) -> float | None:
    match = phrase("seconds-since-boot").search(line.text)
    return float(match["seconds"]) if match else None
