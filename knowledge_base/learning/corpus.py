"""What a new rule must not match: the examples of all rules, and the incidents of other causes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rerail.domain.evidence import Role
from rerail.domain.incident import Incident
from rerail.knowledge_base.rules import Rule

HARMLESS = frozenset({Role.BENIGN, Role.SUCCESS, Role.CONTEXT})


@dataclass(frozen=True, slots=True)
class Probe:
    """One line with what it means: a leaf, or None for a line that is no failure."""

    text: str
    leaf: str | None
    origin: str


def rule_probes(rules: Sequence[Rule]) -> list[Probe]:
    """Return the example lines of rules: initiating ones under their leaf, the others as harmless."""
    found = []
    for rule in rules:
        leaf = rule.leaf if rule.role is Role.INITIATING else None
        for example in rule.matches:
            found += [Probe(row, leaf, rule.id) for row in example.splitlines() if row.strip()]
    return found


def incident_probes(incidents: Iterable[tuple[Incident, str | None]]) -> list[Probe]:
    """Return the kept lines of confirmed incidents under the failure type that a person vouched for.

    Only the first fault stands for the cause; what else an incident prints is company.
    """
    found = []
    for incident, leaf in incidents:
        first = incident.diagnosis.first_fault
        for line in incident.snapshot.lines:
            guilty = first is not None and (line.file, line.number) == (first.file, first.line)
            found.append(Probe(line.text, leaf if guilty else None, incident.id))
    return found
