"""Which rank printed what stands in an output that bears a number: the one of this number that ended by itself.

Launchers and job scripts give the output of each process a number, as the name of its file or as the heading above it.
What the number counts is known once the launcher says that just this rank ended.
"""

from __future__ import annotations

from rerail.domain.evidence import LogLine, Stream, Tier
from rerail.knowledge_base.phrases import phrase
from rerail.knowledge_base.placement.place import Answer, Asked


def of_numbered_output(asked: Asked) -> Answer[int] | None:
    """The only rank that ended by itself, where the line stands in the output of its number, beside others alike."""
    line = asked.line
    of_program = asked.event.tier in (Tier.LIBRARY, Tier.APPLICATION, Tier.GENERIC)
    if line.rank is not None or line.stream is Stream.KERNEL or not of_program:
        return None
    ended = {f.rank: f.line for f in asked.exits if f.code != 0 and f.how != "ordered"}
    if len(ended) != 1 or None in ended:
        return None
    ((rank, told),) = ended.items()
    here, all_of_them = _output_of(asked, line), _outputs(asked, line)
    if (
        here is None
        or here[1] != rank
        or len({number for front, number in all_of_them if front == here[0]}) < 2
    ):
        return None
    return Answer(
        rank, "it ended by itself, and the line stands in the output of this number", told
    )


def _output_of(asked: Asked, line: LogLine) -> tuple[str, int] | None:
    """Return what stands before the number of the output that a line is in, and the number."""
    view = asked.case.view(line)
    section = view.section(line.number)
    return _numbered(view.text(view.headings()[section - 1]) or "" if section else line.file)


def _outputs(asked: Asked, line: LogLine) -> list[tuple[str, int]]:
    view = asked.case.view(line)
    if view.section(line.number):
        names = [view.text(number) or "" for number in view.headings()]
    else:
        names = [one.name for one in asked.case.views]
    return [found for name in names if (found := _numbered(name)) is not None]


def _numbered(name: str) -> tuple[str, int] | None:
    found = phrase("numbered-output").fullmatch(name.strip())
    return (found["front"], int(found["number"])) if found is not None else None
