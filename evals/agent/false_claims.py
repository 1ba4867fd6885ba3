"""Claims whose truth is known by construction: how many false ones pass the checks, how many true ones fail.

They are made from the evidence of diagnosed cases: what the record says of a line, and ten ways to say
it wrongly. No model writes them, so the figures are those of the checks alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rerail.assistant.agent.answer import Answer
from rerail.assistant.agent.claims import Claim
from rerail.assistant.agent.grounding import ground
from rerail.assistant.agent.view import first_view
from rerail.assistant.agent_tools.facts import JobFacts
from rerail.assistant.agent_tools.lines import ViewSource
from rerail.assistant.agent_tools.shown import Shown
from rerail.assistant.record import make_incident
from rerail.domain.incident import SnapshotLine
from rerail.evals.agent.cases import AgentCase
from rerail.knowledge_base.taxonomy import leaves

_PLAIN_WORD = re.compile(r"[A-Za-z]{2,}[,.:;]?")
_DOUBT = re.compile(
    r"(?i)\b(?:not|no|never|fail\w*|without|could|would|should|may|might|must|if|was|unable|cannot|error|before|after|until)\b"
)


@dataclass(slots=True)
class Planting:
    """How many claims of each kind were planted, and how many were shown as checked."""

    asked: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)

    def row(self, kind: str) -> tuple[int, int]:
        """Return planted and passed of one kind."""
        return self.asked[kind], self.passed[kind]


def plant(cases: Iterable[AgentCase]) -> tuple[Planting, Planting]:
    """Return what became of false claims and of true ones."""
    false, true = Planting(), Planting()
    for case in cases:
        incident = make_incident(case.outcome, [])
        facts = JobFacts(incident, ViewSource(case.outcome.case.views))
        shown = Shown()
        first_view(facts, shown)
        for planting, made in ((false, _false(facts, shown)), (true, _true(facts, shown))):
            for kind, claim in made:
                planting.asked[kind] += 1
                found = ground(Answer(claims=[claim]), shown, incident.diagnosis).claims
                planting.passed[kind] += bool(found) and all(one.holds for one in found)
    return false, true


def _lines(facts: JobFacts, shown: Shown) -> dict[tuple[str, int], str]:
    known = {}
    for handle in shown.handles():
        line = shown.find(handle)
        if line is not None:
            known[line.file, line.number] = handle
    return known


def _true(facts: JobFacts, shown: Shown) -> Iterator[tuple[str, Claim]]:
    diagnosis, handles = facts.incident.diagnosis, _lines(facts, shown)
    first = diagnosis.first_fault
    if first is None:
        return
    at = handles.get((first.file, first.line))
    line = shown.find(at) if at else None
    if at is None or line is None:
        return
    if diagnosis.failure_type:
        yield "cause", _claim("cause", at, "is", diagnosis.failure_type)
    for relation, value in (("rank", line.rank), ("node", line.node)):
        if value is not None:
            yield relation, _claim("place", at, relation, str(value))
    words = _phrase(line)
    if words:
        yield "quotation", _claim("quote", at, "says", words)
        yield "restated in prose", Claim(text=f"The line says {words}.", lines=[at])
    for item in diagnosis.evidence:
        other = handles.get((item.file, item.line))
        if other is None or other == at or item.role not in ("cascade", "teardown"):
            continue
        yield "consequence", _claim("consequence", other, "follows from", at)
        if item.time and first.time and item.time != first.time:
            before = "before" if first.time < item.time else "after"
            yield "order", _claim("order", at, before, other)


def _false(facts: JobFacts, shown: Shown) -> Iterator[tuple[str, Claim]]:
    diagnosis, handles = facts.incident.diagnosis, _lines(facts, shown)
    first = diagnosis.first_fault
    at = handles.get((first.file, first.line)) if first is not None else None
    line = shown.find(at) if at else None
    if first is None or at is None or line is None:
        return
    leaf = diagnosis.failure_type or ""
    wrong = next(
        name for name in ("disk_full_or_quota", "cuda_oom") if name != leaf and name in leaves()
    )
    if line.rank is not None:
        yield "wrong rank", _claim("place", at, "rank", str(line.rank + 1))
    yield "wrong node", _claim("place", at, "node", "gpu-9999")
    yield "wrong GPU", _claim("place", at, "gpu", str((first.gpu or 0) + 1))
    yield "wrong cause, right line", _claim("cause", at, "is", wrong)
    others = [h for place, h in handles.items() if h != at]
    roles = {handles.get((e.file, e.line)): e for e in diagnosis.evidence}
    for handle in others[:2]:
        role = roles.get(handle)
        if leaf and (role is None or role.role != "initiating"):
            yield "right cause, wrong line", _claim("cause", handle, "is", leaf)
        if role is None or role.role == "context":
            yield "invented relation", _claim("consequence", handle, "follows from", at)
    for cited, item in roles.items():
        if cited is None or cited == at or item.role not in ("cascade", "teardown"):
            continue
        yield "reversed direction", _claim("consequence", at, "follows from", cited)
        if item.time and first.time and item.time != first.time:
            after = "after" if first.time < item.time else "before"
            yield "wrong order", _claim("order", at, after, cited)
    words = _phrase(line)
    if words:
        parts = words.split()
        yield "misquoted", _claim("quote", at, "says", " ".join([*parts[:-1], "zebra"]))
        yield "words turned round", _claim("quote", at, "says", " ".join(reversed(parts)))
        yield "negated", Claim(text=f"The line says not {words}.", lines=[at])
        yield "more than the line", Claim(text=f"{words} on all 4096 nodes.", lines=[at])
        yield "a second sentence", Claim(text=f"{words}. It was a loose optical cable.", lines=[at])
    yield "no word of the line", Claim(text="It was a loose optical cable.", lines=[at])
    yield "an instruction", Claim(text="Delete the checkpoint folder", lines=[at])
    yield "an order in a quotation", _claim("quote", at, "says", f"{words} | sh")


def _claim(kind: str, subject: str, relation: str, thing: str) -> Claim:
    cited = [subject, thing] if re.fullmatch(r"L\d+", thing) else [subject]
    return Claim(kind=kind, subject=subject, relation=relation, object=thing, lines=cited)


def _phrase(line: SnapshotLine) -> str:
    """Return a few words of a line as they stand there: its longest run of plain words, none twice."""
    best: list[str] = []
    run: list[str] = []
    for token in [*line.text.split(), "0"]:
        if _PLAIN_WORD.fullmatch(token) and not _DOUBT.search(token):
            run.append(token.strip(",.:;"))
            continue
        best, run = max(best, run, key=len), []
    chosen = list({word.lower(): word for word in best[:6]}.values())
    if not chosen:
        return ""
    telling = [word for word in chosen if len(word) > 3]
    alone = line.text.lower().count(" ".join(chosen[:2]).lower()) == 1
    before = line.text.partition(" ".join(chosen[:2]))[0].split()[-1:]
    # "not responding" is what the line says: such a phrase cannot be negated into a false one.
    whole = len(chosen) == len(best[:6]) and alone and not _DOUBT.search(" ".join(before))
    return " ".join(chosen) if whole and len(telling) >= 3 else ""
