"""Typed claims: the sentence is written here, and its parts are compared with the record.

What the record knows of a line is its rank, node and time, and the role that the rules gave it. A
statement that the record contradicts is told as such; one that it does not know is cited, no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rerail.assistant.agent.claims import Check, CheckedClaim, Claim
from rerail.assistant.agent.plain import plain_line
from rerail.assistant.agent.restated import quotes
from rerail.assistant.agent_tools.shown import Shown
from rerail.domain.diagnosis import Diagnosis, Evidence
from rerail.domain.incident import SnapshotLine
from rerail.knowledge_base.taxonomy import leaves

_Judged = tuple[str, str]
"""The sentence; why it is not checked, empty where the record agrees."""


def check_statement(claim: Claim, shown: Shown, diagnosis: Diagnosis | None) -> CheckedClaim:
    """Return a typed claim as a sentence, with how far the record agrees."""
    subject = shown.find(claim.subject)
    if subject is None:
        known = shown.known(claim.subject)
        said = f"{claim.subject} {claim.relation} {claim.object}"
        why = "speaks of another incident" if known else "is about a line that was not shown"
        return CheckedClaim(plain_line(said), (known,) if known else (), why)
    text, problem = _JUDGES[claim.kind](claim, subject, shown, diagnosis)
    other = shown.find(claim.object)
    places = [f"{x.file}:{x.number}" for x in (subject, other) if x is not None]
    check = Check.QUOTED if claim.kind == "quote" else Check.STRUCTURED
    return CheckedClaim(
        plain_line(text),
        tuple(dict.fromkeys(places)),
        problem,
        Check.CITED if problem else check,
    )


def _quote(claim: Claim, line: SnapshotLine, shown: Shown, diagnosis: Diagnosis | None) -> _Judged:
    holds = quotes(claim.object, [line])
    text = f'{_place(line)} says "{claim.object}"'
    return text, "" if holds else "the line does not say so"


def _placed(claim: Claim, line: SnapshotLine, shown: Shown, diagnosis: Diagnosis | None) -> _Judged:
    value = claim.object.strip().lower()
    relation = claim.relation.strip().lower()
    known = {"rank": "" if line.rank is None else str(line.rank), "node": (line.node or "").lower()}
    if diagnosis is not None and diagnosis.first_fault is not None:
        first = diagnosis.first_fault
        if (first.file, first.line) == (line.file, line.number):
            known["gpu"] = "" if first.gpu is None else str(first.gpu)
            known["node"] = known["node"] or (first.node or "").lower()
            known["rank"] = known["rank"] or ("" if first.rank is None else str(first.rank))
    text = f"{_place(line)} belongs to {relation} {claim.object}"
    if relation not in ("rank", "node", "gpu"):
        return text, "names no rank, node or GPU"
    own = known.get(relation, "")
    if not own:
        return text, f"the record does not know the {relation} of that line"
    wanted = re.sub(rf"^{relation}\s*[ :=#]\s*", "", value)
    return text, "" if wanted == own else f"the line belongs to {relation} {own}"


def _order(claim: Claim, line: SnapshotLine, shown: Shown, diagnosis: Diagnosis | None) -> _Judged:
    other = shown.find(claim.object)
    relation = claim.relation.strip().lower()
    if other is None or relation not in ("before", "after"):
        return f"{_place(line)} {relation} {claim.object}", "compares no two lines that were shown"
    text = f"{_place(line)} came {relation} {_place(other)}"
    earlier = _earlier(line, other, diagnosis)
    if earlier is None:
        return text, "the record does not tell their order"
    return text, "" if earlier == (
        relation == "before"
    ) else "the record has it the other way round"


def _earlier(one: SnapshotLine, other: SnapshotLine, diagnosis: Diagnosis | None) -> bool | None:
    """Tell whether one line came before another: by their times, else by their place in one file."""
    times = [line.time or _time_of(line, diagnosis) for line in (one, other)]
    if times[0] and times[1] and times[0] != times[1]:
        return times[0] < times[1]
    if one.file == other.file and one.number != other.number:
        # Ranks that print into one file are mixed by its buffers; one rank's lines are in order.
        if one.rank == other.rank:
            return one.number < other.number
    return None


def _time_of(line: SnapshotLine, diagnosis: Diagnosis | None) -> str | None:
    found = _evidence(line, diagnosis)
    return None if found is None else found.time


def _consequence(
    claim: Claim, line: SnapshotLine, shown: Shown, diagnosis: Diagnosis | None
) -> _Judged:
    other = shown.find(claim.object)
    if other is None:
        return (
            f"{_place(line)} {claim.relation} {claim.object}",
            "names no other line that was shown",
        )
    text = f"{_place(line)} follows from {_place(other)}"
    effect, cause = _evidence(line, diagnosis), _evidence(other, diagnosis)
    if effect is None or cause is None:
        return text, "the rules gave one of the lines no role"
    if cause.role == "initiating" and effect.role in ("cascade", "teardown"):
        return text, ""
    if effect.role == "initiating" and cause.role in ("cascade", "teardown"):
        return text, "the record has it the other way round"
    return text, "the record knows no such relation"


def _cause(claim: Claim, line: SnapshotLine, shown: Shown, diagnosis: Diagnosis | None) -> _Judged:
    leaf = claim.object.strip()
    text = f"{_place(line)} is the first fault, {leaf}"
    if leaf not in leaves():
        return text, "there is no such failure type"
    found = _evidence(line, diagnosis)
    first = diagnosis.first_fault if diagnosis is not None else None
    at_first = first is not None and (first.file, first.line) == (line.file, line.number)
    if not at_first and (found is None or found.role != "initiating"):
        return text, "the rules do not take that line for the first fault"
    if diagnosis is None or diagnosis.failure_type != leaf:
        return text, "the rules come to another cause"
    return text, ""


_JUDGES: dict[
    str, Callable[[Claim, SnapshotLine, Shown, Diagnosis | None], _Judged]
] = {
    "quote": _quote,
    "place": _placed,
    "order": _order,
    "consequence": _consequence,
    "cause": _cause,
}  # fmt: skip


def _evidence(line: SnapshotLine, diagnosis: Diagnosis | None) -> Evidence | None:
    if diagnosis is None:
        return None
    return next(
        (e for e in diagnosis.evidence if (e.file, e.line) == (line.file, line.number)), None
    )


def _place(line: SnapshotLine) -> str:
    return f"{line.file}:{line.number}"
