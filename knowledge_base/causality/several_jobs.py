"""Whether the evidence is of more than one job: then what one of them shows is not held against the other unsaid."""

from __future__ import annotations

from rerail.domain.evidence import LogLine, Observation
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase

_MOST_FILES = 20_000


def jobs_in(case: Case) -> tuple[str, ...]:
    """Return the numbers of the jobs that names of files and headings of sections tell, where there are several."""
    found = {
        job
        for view in case.views[:_MOST_FILES]
        for text in (view.name, *(view.text(start) or "" for start in view.headings()))
        if (job := _job_in(text)) is not None
    }
    return tuple(sorted(found)) if len(found) > 1 else ()


def of_other_jobs(case: Case, a: LogLine, b: LogLine) -> bool:
    """Tell whether two lines stand in the output of two jobs, by the headings above them or the names of their files."""
    jobs = {_job_of(case, line) for line in (a, b)}
    return None not in jobs and len(jobs) > 1


def next_run(case: Case, raised: Observation) -> int | None:
    """Return the line on which a script begins another of its runs right behind an exception that ended one, or None.

    The other run must train from its beginning: a next try, or job of a chain, goes on where the last one was.
    """
    if not raised.lines or not case.says("run-of-several"):
        return None
    line = raised.line
    view, told = case.view(line), phrase("run-of-several")
    begun = {
        number: match["run"] or match["run2"]
        for number in case.lines_with(view, "run-of-several")
        if (one := view.line(number)) and (match := told.search(one.message))
    }
    own = max((number for number in begun if number < line.number), default=None)
    other = min((number for number in begun if number > line.number), default=None)
    if own is None or other is None or begun[own] == begun[other]:
        return None
    first, again = (
        next(
            (row.step for row in view.survey.steps if row.line > at and row.step is not None), None
        )
        for at in (own, other)
    )
    if first is None or again is None or again > first:
        return None
    between = (view.text(number) or "" for number in view.between(line.number + 1, other - 1))
    return other if not any(text.strip() for text in between) else None


def _job_of(case: Case, line: LogLine) -> str | None:
    view = case.view(line)
    section = view.section(line.number)
    above = _job_in(view.text(view.headings()[section - 1]) or "") if section else None
    return above or _job_in(view.name)


def _job_in(text: str) -> str | None:
    """Return the number of the job whose output a heading or the name of a file tells of."""
    pattern = phrase("job-of-file")
    names = (text, *(word.strip("():") for word in text.split()))
    match = next((match for name in names if (match := pattern.search(name))), None)
    return match["job"] or match["job2"] if match else None
