"""What of an answer holds: citations are checked by code, and the status is capped by rule.

A citation counts when its line was shown. What a claim says is checked only where code can: a
quotation against the words of its line, a typed statement against the record of the diagnosis. All
else is cited at best, and marked. The model can agree, object or propose: it never raises a status
and never replaces the rules' verdict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from rerail.assistant.agent.answer import Answer
from rerail.assistant.agent.claims import Check, CheckedClaim, Claim
from rerail.assistant.agent.plain import plain, plain_line
from rerail.assistant.agent.restated import instructs, quotes
from rerail.assistant.agent.statements import check_statement
from rerail.assistant.agent_tools.shown import Shown
from rerail.domain.diagnosis import Diagnosis, Outcome, Status
from rerail.domain.incident import SnapshotLine
from rerail.knowledge_base.taxonomy import NO_FAILURE, leaves

_ENTITY = re.compile(r"[A-Za-z_][\w.-]*\d[\w.:-]*|\d[\w.,:-]*\d|\d")
_COUNTED = re.compile(r"^(?:rank|gpu|step|xid|line|seq)[_-]?(?=\d+$)")
_HANDLE = re.compile(r"\bL\d+\b")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?![\[(]\s*L\d)")
_NO_HANDLE_LEFT = re.compile(r"\s*[\[(][\s,;]*(?:and\s*)?[\])]")


@dataclass(frozen=True, slots=True)
class Grounded:
    """An answer after checking."""

    failure_type: str | None
    first_fault: SnapshotLine | None
    summary: str
    claims: tuple[CheckedClaim, ...] = ()
    rivals: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())
    summary_checks: tuple[CheckedClaim, ...] = ()
    summary_problem: str = ""
    summary_lines: tuple[str, ...] = ()

    @property
    def grounded_share(self) -> float:
        """Share of claims that code has checked; 0 when there is none."""
        return sum(c.holds for c in self.claims) / len(self.claims) if self.claims else 0.0

    @property
    def ballot(self) -> tuple[str | None, tuple[str, int] | None]:
        """What is voted on: behaviour, not wording."""
        at = self.first_fault
        return self.failure_type, None if at is None else (at.file, at.number)


def ground(answer: Answer, shown: Shown, diagnosis: Diagnosis | None = None) -> Grounded:
    """Check an answer against what was shown, and against the record where there is one."""
    problems = []
    leaf = answer.failure_type
    if leaf is not None and leaf not in leaves() and leaf != NO_FAILURE:
        problems.append(f"names a failure type that does not exist: {plain_line(leaf, most=60)}")
        leaf = None
    first = shown.find(answer.first_fault) if answer.first_fault else None
    if answer.first_fault and first is None:
        problems.append("cites a first fault that was not shown")
    if leaf is not None and leaf != NO_FAILURE and first is None:
        # A cause without a line is a guess; it must not win a vote.
        problems.append("names a cause without a line that shows it")
        leaf = None
    summary = check_text(plain(answer.summary, most=600), None, shown)
    return Grounded(
        failure_type=leaf,
        first_fault=first,
        summary=" ".join(one.text for one in summary),
        summary_checks=tuple(summary),
        summary_problem=next((one.problem for one in summary if one.problem), ""),
        summary_lines=tuple(dict.fromkeys(place for one in summary for place in one.lines)),
        claims=tuple(one for c in answer.claims for one in check_claim(c, shown, diagnosis)),
        rivals=tuple(
            (r.failure_type, plain_line(r.because, most=240))
            for r in answer.rivals
            if r.failure_type in leaves()
        ),
        missing=tuple(plain_line(m, most=240) for m in answer.missing if m.strip()),
        problems=tuple(problems),
    )


def check_claim(claim: Claim, shown: Shown, diagnosis: Diagnosis | None) -> list[CheckedClaim]:
    """Check one claim of an answer; free text is checked sentence by sentence."""
    if not claim.typed:
        return check_text(claim.text or claim.object, claim.lines, shown)
    one = check_statement(claim, shown, diagnosis)
    if instructs(claim.object):
        return [replace(one, check=Check.SUGGESTED, problem="tells somebody to do something")]
    return [one]


def check_text(text: str, handles: list[str] | None, shown: Shown) -> list[CheckedClaim]:
    """Check free text sentence by sentence: one that is quoted does not vouch for the next.

    `handles` are those of all sentences; None takes those that stand in each.
    """
    sentences = [part for part in _SENTENCE.split(text) if part.strip()]
    return [
        _check(part, _HANDLE.findall(part) if handles is None else handles, shown)
        for part in sentences
    ]


def _check(text: str, handles: list[str], shown: Shown) -> CheckedClaim:
    words = plain_line(_NO_HANDLE_LEFT.sub("", _HANDLE.sub("", text)))
    lines = [line for h in handles if (line := shown.find(h)) is not None]
    known = [name for h in handles if (name := shown.known(h)) is not None]
    places = tuple(dict.fromkeys([*(f"{x.file}:{x.number}" for x in lines), *known]))
    if instructs(words) or instructs(text):
        return CheckedClaim(words, places, "tells somebody to do something", Check.SUGGESTED)
    if not handles:
        return CheckedClaim(words, (), "cites nothing")
    if not places:
        return CheckedClaim(words, (), "cites a line that was not shown")
    if not lines:
        return CheckedClaim(words, places, "speaks of another incident")
    if quotes(words, lines):
        return CheckedClaim(words, places, check=Check.QUOTED)
    unknown = unsupported(words, lines)
    if unknown:
        return CheckedClaim(words, places, f"{unknown[0]} does not stand in the cited lines")
    return CheckedClaim(words, places, "says more than the cited lines")


def unsupported(text: str, lines: list[SnapshotLine]) -> list[str]:
    """Return the numbers and names with a digit in `text` that no line holds."""
    body = " ".join(
        f"{x.text} rank {'' if x.rank is None else x.rank} {x.node or ''} {x.file} {x.number} {x.time or ''}"
        for x in lines
    )
    known = {_bare(word) for word in _ENTITY.findall(body)}
    return [word for word in _ENTITY.findall(text) if _bare(word) not in known]


def _bare(word: str) -> str:
    """Return a word as it is compared: `rank2`, `Rank 2,` and `2` name the same number."""
    text = word.strip(".,:-").replace(",", "").lower()
    return _COUNTED.sub("", text)


def capped_status(
    diagnosis: Diagnosis, grounded: Grounded, *, votes: int, samples: int
) -> tuple[str, Status]:
    """Return how the answer stands to the rules' verdict, and the highest status it may have.

    agrees: the rules' status stays. disagrees: at most a hypothesis, shown beside the verdict.
    adds: the rules had no cause; a hypothesis where most samples agree and a claim holds.
    abstains: nothing to go by.
    """
    leaf = grounded.failure_type
    if leaf is None:
        return "abstains", Status.UNKNOWN
    if leaf == diagnosis.failure_type:
        return "agrees", diagnosis.status
    holds = any(claim.holds for claim in grounded.claims)
    firm = holds and votes * 2 > samples
    cap = Status.HYPOTHESIS if firm else Status.UNKNOWN
    if diagnosis.outcome is Outcome.INCONCLUSIVE and diagnosis.failure_type is None:
        return "adds", cap
    return "disagrees", cap
