"""Questions that the record answers without a model: why, what else, which ranks, what changed, seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rerail.assistant.chat.lines import Line
from rerail.assistant.postmortem.impact import impact_of, in_words
from rerail.assistant.presentation.words import action_words, type_words
from rerail.knowledge_base.store.incidents import IncidentFile, IncidentRow
from rerail.knowledge_base.taxonomy import leaves
from rerail.log_parsers.number_ranges import ranges

Question = Callable[[IncidentFile, Sequence[IncidentRow]], list[Line]]


def why(file: IncidentFile, alike: Sequence[IncidentRow]) -> list[Line]:
    """Say what the verdict rests on."""
    diagnosis = file.diagnosis
    lines = [Line(diagnosis.summary)]
    for item in diagnosis.evidence:
        if item.role == "initiating":
            lines.append(Line(f"{item.text[:300]} [{item.id}]"))
    if diagnosis.first_fault is not None and diagnosis.first_fault.rule:
        lines.append(
            Line(
                f"Rule {diagnosis.first_fault.rule} saw it; the status is {diagnosis.status}.",
                "dim",
            )
        )
    for reason in diagnosis.place:
        cited = f" [{reason.evidence}]" if reason.evidence else ""
        lines.append(Line(f"It is placed on {reason.what}: {reason.because}{cited}"))
    for rival in diagnosis.ruled_out[:3]:
        lines.append(
            Line(
                f"Not {type_words(rival.failure_type)}: {rival.because} [{', '.join(rival.evidence)}]"
            )
        )
    return lines


def what_else(file: IncidentFile, alike: Sequence[IncidentRow]) -> list[Line]:
    """Say which rivals there were, what followed, and what is missing."""
    diagnosis = file.diagnosis
    lines = [
        Line(
            f"Ruled out: {type_words(r.failure_type)}, since {r.because} [{', '.join(r.evidence)}]"
        )
        for r in diagnosis.ruled_out
    ]
    if not lines:
        lines.append(Line("The evidence holds no rival cause."))
    lines += [
        Line(
            f"Followed: {c.count} x {type_words(c.failure_type)}"
            + (f" on ranks {ranges(c.ranks)}" if c.ranks else "")
        )
        for c in diagnosis.consequences[:6]
    ]
    lines += [Line(f"Missing: {m.what}. To get it: {m.how_to_get}") for m in diagnosis.missing]
    return lines


def which_ranks(file: IncidentFile, alike: Sequence[IncidentRow]) -> list[Line]:
    """Say who is held responsible and who only suffered."""
    suspects = file.diagnosis.suspects
    ranks = file.incident.snapshot.ranks
    lines = []
    if suspects.ranks or suspects.nodes or suspects.gpus:
        parts = []
        for noun, names, text in (
            ("rank", suspects.ranks, ranges(sorted(suspects.ranks))),
            ("node", suspects.nodes, ", ".join(suspects.nodes)),
            ("GPU", suspects.gpus, ", ".join(str(g.gpu) for g in suspects.gpus)),
        ):
            parts += [f"{noun}{'s' if len(names) > 1 else ''} {text}"] if names else []
        lines.append(Line(f"Held responsible: {'; '.join(parts)}."))
    else:
        lines.append(Line("No rank, node or GPU is held responsible."))
    for part, text in (
        ("reported", "Reported the failure"),
        ("consequence", "Hit by the consequences"),
        ("quiet", "Reported nothing of it"),
    ):
        members = [r.rank for r in ranks if r.part == part]
        if members:
            lines.append(
                Line(
                    f"{text}: {len(members)} rank{'s' if len(members) > 1 else ''} ({ranges(members)[:200]})."
                )
            )
    reached = {r.last_step for r in ranks if r.last_step is not None}
    if len(reached) > 1:
        behind = [r.rank for r in ranks if r.last_step is not None and r.last_step < max(reached)]
        lines.append(Line(f"Last step {max(reached)}; behind it: ranks {ranges(behind)[:200]}."))
    return lines


def what_changed(file: IncidentFile, alike: Sequence[IncidentRow]) -> list[Line]:
    """Compare attempts and versions, as far as the record tells."""
    diagnosis = file.diagnosis
    lines = []
    for attempt in diagnosis.attempts:
        steps = (
            "no step"
            if attempt.last_step is None
            else f"steps {attempt.first_step} to {attempt.last_step}"
        )
        lines.append(Line(f"Attempt {attempt.number}: {steps}, {attempt.ended}."))
    versions = file.incident.snapshot.versions
    if versions:
        lines.append(Line("Versions: " + ", ".join(f"{k} {v}" for k, v in versions.items()) + "."))
    before = ""
    for entry in file.timeline:
        if entry.kind not in ("diagnosed", "diagnosed_again"):
            continue
        verdict = entry.text.partition(":")[0]  # failure type and status
        if before and verdict != before:
            when = entry.time[:19].replace("T", " ")
            lines.append(Line(f"The verdict changed at {when} from {before}: {entry.text[:200]}"))
        before = verdict
    for history in diagnosis.history:
        lines.append(Line(f"{history.says[0].upper()}{history.says[1:]}."))
    if not lines:
        lines.append(
            Line("The record shows one attempt and names no version: no change is visible.")
        )
    return lines


def seen_before(file: IncidentFile, alike: Sequence[IncidentRow]) -> list[Line]:
    """Say which incidents on record had the same cause."""
    if not file.row.failed:
        return [Line("It is no failure: there is nothing to compare.")]
    if not alike:
        return [Line("Unseen: no other incident on record is like this one.")]
    lines = []
    for row in alike[:5]:
        how = (
            "on the same node and GPU"
            if file.row.entity is not None and row.entity == file.row.entity
            else "seen by the same rule"
            if row.fingerprint == file.row.fingerprint
            else "of the same type"
        )
        said = ", signed off" if row.signed_off_at else ""
        lines.append(
            Line(f"{row.time[:16].replace('T', ' ')} {row.id}: {row.true_type}, {how}{said}")
        )
    return lines


def cost(file: IncidentFile, alike: Sequence[IncidentRow]) -> list[Line]:
    """Say what the incident cost."""
    impact = impact_of(file.incident)
    if impact.gpu_hours is None:
        return [Line("The record does not tell what it cost: times or checkpoints are missing.")]
    lines = [Line(f"{impact.gpu_hours:g} GPU hours on {impact.gpus or '?'} GPUs.")]
    if impact.unnoticed_s is not None:
        lines.append(Line(f"The first sign elsewhere came after {in_words(impact.unnoticed_s)}."))
    return lines


def what_to_do(file: IncidentFile, alike: Sequence[IncidentRow]) -> list[Line]:
    """Repeat the recommendation; nothing can be done from here."""
    recovery = file.diagnosis.recovery
    leaf = leaves().get(file.row.true_type or "")
    lines = [Line(f"Recommended: {action_words(recovery.action)}. {recovery.reason}")]
    if leaf is not None:
        lines.append(
            Line(f"The usual action for {type_words(leaf.id)}: {action_words(leaf.action)}.", "dim")
        )
    lines.append(Line(f"Nothing was done. The plan: rerail plan {file.row.id}"))
    return lines


_QUESTIONS: tuple[tuple[re.Pattern[str], Question], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), question)
    for pattern, question in (
        (
            r"\bwhy not|\bwhat (?:else|other)|is(?: it|n.t it) (?:not )?the|rival|ruled out|could it be|alternative",
            what_else,
        ),
        (r"\bwh(?:ich|at) (?:rank|node|gpu)|\bwho\b|culprit|responsible|suspect", which_ranks),
        (r"\bwhat (?:has )?changed|differen|since (?:when|last)|attempt", what_changed),
        (r"\bseen\b|\bbefore\b|again|similar|known|happen(?:ed)? (?:before|often)", seen_before),
        (r"\bcost|\blost\b|how (?:long|much)|gpu.?hours", cost),
        (
            r"\bwhat (?:now|to do|should|next|can)|how (?:do|can|to) .{0,20}(?:fix|solve)|recommend",
            what_to_do,
        ),
        (r"\bwhy\b|what happened|cause|reason|explain|what (?:is|was) (?:it|wrong)", why),
    )
)


def find_question(text: str) -> Question | None:
    """Return the canned question that a text asks, if any."""
    return next((question for pattern, question in _QUESTIONS if pattern.search(text)), None)
