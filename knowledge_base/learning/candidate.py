"""A proposed rule and the judgement on it: what it matches decides, not how it looks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Literal

from pydantic import BaseModel, ConfigDict

from rerail.cached_yaml import cache_folder
from rerail.domain.evidence import Role, Tier
from rerail.errors import RuleError
from rerail.knowledge_base.learning.backtracking import backtracking_complaints
from rerail.knowledge_base.learning.corpus import Probe
from rerail.knowledge_base.rules import Rule, make_rule
from rerail.knowledge_base.taxonomy import leaves
from rerail.log_parsers.masks import is_protected
from rerail.log_parsers.scan import compile_complaints
from rerail.log_parsers.tracebacks import looks_like_exception

LEAST_SUPPORT = 2
_TIERS = {
    "hardware_gpu": Tier.HARDWARE,
    "gpu_memory_ecc": Tier.HARDWARE,
    "nvlink_nvswitch": Tier.HARDWARE,
    "host_os": Tier.HOST,
    "scheduler_preemption": Tier.SCHEDULER,
    "user_code": Tier.APPLICATION,
    "data": Tier.APPLICATION,
}


class State(StrEnum):
    """Where a candidate is on its way."""

    SHADOW = "shadow"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


class Candidate(BaseModel):
    """A proposed rule. `kind` is diagnosis (a cause) or filter (routine lines to leave out).

    `positives` are the lines that it was made from, `by` is code or the model's name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["diagnosis", "filter"] = "diagnosis"
    pattern: str
    leaf: str | None = None
    incident: str
    positives: tuple[str, ...]
    by: str = "code"
    note: str = ""

    @property
    def id(self) -> str:
        """The id of the rule, should it be accepted: stable for one pattern and leaf."""
        short = sha256(f"{self.kind}\n{self.pattern}\n{self.leaf}".encode()).hexdigest()[:8]
        name = (self.leaf or "routine").replace("_", "-")
        return f"learned-{name}-{short}"

    def rule(self) -> Rule:
        """Return the candidate as a rule."""
        return make_rule(self.yaml(), "learned.yaml")

    def yaml(self) -> dict[str, object]:
        """Return the rule as it is written down, with where it came from."""
        leaf = leaves().get(self.leaf or "")
        return {
            "id": self.id,
            **({"leaf": self.leaf} if self.leaf else {}),
            "role": str(Role.INITIATING if self.kind == "diagnosis" else Role.BENIGN),
            "tier": str(_TIERS.get(leaf.category, Tier.LIBRARY) if leaf else Tier.GENERIC),
            "pattern": self.pattern,
            "priority": 45,  # above the generic rules, below the shipped ones that know a wording
            "source": f"incident {self.incident}, proposed by {self.by}",
            "safety": "Learned from incidents of this site; shipped rules come first.",
            "matches": list(self.positives),
        }


def judge(candidate: Candidate, probes: Sequence[Probe]) -> list[str]:
    """Return every reason why a candidate may not even run in the shadow; empty when it may."""
    complaints = backtracking_complaints(candidate.pattern)
    if complaints:
        return complaints
    refused = compile_complaints([candidate.pattern], cache=cache_folder())
    if refused:
        return [next(iter(refused.values()))]
    try:
        candidate.rule()
    except RuleError as error:
        return [error.message]
    compiled = re.compile(candidate.pattern)
    missed = [text for text in candidate.positives if not compiled.search(text)]
    if missed:
        complaints.append(f"does not match its own line: {missed[0][:80]!r}")
    if candidate.kind == "filter":
        return complaints + _filter_complaints(candidate, compiled, probes)
    own = set(candidate.positives)
    for probe in probes:
        if probe.text in own or probe.origin == candidate.incident:
            continue
        if probe.leaf != candidate.leaf and compiled.search(probe.text):
            what = probe.leaf or "a harmless line"
            complaints.append(f"matches {what} ({probe.origin}): {probe.text[:80]!r}")
            if len(complaints) >= 3:
                break
    return complaints


def _filter_complaints(
    candidate: Candidate, compiled: re.Pattern[str], probes: Sequence[Probe]
) -> list[str]:
    """A filter may never take away a line that a signature, a severity word or a traceback touches."""
    found = []
    for text in candidate.positives:
        if is_protected(text):
            found.append(f"its line holds a severity word or an error: {text[:80]!r}")
        if looks_like_exception(text) or text.lstrip().startswith(("Traceback", 'File "')):
            found.append(f"its line belongs to a traceback: {text[:80]!r}")
    if is_protected(candidate.pattern.replace("\\", "")):
        found.append("its pattern names an error")
    for probe in probes:
        if compiled.search(probe.text):
            found.append(f"matches a line of rule {probe.origin}: {probe.text[:80]!r}")
            break
    return found


def agree(patterns: Sequence[str], probes: Sequence[str]) -> tuple[str, int] | None:
    """Return the pattern that most proposals agree with by what they match, and how many agree.

    Strings are never compared: two spellings with one match set are one opinion. Without a
    majority there is no answer (Acme's released vote compares strings; NSDI'24, 1.6.2).
    """
    opinions: dict[str, frozenset[int]] = {}
    for pattern in patterns:
        if backtracking_complaints(pattern):
            continue
        compiled = re.compile(pattern)
        opinions[pattern] = frozenset(i for i, text in enumerate(probes) if compiled.search(text))
    votes = Counter(opinions[p] for p in patterns if p in opinions)
    if not votes:
        return None
    winner, count = votes.most_common(1)[0]
    if count * 2 <= len(patterns) or not winner:
        return None
    return min(
        (p for p, seen in opinions.items() if seen == winner), key=lambda p: (len(p), p)
    ), count
