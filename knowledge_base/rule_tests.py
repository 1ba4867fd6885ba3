"""Runs the examples of the rules through the same code that reads real logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rerail.cached_yaml import cache_folder
from rerail.domain.evidence import Observation
from rerail.errors import RuleError
from rerail.knowledge_base.matcher import RuleSet, _Matcher, compiled, match, rule_set
from rerail.knowledge_base.rules import Rule, scanned_patterns
from rerail.log_parsers.collect import assemble
from rerail.log_parsers.matching_texts import missed
from rerail.log_parsers.scan import Scanner, compile_complaints, make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import FileSurvey, survey_bytes
from rerail.log_parsers.view import LogView

_LINES = 100  # made from each pattern of a site


@dataclass(frozen=True, slots=True)
class ExampleFailure:
    """One example that did not come out as its rule says."""

    rule: Rule
    example: str
    why: str


class Bench:
    """Matches short texts against a set of rules."""

    def __init__(self, rules: Sequence[Rule], *, engine: str | None = None) -> None:
        self.rules: RuleSet = rule_set(rules)
        self.scanner: Scanner = make_scanner(
            self.rules.signatures, cache=cache_folder(), engine=engine
        )

    def survey_text(self, text: str, name: str = "example") -> FileSurvey:
        """Survey a text as if it were a file."""
        data = text.encode("utf-8", "surrogateescape")
        return survey_bytes(Source(None, name), data, self.rules.signatures, self.scanner)

    def observe(self, text: str) -> list[Observation]:
        """Return the observations on a text."""
        return match(assemble([self.survey_text(text)]).views, self.rules).observations

    def explain(self, text: str) -> list[tuple[int, Rule, str | None]]:
        """Return (line, rule, reason it does not fire or None) for every candidate, best first."""
        views: list[LogView] = assemble([self.survey_text(text)]).views
        if not views:
            return []
        view = views[0]
        present = {p for p, i in self.rules.anywhere.items() if view.survey.counts.get(i, 0) > 0}
        matcher = _Matcher(self.rules, present)
        found = []
        for hit in view.survey.hits:
            line = view.line(hit.line)
            if line is None or hit.signature >= len(self.rules.rules):
                continue
            rule = self.rules.rules[hit.signature]
            found.append((hit.line, rule, matcher.fires(rule, view, line)))
        return sorted(
            found,
            key=lambda f: (f[0], -f[1].priority, -f[1].conditions, -len(f[1].pattern), f[1].id),
        )


def run_examples(
    rules: Sequence[Rule], *, only: str = "", engine: str | None = None
) -> list[ExampleFailure]:
    """Run every example; return those that fail.

    A `matches` example passes when its rule wins one of its lines; a `must_not_match` example
    passes when its rule wins none.
    """
    failures = []
    usable = []
    refused = compile_complaints(scanned_patterns(rules), cache=cache_folder())
    for rule in rules:
        why = next(
            (
                w
                for p in (rule.pattern, rule.in_log, rule.not_in_log)
                if p and (w := _uncompilable(p, refused))
            ),
            None,
        )
        if why:
            failures.append(ExampleFailure(rule, rule.pattern, why))
        else:
            usable.append(rule)
    bench = Bench(usable, engine=engine)
    for rule in usable:
        if only and only not in (rule.id, rule.file):
            continue
        for example in rule.matches:
            observations = bench.observe(example)
            if not any(o.rule_id == rule.id for o in observations):
                failures.append(ExampleFailure(rule, example, _why_not(bench, rule, example)))
        for example in rule.must_not_match:
            if any(o.rule_id == rule.id for o in bench.observe(example)):
                failures.append(ExampleFailure(rule, example, "it fires and must not"))
    return failures


def _uncompilable(pattern: str, refused: dict[str, str]) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return str(error)
    return refused.get(pattern)


def _why_not(bench: Bench, rule: Rule, example: str) -> str:
    if not compiled(rule.pattern).search(example.replace("\n", " ")):
        return "the pattern does not match"
    lines = bench.explain(example)
    mine = [(line, why) for line, r, why in lines if r.id == rule.id]
    if not mine:
        return "the pattern matches no single cleaned line"
    blocked = [why for _, why in mine if why]
    if len(blocked) == len(mine):
        return blocked[0] or ""
    line = next(line for line, why in mine if why is None)
    winner = next((r for n, r, why in lines if n == line and why is None), rule)
    return f"rule {winner.id!r} ({winner.file}, priority {winner.priority}) wins the line"


def missed_by_scanner(rules: Sequence[Rule]) -> list[str]:
    """Return which patterns of the site's own rules the scanner misses in lines that they match; ours are tested."""
    own = [one for one in rule_set(rules).signatures if one.added]
    try:
        scanner = make_scanner(own, cache=None)
    except RuleError:
        return []  # what does not compile is told by name elsewhere
    return [
        f"pattern {pattern!r}: the scanner misses it in {line!r}; write it in another way"
        for pattern, line in missed(own, scanner, seed=1, count=_LINES).items()
    ]
