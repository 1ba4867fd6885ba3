"""The first thing a model sees of a job: bounded, quoted, the same for every size of log.

At most 12 kB of text that came from logs, for any job: the cited lines first, then templates with
counts and typed slots, then the end of the guilty file. What else it needs it asks the tools for.
"""

from __future__ import annotations

import re

from rerail.assistant.agent.slots import typed
from rerail.assistant.agent_tools.facts import JobFacts
from rerail.assistant.agent_tools.shown import Shown
from rerail.domain.diagnosis import Diagnosis, Outcome
from rerail.domain.incident import SnapshotLine, TemplateCount
from rerail.knowledge_base.learning.learned import filter_patterns
from rerail.log_parsers.masks import is_protected

MOST_LOG_BYTES = 12_000
_CITED, _TEMPLATES, _END = 5_500, 3_500, 3_000
_SMALL = (1_600, 500, 700)  # for models with a context of about 4,000 tokens


def first_view(facts: JobFacts, shown: Shown, *, blind: bool = False, small: bool = False) -> str:
    """Return the opening message on an incident; its lines get handles in `shown`.

    `blind` leaves the verdict out, to measure what a model finds by itself; `small` shows a quarter.
    """
    diagnosis = facts.incident.diagnosis
    room_cited, room_templates, room_end = _SMALL if small else (_CITED, _TEMPLATES, _END)
    cited = shown.quote_lines(_cited(facts), most_bytes=room_cited)
    parts = [
        "" if blind else "The verdict of the rules (made by code, before you were asked):",
        "" if blind else _verdict(diagnosis),
        "Lines that rules hit:" if blind else "Lines that the verdict rests on, and its rivals:",
        cited,
        "" if blind else _roles(facts, shown),
        "Kinds of lines, with counts; <num>, <path>, <text> stand for what varies:",
        shown.quote(_templates(facts.incident.snapshot.templates), most_bytes=room_templates),
        "The end of the file with the first fault:",
        shown.quote_lines(_end(facts), most_bytes=room_end),
    ]
    return "\n\n".join(part for part in parts if part)


def _verdict(diagnosis: Diagnosis) -> str:
    # Only words of the taxonomy and numbers: the summary may quote the log, and stays out.
    rows = [
        f"outcome {diagnosis.outcome}, status {diagnosis.status}, "
        f"failure type {diagnosis.failure_type or 'none'}"
    ]
    if diagnosis.suspects.ranks:
        rows.append(f"suspect ranks: {diagnosis.suspects.ranks[:16]}")
    for rival in diagnosis.ruled_out[:6]:
        rows.append(f"ruled out: {rival.failure_type}")
    for one in diagnosis.consequences[:6]:
        rows.append(f"followed by {one.count} x {one.failure_type}")
    if diagnosis.outcome is Outcome.INCONCLUSIVE:
        rows.append("The rules do not know the cause. A hypothesis of yours would be welcome.")
    return "\n".join(rows)


def _cited(facts: JobFacts) -> list[SnapshotLine]:
    lines = []
    for item in facts.incident.diagnosis.evidence:
        kept = facts.lines.get(item.file, item.line)
        lines.append(
            kept
            or SnapshotLine(
                file=item.file, number=item.line, text=item.text, rank=item.rank, node=item.node
            )
        )
    return lines


def _roles(facts: JobFacts, shown: Shown) -> str:
    """Say which role the rules gave to each cited line, by handle."""
    rows = []
    known = set(shown.handles())
    for item, line in zip(facts.incident.diagnosis.evidence, _cited(facts), strict=True):
        handle = shown.handle(line) if _was_shown(shown, line, known) else None
        if handle is not None:
            rows.append(f"{handle} {item.role}")
    return "Roles by the rules: " + ", ".join(rows) if rows else ""


def _was_shown(shown: Shown, line: SnapshotLine, known: set[str]) -> bool:
    return any(
        (found := shown.find(h)) is not None
        and (found.file, found.number) == (line.file, line.number)
        for h in known
    )


def _templates(templates: tuple[TemplateCount, ...]) -> list[str]:
    counts: dict[str, int] = {}
    routine = [re.compile(pattern) for pattern in filter_patterns()]
    for one in templates:
        # A line printed once is a quotation, not a template; only one that names an error is worth it.
        if one.count == 1 and not is_protected(one.text):
            continue
        # A filter was judged never to touch an error; the protected words are checked once more.
        if not is_protected(one.text) and any(p.search(one.sample) for p in routine):
            continue
        text = typed(one.sample or one.text)[:200]
        counts[text] = counts.get(text, 0) + one.count
    return [f"{count} x | {text}" for text, count in counts.items()]


def _end(facts: JobFacts) -> list[SnapshotLine]:
    first = facts.incident.diagnosis.first_fault
    files = facts.lines.files()
    file = first.file if first is not None else (files[-1] if files else None)
    if file is None:
        return []
    lines = facts.lines.around(file, 1 << 60, 1 << 60, 0)
    return [line for line in lines if line.text.strip()][-25:]
