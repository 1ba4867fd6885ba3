"""From a confirmed incident to a candidate rule, and from a person's yes to a rule in force."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from rerail.assistant.agent.endpoint import configured
from rerail.assistant.agent.propose import FAILURE, ROUTINE, proposed_patterns
from rerail.domain.diagnosis import FirstFault
from rerail.domain.incident import Incident, SnapshotLine
from rerail.errors import RerailError, UsageError
from rerail.knowledge_base.learning.candidate import Candidate, State, agree, judge
from rerail.knowledge_base.learning.corpus import Probe, incident_probes, rule_probes
from rerail.knowledge_base.learning.patterns import pattern_from
from rerail.knowledge_base.learning.shelf import observe_all, put, shelved
from rerail.knowledge_base.rules import load_rules
from rerail.knowledge_base.store.engine import reading, writing
from rerail.knowledge_base.store.incidents import IncidentFile, list_incidents, load
from rerail.log_parsers.masks import is_protected
from rerail.settings import Settings

MOST_INCIDENTS = 2_000
ROUTINE_INCIDENTS, ROUTINE_COUNT = 3, 50
MOST_ASKED = 5  # routine templates that a model is asked about, three samples each


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
            hint=f"rerail confirm {file.row.id} --verdict wrong --type TYPE --line FILE:LINE",
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
    texts = [line.text, *(p.text for p in probes), *(x.text for x in file.incident.snapshot.lines)]
    tries, banner = [_by_code(line.text)], ""
    if configured(settings):
        tried, banner = _by_model([line], settings, texts, FAILURE)
        tries = [*tried, *tries]
    proposal = _first_good(
        tries,
        banner,
        probes,
        Candidate(
            pattern="", leaf=file.row.true_type, incident=file.row.id, positives=(line.text,)
        ),
    )
    if proposal.candidate is not None:
        with writing(engine) as connection:
            if not put(connection, proposal.candidate):
                _refuse_decided(connection, proposal.candidate)
            observe_all(connection, others)
    return proposal


def _refuse_decided(connection: Connection, candidate: Candidate) -> None:
    known = next(s for s in shelved(connection) if s.candidate.id == candidate.id)
    if known.state is not State.SHADOW:
        raise UsageError(
            f"{candidate.id} was {known.state} already",
            subject=candidate.id,
            hint=f"rerail kb review {candidate.id}",
        )


def true_line(file: IncidentFile) -> SnapshotLine:
    """Return the line that a person named as the first fault, else that of the rules.

    Raises:
        UsageError: when it is not among the kept lines.
    """
    confirmed = file.confirmation()
    if confirmed is not None and confirmed.line is not None:
        return confirmed.line
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
        hint=f"rerail confirm {file.row.id} --verdict wrong --type TYPE --line FILE:LINE",
    )


@dataclass(frozen=True, slots=True)
class _Try:
    """A pattern with who made it, and how many samples agreed on it."""

    pattern: str
    by: str = "code"
    agreed: str = ""


def _by_code(text: str) -> _Try:
    return _Try(pattern_from([text]))


def _by_model(
    lines: list[SnapshotLine], settings: Settings, texts: list[str], task: str
) -> tuple[list[_Try], str]:
    """Return the pattern that most samples of the model agree on by what they match, or a banner."""
    patterns, banner = proposed_patterns(lines, settings, task=task)
    if not patterns:
        return [], banner
    vote = agree(patterns, texts)
    if vote is None or not all(re.search(vote[0], line.text) for line in lines):
        return [], "the model's patterns do not agree; the pattern is made by code"
    agreed = f"{vote[1]} of {len(patterns)} samples agree"
    return [_Try(vote[0], f"model {settings.model}", agreed)], ""


def _first_good(tries: list[_Try], banner: str, probes: list[Probe], about: Candidate) -> Proposal:
    """Return the first pattern that passes the judge: the model's before the one made by code."""
    refused: list[str] = []
    for one in tries:
        candidate = about.model_copy(update={"pattern": one.pattern, "by": one.by})
        refused = judge(candidate, probes)
        if not refused:
            return Proposal(candidate, (), banner, one.agreed)
        if one.by != "code":
            banner = f"the model's pattern is refused, it {refused[0]}; the pattern is made by code"
    return Proposal(None, tuple(refused), banner)


def confirmed_incidents(connection: Connection) -> Iterator[tuple[Incident, str | None]]:
    """Yield confirmed incidents with their true type, the first fault set to the confirmed line."""
    for row in list_incidents(connection, confirmed=True, healthy=True, limit=MOST_INCIDENTS):
        file = load(connection, row.id)
        yield with_true_line(file), row.true_type


def with_true_line(file: IncidentFile) -> Incident:
    """Return the incident with the line that a person named as its first fault, and that line in it."""
    incident = file.incident
    try:
        line = true_line(file)
    except RerailError:
        return incident
    snapshot, diagnosis = incident.snapshot, incident.diagnosis
    if line not in snapshot.lines:
        snapshot = snapshot.model_copy(update={"lines": (*snapshot.lines, line)})
    first = diagnosis.first_fault
    if first is None or (first.file, first.line) != (line.file, line.number):
        # Where the rules saw nothing at all, the person's line is the only first fault there is.
        moved = FirstFault(file=line.file, line=line.number, text=line.text, rank=line.rank)
        diagnosis = diagnosis.model_copy(update={"first_fault": moved})
    return incident.model_copy(update={"diagnosis": diagnosis, "snapshot": snapshot})


def propose_filters(engine: Engine, settings: Settings) -> list[Proposal]:
    """Propose filters for routine lines: frequent, in several incidents, without any sign of trouble.

    A model, where one is configured, is asked about the most frequent ones only.
    """
    with reading(engine) as connection:
        rows = list_incidents(connection, healthy=True, limit=MOST_INCIDENTS)
        files = [load(connection, row.id) for row in rows]
        confirmed = list(confirmed_incidents(connection))
    routine = _routine_lines(files)
    # Every line that any rule knows is an error corpus for a filter, harmless or not.
    probes = rule_probes(load_rules())
    texts = [p.text for p in probes] + [s.text for samples in routine for s in samples]
    found = []
    banner = ""
    for number, samples in enumerate(routine):
        lines = [sample.text for sample in samples]
        try:
            tries = [_Try(pattern_from(lines))]
        except RerailError:
            continue  # too short to be told from other lines
        if configured(settings) and number < MOST_ASKED and not banner.startswith("model un"):
            tried, banner = _by_model(samples, settings, texts, ROUTINE)
            tries = [*tried, *tries]
        about = Candidate(
            kind="filter", pattern="", incident=samples[0].file, positives=tuple(lines)
        )
        proposal = _first_good(tries, banner, probes, about)
        found.append(proposal)
        if proposal.candidate is not None:
            with writing(engine) as connection:
                put(connection, proposal.candidate)
                observe_all(connection, confirmed)
    return found


def _routine_lines(files: list[IncidentFile]) -> list[list[SnapshotLine]]:
    """Return up to three samples of each routine template, the most frequent template first.

    A sample carries the id of its incident in place of a file.
    """
    counts: Counter[str] = Counter()
    samples: dict[str, dict[str, SnapshotLine]] = defaultdict(dict)
    for file in files:
        for template in file.incident.snapshot.templates:
            if is_protected(template.text) or template.count < ROUTINE_COUNT:
                continue
            counts[template.text] += template.count
            samples[template.text][file.row.id] = SnapshotLine(
                file=file.row.id, number=1, text=template.sample or template.text
            )
    return [
        list(samples[text].values())[:ROUTINE_INCIDENTS]
        for text, _ in counts.most_common()
        if len(samples[text]) >= ROUTINE_INCIDENTS
    ]
