"""A diagnosis as it is shown: sentences and rows, in the order in which people need them."""

from __future__ import annotations

from dataclasses import dataclass

from rerail.assistant.presentation.words import (
    action_words,
    role_word,
    status_word,
    type_words,
)
from rerail.domain.diagnosis import Diagnosis, Evidence, Outcome
from rerail.log_parsers.number_ranges import ranges
from rerail.tools.durations import seconds


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One cited line: its handle, where it stands, what it is in the story, and its text."""

    id: str
    file: str
    line: int
    role: str
    word: str
    text: str
    time: str
    rank: int | None
    node: str | None

    @property
    def at(self) -> str:
        """File and line as editors take them."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Row:
    """A sentence with the evidence that it cites."""

    text: str
    cites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowRow:
    """A function that profiles show to differ: on which ranks, in which way, and what it costs."""

    function: str
    ranks: str
    reason: str
    cost: str


@dataclass(frozen=True, slots=True)
class VerdictView:
    """Everything of a diagnosis that any face shows.

    `headline` is one sentence; `detail` goes on with the cause. `place` names file and line, node,
    rank, GPU and time of the first fault. `why_cause` and `why_here` are the two chains of reasons.
    """

    headline: str
    status: str
    decided: bool
    failed: bool
    type_id: str
    detail: str
    place: tuple[str, ...]
    first: EvidenceRow | None
    evidence: tuple[EvidenceRow, ...]
    followed: tuple[Row, ...]
    ruled_out: tuple[Row, ...]
    why_cause: tuple[Row, ...]
    why_here: tuple[Row, ...]
    attempts: tuple[str, ...]
    cost: tuple[str, ...]
    covers: tuple[str, ...]
    forecast: str
    baseline: tuple[str, ...]
    profiles: str
    slow: tuple[SlowRow, ...]
    history: tuple[Row, ...]
    do: str
    action: str
    missing: tuple[tuple[str, str], ...]
    elapsed_s: float
    placed: bool
    """Whether the verdict names a rank, a node or a GPU."""

    @property
    def sentence(self) -> str:
        """The headline with its full stop; three points are words that were cut and stand as they are."""
        return self.headline if self.headline.endswith("...") else f"{self.headline}."


def verdict_view(diagnosis: Diagnosis) -> VerdictView:
    """Return the view of a diagnosis, whatever face will show it."""
    rows = tuple(
        EvidenceRow(
            e.id, e.file, e.line, e.role, _role(e, diagnosis), e.text.strip(), e.time or "", e.rank, e.node
        )
        for e in diagnosis.evidence
    )  # fmt: skip
    headline = diagnosis.headline or diagnosis.summary
    return VerdictView(
        # Three points are words that were cut, and no full stop.
        headline=headline if headline.endswith("...") else headline.rstrip("."),
        status=status_word(diagnosis),
        decided=diagnosis.outcome is not Outcome.INCONCLUSIVE,
        failed=diagnosis.outcome is Outcome.FAILURE,
        type_id=diagnosis.failure_type or "",
        detail=diagnosis.summary.removeprefix(diagnosis.headline.rstrip(".")).lstrip(". "),
        place=_place(diagnosis),
        first=next((row for row in rows if row.role == "initiating"), None),
        evidence=rows,
        followed=_followed(diagnosis),
        ruled_out=tuple(
            Row(f"{type_words(r.failure_type)}: {r.because}", tuple(r.evidence))
            for r in diagnosis.ruled_out
        ),
        why_cause=_why_cause(diagnosis),
        why_here=tuple(
            Row(f"{r.what}: {r.because}", (r.evidence,) if r.evidence else ())
            for r in diagnosis.place
        ),
        attempts=_attempts(diagnosis),
        cost=_cost(diagnosis),
        covers=(*diagnosis.cost.covers, *diagnosis.cost.left_out),
        forecast="" if diagnosis.forecast is None else diagnosis.forecast.says,
        baseline=tuple(f"{one.status}: {one.says}" for one in diagnosis.baseline),
        profiles="" if diagnosis.profiles is None else diagnosis.profiles.says,
        slow=_slow(diagnosis),
        history=_history(diagnosis),
        do=_do(diagnosis),
        action=str(diagnosis.recovery.action),
        missing=tuple((m.what, m.how_to_get) for m in diagnosis.missing),
        elapsed_s=diagnosis.elapsed_s,
        placed=any((diagnosis.suspects.ranks, diagnosis.suspects.nodes, diagnosis.suspects.gpus)),
    )


def _slow(diagnosis: Diagnosis) -> tuple[SlowRow, ...]:
    if diagnosis.profiles is None:
        return ()
    return tuple(
        SlowRow(
            one.function, ranges(sorted(one.ranks)) or "all", one.reason,
            f"{seconds(one.lost_per_step_s)} a step" if one.lost_per_step_s > 0 else "",
        )
        for one in diagnosis.profiles.functions
    )  # fmt: skip


def _place(diagnosis: Diagnosis) -> tuple[str, ...]:
    first = diagnosis.first_fault
    if first is None:
        return ()
    parts = [f"{first.file}:{first.line}"]
    parts += [f"node {first.node}"] if first.node else []
    parts += [f"rank {first.rank}"] if first.rank is not None else []
    parts += [f"GPU {first.gpu}"] if first.gpu is not None else []
    parts += [first.time] if first.time else []
    return tuple(parts)


def _role(line: Evidence, diagnosis: Diagnosis) -> str:
    """What a line is in the story; a rank that hangs prints nothing, so the first sign of it is told by another."""
    first = diagnosis.first_fault
    rank = first.rank if first is not None else None
    at_fault = [rank] if rank is not None else diagnosis.suspects.ranks
    by_another = line.rank is not None and bool(at_fault) and line.rank not in at_fault
    undecided = diagnosis.outcome is Outcome.INCONCLUSIVE
    return role_word(line.role, by_another=by_another, undecided=undecided)


def _followed(diagnosis: Diagnosis) -> tuple[Row, ...]:
    rows = []
    for item in diagnosis.consequences:
        ranks = f", ranks {ranges(item.ranks)}" if item.ranks else ""
        what = f": {item.what.strip()}" if item.what.strip() else ""
        rows.append(Row(f"{item.count} x {type_words(item.failure_type)}{ranks}{what}"))
    return tuple(rows)


def _why_cause(diagnosis: Diagnosis) -> tuple[Row, ...]:
    first = next((e.id for e in diagnosis.evidence if e.role == "initiating"), None)
    return tuple(
        Row(f"explains {r.effect}: {r.because}", (r.effect,))
        for r in diagnosis.relations
        if r.cause == first
    )


def _attempts(diagnosis: Diagnosis) -> tuple[str, ...]:
    if len(diagnosis.attempts) < 2:
        return ()
    found = []
    for attempt in diagnosis.attempts:
        steps = (
            "no step"
            if attempt.last_step is None
            else f"steps {attempt.first_step}-{attempt.last_step}"
        )
        found.append(f"attempt {attempt.number}: {steps}, {attempt.ended}")
    return tuple(found)


def _cost(diagnosis: Diagnosis) -> tuple[str, ...]:
    cost, parts = diagnosis.cost, []
    if cost.idle_gpu_hours is not None:
        parts.append(f"idle {cost.idle_gpu_hours:g} GPU-h")
    if cost.lost_steps is not None:
        parts.append(f"{cost.lost_steps} steps since the last checkpoint")
    return tuple(parts)


def _history(diagnosis: Diagnosis) -> tuple[Row, ...]:
    return tuple(
        Row(
            f"{node.says}: "
            + ", ".join(
                f"{past.time[:10]} {type_words(past.failure_type)} ({past.incident})"
                for past in node.failures[:4]
            ),
            tuple(past.incident for past in node.failures[:4]),
        )
        for node in diagnosis.history
    )


def _do(diagnosis: Diagnosis) -> str:
    target = ", ".join(diagnosis.recovery.targets.nodes)
    return f"{action_words(str(diagnosis.recovery.action))}{f' ({target})' if target else ''}"
