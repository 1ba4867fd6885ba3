"""Whether the evidence is of more than one job: then what one of them shows is not held against the other unsaid."""

from __future__ import annotations

from bisect import bisect_left

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase
from rerail.log_parsers.view import LogView

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
    return (None not in jobs and len(jobs) > 1) or _of_other_runs(case, a, b)


def _of_other_runs(case: Case, a: LogLine, b: LogLine) -> bool:
    """Tell whether a script began another of its runs between two lines of one file."""
    if a.file != b.file:
        return False
    begun = _runs(case, case.view(a))
    above = {_run_at(begun, line.number) for line in (a, b)}
    return "" not in above and len(above) > 1


def next_run(case: Case, line: LogLine) -> int | None:
    """Return the number of the line behind another one on which a script begins another of its runs, or None."""
    begun = _runs(case, case.view(line))
    own = _run_at(begun, line.number)
    return next((n for n, run in begun if own and n > line.number and run != own), None)


def _runs(case: Case, view: LogView) -> list[tuple[int, str]]:
    told = phrase("run-of-several")
    return [
        (number, match["run"] or match["run2"])
        for number in case.lines_with(view, "run-of-several")
        if (line := view.line(number)) and (match := told.search(line.message))
    ]


def _run_at(begun: list[tuple[int, str]], number: int) -> str:
    at = bisect_left(begun, (number, ""))
    return begun[at - 1][1] if at else ""


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
