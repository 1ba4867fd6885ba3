"""The evidence that stays with an incident: a bounded, redacted copy of what the verdict rests on.

Logs are rotated away within days; the record must still answer why, which ranks, and since when.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from typing import Literal

from rerail.assistant.pipeline import Outcome
from rerail.domain.evidence import LogLine, Role
from rerail.domain.incident import (
    RankFact,
    SeriesSnapshot,
    Snapshot,
    SnapshotLine,
    SourceFile,
    TemplateCount,
)
from rerail.domain.job import Allocation, NodeShare
from rerail.knowledge_base.causality.diagnosis_record import iso
from rerail.knowledge_base.causality.progress import step_rows
from rerail.lazy_patterns import lazy
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.view import LogView

MOST_LINES = 600
MOST_BYTES = 120_000
LINE_BYTES = 600
_AROUND = 8
_TAIL = 40
_POINTS = 600
_RECENT = 200
_MOST_RANKS = 131_072
_MOST_FILES = 4096
_MOST_LABELS = 8192  # step lines whose labels are looked at
_MOST_TEMPLATES = 60
_HEAD = 2_000  # lines of a file in which versions are told
_MINED_BYTES = 1 << 20  # more kept text than this is only mined when the reader already did
_VERSIONS = {
    "torch": lazy(r"(?i)\b(?:py)?torch(?: version|==|:)[ :=]*v?(\d+\.\d+[\w.+]*)"),
    "nccl": lazy(r"\bNCCL version (\d+\.\d+[\w.+]*)"),
    "cuda": lazy(r"(?i)\bcuda(?: version|_version|toolkit)?[ :=]+v?(\d+\.\d+(?:\.\d+)?)\b"),
    "driver": lazy(r"(?i)\b(?:NVIDIA-SMI|driver version:?) +(\d{3}\.\d+[\w.]*)"),
    "transformers": lazy(r"\btransformers==(\d+\.\d+[\w.]*)"),
    "deepspeed": lazy(r"(?i)\bdeepspeed(?: info:)? version=?(\d+\.\d+[\w.]*)"),
}


def take_snapshot(outcome: Outcome) -> Snapshot:
    """Return the snapshot of a diagnosed job."""
    return Snapshot(
        sources=_sources(outcome),
        lines=tuple(_lines(outcome)),
        templates=tuple(_templates(outcome)),
        series=tuple(_series(outcome)),
        ranks=tuple(_ranks(outcome)),
        allocation=_allocation(outcome),
        versions=_versions(outcome),
    )


def _sources(outcome: Outcome) -> tuple[SourceFile, ...]:
    found = []
    for view in outcome.collection.views[:_MOST_FILES]:
        one = view.survey
        digest = sha256(f"{one.size}|{one.lines}|".encode())
        for number in view.numbers[:100] + view.numbers[-100:]:
            digest.update(one.kept[number])
            digest.update(b"\n")
        found.append(
            SourceFile(
                name=view.name,
                size_bytes=one.size,
                lines=one.lines,
                digest=digest.hexdigest()[:32],
                marks=one.marks.kept(),
            )
        )
    for one in outcome.collection.binaries[: _MOST_FILES - len(found)]:
        body = sha256(f"{one.size}|".encode() + one.head).hexdigest()[:32]
        found.append(SourceFile(name=one.source.name, size_bytes=one.size, digest=body))
    return tuple(found)


def _wanted(outcome: Outcome) -> Iterator[tuple[str, int]]:
    """Yield (file, line) by importance: cited, hit, around the cited, the end of the guilty file."""
    evidence = outcome.diagnosis.evidence
    yield from ((e.file, e.line) for e in evidence)
    by_role: dict[Role, int] = defaultdict(int)
    for role in (Role.INITIATING, Role.CASCADE, Role.TEARDOWN, Role.SUCCESS, Role.CONTEXT):
        for observation in outcome.case.with_role(role):
            by_role[role] += 1
            if by_role[role] > 60:
                break
            yield observation.line.file, observation.line.number
            yield from ((x.file, x.number) for x in observation.lines[-12:])
    for item in evidence:
        for distance in range(1, _AROUND + 1):
            yield item.file, item.line - distance
            yield item.file, item.line + distance
    first = outcome.diagnosis.first_fault
    for view in outcome.case.views:
        if first is not None and view.name == first.file:
            yield from ((view.name, n) for n in reversed(view.numbers[-_TAIL:]))
    for view in outcome.case.views:
        yield from ((view.name, n) for n in reversed(view.numbers[-3:]))
    if first is None:
        # The rules saw no fault: what a person may point at is most likely near an end.
        for view in outcome.case.views:
            yield from ((view.name, n) for n in reversed(view.numbers[-_TAIL:]))


def _lines(outcome: Outcome) -> list[SnapshotLine]:
    views = {view.name: view for view in outcome.case.views}
    taken: dict[tuple[str, int], LogLine] = {}
    size = 0
    for file, number in _wanted(outcome):
        view = views.get(file)
        if view is None or (file, number) in taken:
            continue
        line = view.line(number)
        if line is None or not line.text.strip():
            continue
        size += min(len(line.whole), LINE_BYTES) + 40
        if len(taken) >= MOST_LINES or size > MOST_BYTES:
            break
        taken[file, number] = line
    order = {view.name: view.index for view in outcome.case.views}
    return [
        snapshot_line(taken[key], iso(outcome.case.time(taken[key])))
        for key in sorted(taken, key=lambda k: (order[k[0]], k[1]))
    ]


def snapshot_line(line: LogLine, time: str | None) -> SnapshotLine:
    """Return a log line in the form that is stored."""
    return SnapshotLine(
        file=line.file,
        number=line.number,
        text=line.whole[:LINE_BYTES],
        time=time,
        rank=line.rank,
        node=line.node,
        stream=str(line.stream),
    )


def _templates(outcome: Outcome) -> list[TemplateCount]:
    from rerail.log_parsers.job_templates import JobTemplates
    from rerail.log_parsers.masks import is_protected
    from rerail.log_parsers.mined import miner_of
    from rerail.log_parsers.text import clean

    kept = sum(len(line) for v in outcome.case.views for line in v.survey.kept.values())
    if kept > _MINED_BYTES and not all(v.survey.miner for v in outcome.case.views):
        return []
    job = JobTemplates((view.name, miner_of(view)) for view in outcome.case.views)
    rare = [t for t in job.templates if is_protected(t.template.text)]
    chosen = job.templates[: _MOST_TEMPLATES // 2]
    chosen += [t for t in rare if t not in chosen][: _MOST_TEMPLATES - len(chosen)]
    return [
        TemplateCount(
            text=t.template.text[:240],
            count=t.template.count,
            file=t.first_file,
            first_line=max(1, t.template.first_line),
            sample=clean(t.template.sample)[:240],
        )
        for t in chosen
        if t.template.text.strip()
    ]


def _series(outcome: Outcome) -> list[SeriesSnapshot]:
    """Return the longest series of the job; no arrays, since numpy costs more than the rest here."""
    groups: dict[tuple[str, str, int | None], list[StepRow]] = defaultdict(list)
    for view in outcome.case.views:
        for row in step_rows(view):
            rows = groups[view.name, row.form, row.rank]
            if row.step is not None and (not rows or rows[-1].step != row.step):
                rows.append(row)
    if not groups:
        return []
    (name_of_view, _, rank), rows = max(groups.items(), key=lambda g: len(g[1]))
    if len(rows) < 2:
        return []
    chosen = [rows[i] for i in _thinned(len(rows))]
    view = next(one for one in outcome.case.views if one.name == name_of_view)
    # Of the lines before the end most are not kept: to ask for each costs more than it tells.
    early = max(0, len(chosen) - _RECENT)
    times = (
        *(row.time for row in chosen[:early]),
        *(_moment(outcome, view, row) for row in chosen[early:]),
    )
    if all(time is None for time in times):
        times = ()
    found = []
    # A printed rate gives no seconds, only the shape of the curve.
    timed = any(row.step_time is not None for row in chosen)
    for name, values in (
        ("step_time_s" if timed else "relative_step_time", [_step_time(r) for r in chosen]),
        ("loss", [_finite(row.loss) for row in chosen]),
        ("grad_norm", [_finite(row.grad_norm) for row in chosen]),
        ("throughput", [_finite(row.throughput) for row in chosen]),
    ):
        if any(value is not None for value in values):
            steps = tuple(row.step for row in chosen if row.step is not None)
            found.append(
                SeriesSnapshot(name=name, step=steps, value=tuple(values), rank=rank, time=times)
            )
    return found


def _moment(outcome: Outcome, view: LogView, row: StepRow) -> float | None:
    """Return when a step was logged, to the millisecond."""
    time = row.time if row.time is not None else _time_of(outcome, view, row.line)
    return None if time is None else round(time, 3)


def _step_time(row: StepRow) -> float | None:
    if row.step_time is None and row.throughput:
        return _finite(1.0 / row.throughput)
    return _finite(row.step_time)


def _thinned(count: int) -> list[int]:
    """Keep every point of the end and an even choice of what came before."""
    if count <= _POINTS:
        return list(range(count))
    early = count - _RECENT
    wanted = _POINTS - _RECENT
    return [*(i * early // wanted for i in range(wanted)), *range(early, count)]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _ranks(outcome: Outcome) -> list[RankFact]:
    identities = outcome.verdict.identities
    suspects = set(outcome.diagnosis.suspects.ranks)
    dumps = outcome.verdict.dumps
    waiting = set(dumps.waiting_ranks) if dumps is not None else set()
    unknown = {one.rank for one in dumps.unknown_ranks} if dumps is not None else set()
    hurt = waiting | {rank for c in outcome.diagnosis.consequences for rank in c.ranks}
    leaf = outcome.diagnosis.failure_type
    told = {
        one.line.rank
        for one in outcome.case.observations
        if leaf is not None and one.leaf == leaf and one.line.rank is not None
    }

    def part(rank: int) -> Literal["suspect", "consequence", "reported", "quiet"]:
        if rank in suspects:
            return "suspect"
        if rank in hurt:
            return "consequence"
        return "reported" if rank in told else "quiet"

    last: dict[int, int] = {}
    seen: dict[int, tuple[LogView, int]] = {}
    for view in outcome.case.views:
        for row in step_rows(view):
            rank = row.rank if row.rank is not None else view.origin.rank
            if rank is not None and row.step is not None:
                last[rank] = max(last.get(rank, row.step), row.step)
                seen[rank] = (view, row.line)
        for rank, row in _last_by_label(view, set(identities.ranks_seen) - set(last)):
            last[rank], seen[rank] = row.step or 0, (view, row.line)
    trained = {rank: _time_of(outcome, *place) for rank, place in seen.items()}
    failed = _failed_at(outcome)
    gpu = {i.rank: i.gpu for i in identities.by_pid if i.rank is not None and i.gpu is not None}
    everyone = sorted(
        suspects
        | hurt
        | told
        | unknown
        | set(identities.ranks_seen)
        | set(identities.node_of_rank)
        | set(last)
    )
    return [
        RankFact(
            rank=rank,
            node=identities.node_of_rank.get(rank),
            gpu=gpu.get(rank),
            last_step=last.get(rank),
            last_step_at=iso(trained.get(rank)),
            failed_at=iso(failed.get(rank)),
            part=part(rank),
        )
        for rank in everyone[:_MOST_RANKS]
    ]


def _last_by_label(view: LogView, wanted: set[int]) -> Iterator[tuple[int, StepRow]]:
    """Yield the last step of ranks that stand only in front of the line, not in its numbers."""
    for row in reversed(step_rows(view)[-_MOST_LABELS:]):
        line = view.line(row.line) if wanted and row.rank is None and row.step is not None else None
        if line is not None and line.rank in wanted:
            wanted.discard(line.rank)
            yield line.rank, row


def _time_of(outcome: Outcome, view: LogView, number: int) -> float | None:
    line = view.line(number)
    return outcome.case.near_time(line) if line is not None else None


def _failed_at(outcome: Outcome) -> dict[int, float]:
    """Return when each rank first printed a line of the failure, from the first fault on."""
    case, first = outcome.case, outcome.verdict.line
    start = case.near_time(first) if first is not None else None
    found: dict[int, float] = {}
    for one in case.with_role(Role.INITIATING, Role.CASCADE):
        rank, time = one.line.rank, case.time(one.line)
        if rank is None or time is None or (start is not None and time < start - 1.0):
            continue
        found[rank] = min(time, found.get(rank, time))
    return found


def _allocation(outcome: Outcome) -> Allocation:
    identities = outcome.verdict.identities
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, node in sorted(identities.node_of_rank.items()):
        ranks[node].append(rank)
    for node in identities.nodes_seen:
        ranks.setdefault(node, [])
    return Allocation(
        nodes=tuple(NodeShare(node=n, ranks=tuple(r)) for n, r in sorted(ranks.items())),
        world_size=identities.world_size,
    )


def _versions(outcome: Outcome) -> dict[str, str]:
    found: dict[str, str] = {}
    for view in outcome.case.views:
        end = view.numbers[_HEAD] if len(view.numbers) > _HEAD else math.inf
        for number in outcome.case.kinds.that_may(view, _may_tell_version, _may_tell_version):
            if len(found) == len(_VERSIONS):
                return found
            if number >= end:
                break
            found.update(_versions_in(view, number, found))
    return found


def _may_tell_version(text: bytes) -> bool:
    return b"ersion" in text or b"==" in text or b"NVIDIA-SMI" in text


def _versions_in(view: LogView, number: int, known: dict[str, str]) -> dict[str, str]:
    text = view.text(number) or ""
    return {
        name: match[1]
        for name, pattern in _VERSIONS.items()
        if name not in known and (match := pattern.search(text))
    }
