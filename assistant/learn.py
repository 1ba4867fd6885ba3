"""From a confirmed incident to a candidate rule, and from a person's yes to a rule in force."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from rerail.assistant.agent.endpoint import configured
from rerail.domain.diagnosis import FirstFault
from rerail.domain.incident import Incident, SnapshotLine
from rerail.errors import RerailError, UsageError
from rerail.knowledge_base.learning.candidate import Candidate, agree, judge
from rerail.knowledge_base.learning.corpus import Probe, incident_probes, rule_probes
from rerail.knowledge_base.learning.patterns import pattern_from
from rerail.knowledge_base.learning.shelf import observe_all, put
from rerail.knowledge_base.rules import load_rules
from rerail.knowledge_base.store.engine import reading, writing
from rerail.knowledge_base.store.incidents import IncidentFile, list_incidents, load
from rerail.log_parsers.masks import is_protected
from rerail.settings import Settings

MOST_INCIDENTS = 2_000
ROUTINE_INCIDENTS, ROUTINE_COUNT = 3, 50


@dataclass(frozen=True, slots=True)
class Proposal:
    """What came of a proposal: the candidate, or why there is none."""

    candidate: Candidate | None
    complaints: tuple[str, ...] = ()
    banner: str = ""
    agreed: str = ""


def known_by_rules(file: IncidentFile) -> bool:
    """Tell whether the rules had named the true cause, and not only by a generic rule."""
    return file.diagnosis.failure_type is not None and (
        file.row.true_type == file.diagnosis.failure_type
    )


def propose_rule(engine: Engine, file: IncidentFile, settings: Settings) -> Proposal:
    """Propose a diagnosis rule from a confirmed incident that no rule knew.

    Raises:
        UsageError: when the incident is not confirmed, or a rule knew it, or its line is not kept.
        StoreError: when the store cannot be written.
    """
    if file.row.confirmed is None or file.row.true_type is None:
        raise UsageError(
            f"{file.row.id} is not confirmed",
            subject=file.row.id,
            hint=f"rerail confirm {file.row.id} --verdict wrong --type LEAF --line FILE:LINE",
        )
    if known_by_rules(file):
        raise UsageError(
            f"the rules knew {file.row.id}: {file.row.true_type}",
            subject=file.row.id,
            hint="there is nothing to learn",
        )
    line = true_line(file)
    with reading(engine) as connection:
        others = list(confirmed_incidents(connection))
    probes = rule_probes(load_rules()) + incident_probes(others)
    pattern, by, banner, agreed = _pattern(line, file, settings, probes)
    candidate = Candidate(
        pattern=pattern,
        leaf=file.row.true_type,
        incident=file.row.id,
        positives=(line.text,),
        by=by,
    )
    complaints = judge(candidate, probes)
    if complaints:
        return Proposal(None, tuple(complaints), banner, agreed)
    with writing(engine) as connection:
        put(connection, candidate)
        observe_all(connection, others)
    return Proposal(candidate, (), banner, agreed)


def true_line(file: IncidentFile) -> SnapshotLine:
    """Return the line that a person named as the first fault, else that of the rules.

    Raises:
        UsageError: when it is not among the kept lines.
    """
    confirmed = file.confirmation()
    wanted = confirmed.first_fault if confirmed is not None else None
    first = file.diagnosis.first_fault
    if wanted is None and first is not None:
        wanted = f"{first.file}:{first.line}"
    lines = file.incident.snapshot.lines
    named = [x for x in lines if f"{x.file}:{x.number}" == wanted]
    # A person types the end of a long path; that is enough where one file has it.
    named = named or [x for x in lines if f"{x.file}:{x.number}".endswith(f"/{wanted}")]
    if len(named) == 1:
        return named[0]
    raise UsageError(
        f"the line of the first fault is not known: {wanted or 'none was named'}",
        subject=file.row.id,
        hint=f"rerail confirm {file.row.id} --verdict wrong --type LEAF --line FILE:LINE",
    )


def _pattern(
    line: SnapshotLine, file: IncidentFile, settings: Settings, probes: list[Probe]
) -> tuple[str, str, str, str]:
    """Return pattern, who made it, a banner and how many samples agreed."""
    made = pattern_from([line.text])
    if not configured(settings):
        return made, "code", "", ""
    from rerail.assistant.agent.propose import proposed_patterns

    patterns, banner = proposed_patterns([line], settings)
    if not patterns:
        return made, "code", banner, ""
    texts = [line.text, *(p.text for p in probes), *(x.text for x in file.incident.snapshot.lines)]
    vote = agree(patterns, texts)
    if vote is None or not re.search(vote[0], line.text):
        return made, "code", "the model's patterns do not agree; the pattern is made by code", ""
    return vote[0], f"model {settings.model}", "", f"{vote[1]} of {len(patterns)} samples agree"


def confirmed_incidents(connection: Connection) -> Iterator[tuple[Incident, str | None]]:
    """Yield confirmed incidents with their true type, the first fault set to the confirmed line."""
    for row in list_incidents(connection, limit=MOST_INCIDENTS):
        if row.confirmed is None:
            continue
        file = load(connection, row.id)
        incident = file.incident
        try:
            line = true_line(file)
        except RerailError:
            yield incident, row.true_type
            continue
        first = incident.diagnosis.first_fault
        if first is None or (first.file, first.line) != (line.file, line.number):
            # Where the rules saw nothing at all, the person's line is the only first fault there is.
            moved = FirstFault(file=line.file, line=line.number, text=line.text, rank=line.rank)
            diagnosis = incident.diagnosis.model_copy(update={"first_fault": moved})
            incident = incident.model_copy(update={"diagnosis": diagnosis})
        yield incident, row.true_type


def propose_filters(engine: Engine) -> list[Proposal]:
    """Propose filters for routine lines: frequent, in several incidents, and without any sign of trouble."""
    with reading(engine) as connection:
        files = [load(connection, r.id) for r in list_incidents(connection, limit=MOST_INCIDENTS)]
    seen: dict[str, set[str]] = defaultdict(set)
    counts: Counter[str] = Counter()
    sample: dict[str, tuple[str, str]] = {}
    for file in files:
        for template in file.incident.snapshot.templates:
            if is_protected(template.text) or template.count < ROUTINE_COUNT:
                continue
            seen[template.text].add(file.row.id)
            counts[template.text] += template.count
            sample.setdefault(template.text, (template.sample or template.text, file.row.id))
    # Every line that any rule knows is an error corpus for a filter, harmless or not.
    probes = rule_probes(load_rules())
    found = []
    for text, incidents in seen.items():
        if len(incidents) < ROUTINE_INCIDENTS:
            continue
        line, origin = sample[text]
        try:
            candidate = Candidate(
                kind="filter", pattern=pattern_from([line]), incident=origin, positives=(line,)
            )
        except RerailError:
            continue  # too short to be told from other lines
        complaints = judge(candidate, probes)
        found.append(Proposal(None if complaints else candidate, tuple(complaints)))
        if not complaints:
            with writing(engine) as connection:
                put(connection, candidate)
    return found
