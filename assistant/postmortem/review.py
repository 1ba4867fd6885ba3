"""Several incidents folded into one review: failures by cause, lost time, goodput, repeat offenders."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from rerail.assistant.postmortem.document import Author, Document, Section
from rerail.assistant.postmortem.impact import Impact, impact_of, in_words
from rerail.assistant.postmortem.markup import escaped
from rerail.knowledge_base.store.clock import from_iso
from rerail.knowledge_base.store.incidents import IncidentFile
from rerail.knowledge_base.taxonomy import leaves

_FOLLOW_UPS = "| type | what | owner | due |\n| --- | --- | --- | --- |\n| prevent | - | - | - |"


def review(files: Sequence[IncidentFile], *, since: str, until: str, about: str) -> Document:
    """Return the review of the incidents between two times (ISO 8601 in UTC)."""
    costs = [impact_of(file.incident) for file in files]
    sections = (
        Section("status", "Status", "- State: DRAFT, not reviewed\n- Owner: -"),
        Section("period", "Period", _period(files, costs, since, until)),
        Section("causes", "Failures by cause", _causes(files, costs)),
        Section("repeats", "Repeat offenders", _repeats(files)),
        Section("incidents", "Incidents", _incidents(files, costs)),
        Section("lessons", "Lessons", "Not written yet.", Author.PEOPLE),
        Section("follow-ups", "Follow-ups", _FOLLOW_UPS, Author.PEOPLE),
    )  # fmt: skip
    return Document(
        f"Review of {about}, {since[:10]} to {until[:10]}: {len(files)} incidents", sections
    )


def _period(files: Sequence[IncidentFile], costs: Sequence[Impact], since: str, until: str) -> str:
    seconds = (from_iso(until) - from_iso(since)).total_seconds()
    hours = seconds / 3600.0
    known = [c.gpu_hours for c in costs if c.gpu_hours is not None]
    lost = sum(known)
    gpus = max((c.gpus for c in costs if c.gpus), default=None)
    rows = [
        f"- {len(files)} incidents in {in_words(seconds)}",
        f"- lost: {lost:.2f} GPU h, known for {len(known)} of {len(files)} incidents"
        if known
        else "- lost: not known for any of them",
    ]
    jobs = {f.incident.job.job for f in files if f.incident.job}
    if gpus and hours > 0 and len(jobs) == 1 and known:
        share = max(0.0, 1.0 - lost / (gpus * hours))
        rows.append(
            f"- goodput at most {share:.4f}, if the run held {gpus} GPUs all of this time; only the known losses count"
        )
    else:
        rows.append("- goodput: not computed; it needs one job (--job) with known GPUs and losses")
    if len(files) > 1 and hours > 0:
        rows.append(f"- mean time between incidents: {in_words(_between(files, seconds))}")
    return "\n".join(rows)


def _between(files: Sequence[IncidentFile], seconds: float) -> float:
    """Return the mean time between incidents: of a period, or of a list from its first to its last."""
    times = sorted(from_iso(file.row.time) for file in files)
    span = (times[-1] - times[0]).total_seconds()
    return span / (len(files) - 1) if span >= seconds - 1.0 else seconds / len(files)


def _causes(files: Sequence[IncidentFile], costs: Sequence[Impact]) -> str:
    count: Counter[str] = Counter()
    lost: dict[str, float | None] = defaultdict(lambda: None)
    for file, cost in zip(files, costs, strict=True):
        name = file.row.true_type or "no verdict"
        count[name] += 1
        if cost.gpu_hours is not None:
            lost[name] = (lost[name] or 0.0) + cost.gpu_hours
    rows = []
    for name, number in sorted(count.items(), key=lambda item: (-item[1], item[0])):
        leaf = leaves().get(name)
        layer = str(leaf.layer) if leaf else "-"
        cost_text = "-" if lost[name] is None else f"{lost[name]:.2f}"
        rows.append(f"| {name} | {layer} | {number} | {cost_text} |")
    head = "| failure type | layer | incidents | lost GPU h |\n| --- | --- | --- | --- |"
    return "\n".join([head, *rows])


def _repeats(files: Sequence[IncidentFile]) -> str:
    nodes: dict[str, list[IncidentFile]] = defaultdict(list)
    prints: dict[str, list[IncidentFile]] = defaultdict(list)
    for file in files:
        for node in file.diagnosis.suspects.nodes:
            nodes[node].append(file)
        if file.row.true_type is not None:  # two unknowns need not be the same unknown
            prints[file.row.fingerprint].append(file)
    rows = [
        f"- node {escaped(node)}: {len(found)} incidents ({', '.join(f.row.id for f in found[:6])})"
        for node, found in sorted(nodes.items(), key=lambda item: -len(item[1]))
        if len(found) > 1
    ]
    rows += [
        f"- {found[0].row.true_type}, seen the same way: {len(found)} incidents "
        f"({', '.join(f.row.id for f in found[:6])})"
        for found in sorted(prints.values(), key=len, reverse=True)
        if len(found) > 1
    ]
    return "\n".join(rows) or "None."


def _status(file: IncidentFile) -> str:
    # The rules' status is that of their own verdict, not of a person's correction.
    return file.row.status if file.row.true_type == file.row.failure_type else "corrected"


def _incidents(files: Sequence[IncidentFile], costs: Sequence[Impact]) -> str:
    rows = [
        "| when (UTC) | incident | job | failure type | status | lost GPU h |",
        "| --- " * 6 + "|",
    ]
    for file, cost in zip(files, costs, strict=True):
        job = file.incident.job
        rows.append(
            f"| {file.row.time[:16].replace('T', ' ')} | {file.row.id} | "
            f"{escaped(f'{job.job}.{job.attempt}') if job else '-'} | {file.row.true_type or 'no verdict'} | "
            f"{_status(file)} | {'-' if cost.gpu_hours is None else f'{cost.gpu_hours:g}'} |"
        )
    return "\n".join(rows)
