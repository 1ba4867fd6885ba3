"""Replays a year: what rules answer before each incident, what is learned after it was confirmed."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine

from rerail.assistant.pipeline import rules as shipped_rules
from rerail.assistant.record import make_incident
from rerail.domain.diagnosis import Diagnosis, FirstFault
from rerail.domain.evidence import Tier
from rerail.domain.incident import Incident
from rerail.errors import RerailError
from rerail.evals.cases.run import diagnose_text
from rerail.evals.learning.year import YearCase
from rerail.knowledge_base.learning.candidate import Candidate, State, judge
from rerail.knowledge_base.learning.corpus import Probe, incident_probes, rule_probes
from rerail.knowledge_base.learning.patterns import pattern_from
from rerail.knowledge_base.learning.shelf import decide, observe, put, shelved
from rerail.knowledge_base.rules import load_rules
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.settings import Settings

Past = list[tuple[Incident, str | None]]
_GENERIC = (Tier.GENERIC, Tier.EXIT)


@dataclass(slots=True)
class Month:
    """One month: incidents, how many a specific rule answered, how many of those rightly."""

    incidents: int = 0
    answered: int = 0
    right: int = 0
    rules: int = 0


@dataclass(slots=True)
class Replay:
    """The year under one way of learning. `gated` is ours; without it every proposal goes live."""

    name: str
    learns: bool
    gated: bool
    months: list[Month] = field(default_factory=lambda: [Month() for _ in range(12)])
    accepted: list[Candidate] = field(default_factory=list)
    refused: int = 0
    rejected: int = 0

    def run(self, cases: list[YearCase]) -> Replay:
        """Replay the cases in order."""
        probes = rule_probes(load_rules())
        past: Past = []
        with tempfile.TemporaryDirectory() as folder:
            engine = open_store(Settings(data_dir=Path(folder)))
            try:
                for case in cases:
                    self._one(case, engine, probes, past)
            finally:
                engine.dispose()
        return self

    def _one(self, case: YearCase, engine: Engine, probes: list[Probe], past: Past) -> None:
        month = self.months[min(11, case.day * 12 // 365)]
        outcome = diagnose_text(case.log)
        answer, by_learned = self._answer(case, outcome.diagnosis)
        month.incidents += 1
        month.rules = len(self.accepted)
        if answer is not None:
            month.answered += 1
            month.right += answer == case.truth
        if not self.learns:
            return
        incident = _confirmed(make_incident(outcome, []), case)
        if self.gated:
            with writing(engine) as connection:
                observe(connection, incident, case.said)
        if answer is None or (by_learned and answer != case.said):
            self._propose(case, incident, engine, probes, past)
        past.append((incident, case.said))
        if self.gated:
            self._review(engine)

    def _answer(self, case: YearCase, diagnosis: Diagnosis) -> tuple[str | None, bool]:
        """Return what a specific rule says: a shipped one first, else a learned one."""
        tiers = {rule.id: rule.tier for rule in shipped_rules().rules}
        first = diagnosis.first_fault
        if first is not None and first.rule in tiers and tiers[first.rule] not in _GENERIC:
            return diagnosis.failure_type, False
        for candidate in self.accepted:
            if re.search(candidate.pattern, case.log):
                return candidate.leaf, True
        return None, False

    def _propose(
        self,
        case: YearCase,
        incident: Incident,
        engine: Engine,
        probes: list[Probe],
        past: Past,
    ) -> None:
        text = case.log.splitlines()[case.line - 1]
        try:
            pattern = pattern_from([text])
        except RerailError:
            self.refused += 1
            return
        candidate = Candidate(
            pattern=pattern, leaf=case.said, incident=incident.id, positives=(text,)
        )
        if not self.gated:
            if all(c.id != candidate.id for c in self.accepted):
                self.accepted.append(candidate)
            return
        against: list[Probe] = [*probes, *incident_probes(past)]
        if judge(candidate, against):
            self.refused += 1
            return
        with writing(engine) as connection:
            put(connection, candidate)
            for earlier, said in past:
                observe(connection, earlier, said)

    def _review(self, engine: Engine) -> None:
        """A person who accepts what is ready and drops what was contradicted."""
        with reading(engine) as connection:
            found = shelved(connection, State.SHADOW)
        for one in found:
            if one.ready or one.against:
                with writing(engine) as connection:
                    decide(connection, one.candidate.id, accept=one.ready, by="reviewer")
                if one.ready:
                    self.accepted.append(one.candidate)
                else:
                    self.rejected += 1


def _confirmed(incident: Incident, case: YearCase) -> Incident:
    """Return the incident with the line that the person named as its first fault."""
    text = case.log.splitlines()[case.line - 1]
    first = FirstFault(file="case.log", line=case.line, text=text)
    diagnosis = incident.diagnosis.model_copy(update={"first_fault": first})
    return incident.model_copy(update={"diagnosis": diagnosis})
