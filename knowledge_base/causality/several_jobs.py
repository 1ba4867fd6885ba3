"""Whether the evidence is of more than one job: then what one of them shows is not held against the other unsaid."""

from __future__ import annotations

from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase

_MOST_FILES = 20_000


def jobs_in(case: Case) -> tuple[str, ...]:
    """Return the numbers of the jobs that names of files and headings of sections tell, where there are several."""
    pattern = phrase("job-of-file")
    names = [view.name for view in case.views[:_MOST_FILES]]
    names += [
        word.strip("():")
        for view in case.views[:_MOST_FILES]
        for start in view.headings()
        for word in (view.text(start) or "").split()
    ]
    found = {match["job"] or match["job2"] for name in names if (match := pattern.search(name))}
    return tuple(sorted(found)) if len(found) > 1 else ()
