"""`rerail kb`: run the examples of the rules, check their form, explain a line."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rerail.errors import EvidenceError


def test_command(only: str, engine: str | None) -> int:
    """Run the examples of all rules, or of one rule or file."""
    from rerail.knowledge_base.rule_tests import run_examples
    from rerail.knowledge_base.rules import load_rules

    console = Console()
    rules = load_rules()
    chosen = [r for r in rules if not only or only in (r.id, r.file)]
    if not chosen:
        console.print(f"no rule or rule file is called {only!r}", markup=False)
        return 2
    failures = run_examples(rules, only=only, engine=engine)
    for failure in failures:
        console.print(
            f"[bold]{escape(failure.rule.file)}[/]: {failure.rule.id}: {escape(failure.why)}"
        )
        console.print("    " + escape(failure.example.strip()[:300]))
    examples = sum(len(r.matches) + len(r.must_not_match) for r in chosen)
    console.print(f"{len(chosen)} rules, {examples} examples, {len(failures)} failed")
    return 1 if failures else 0


def lint_command() -> int:
    """Check the form of all rules and that no leaf is without a rule."""
    from rerail.knowledge_base.rules import lint, load_rules
    from rerail.knowledge_base.taxonomy import leaves

    console = Console()
    rules = load_rules()
    complaints = lint(rules)
    covered = {r.leaf for r in rules}
    from rerail.knowledge_base.coded_leaves import CODED_LEAVES
    from rerail.knowledge_base.placement.headings import complaints as in_headings
    from rerail.knowledge_base.rule_tests import missed_by_scanner
    from rerail.knowledge_base.statements import complaints as in_statements
    from rerail.log_parsers.labels import complaints as in_labels

    complaints += [*in_labels(), *in_statements(), *in_headings(), *missed_by_scanner(rules)]
    complaints += [
        f"taxonomy: leaf {leaf!r} has no rule"
        for leaf in leaves()
        if leaf not in covered | CODED_LEAVES
    ]
    for complaint in complaints:
        console.print(complaint, markup=False)
    console.print(
        f"{len(rules)} rules, {len(covered - {None})} leaves, {len(complaints)} complaints"
    )
    return 1 if complaints else 0


def standard_input() -> str:
    """Return all of standard input as text.

    Raises:
        EvidenceError: when it is closed.
    """
    # Python leaves nothing in its place where a program is started with it closed.
    if sys.stdin is None:
        raise EvidenceError("standard input is closed", subject="-", hint="pipe a log line into it")
    return sys.stdin.buffer.read().decode(errors="replace")


def explain_command(text: str) -> int:
    """Say which rules would fire on a line (or several) and why the others do not."""
    from rerail.knowledge_base.rule_tests import Bench
    from rerail.knowledge_base.rules import load_rules

    console = Console()
    found = Bench(load_rules()).explain(text)
    if not found:
        console.print("no rule's pattern matches")
        return 3
    console = Console(width=None if sys.stdout.isatty() else 150)
    table = Table("line", "rule", "file", "role", "leaf", "priority", "fires")
    won: set[int] = set()
    for line, rule, why in found:
        state = why or ("fires" if line in won else "WINS")
        if why is None:
            won.add(line)
        table.add_row(
            str(line),
            rule.id,
            rule.file,
            rule.role,
            rule.leaf or "-",
            str(rule.priority),
            escape(state),
        )
    console.print(table)
    return 0


def code_command(kind: str, code: str) -> int:
    """Print what a vendor or system code means."""
    from rerail.errors import UsageError
    from rerail.knowledge_base.catalogues import KINDS, lookup

    if kind not in KINDS:
        raise UsageError(
            f"{kind!r} is no kind of code", subject=kind, hint=f"one of {', '.join(KINDS)}"
        )
    found = lookup(kind, code)
    if found is None:
        raise UsageError(
            f"{kind} code {code!r} is not in the catalogue",
            subject=code,
            hint="treat it as unknown: page a human",
        )
    console = Console()
    for label, value in (
        ("code", f"{kind} {found.code} {found.name or found.signal}".strip()),
        ("means", found.meaning),
        ("leaf", found.leaf or "-"),
        ("role", found.role or "-"),
        ("action", found.action or "-"),
        ("note", found.note),
        ("source", found.source),
    ):
        if value:
            console.print(f"{label:<8}{value}", markup=False, highlight=False, soft_wrap=True)
    return 0


def runbook_command(failure_type: str) -> int:
    """Print the runbook page of a failure type."""
    import difflib

    from rerail.errors import UsageError
    from rerail.knowledge_base.runbook_pages import runbook_pages

    pages = runbook_pages()
    if failure_type not in pages:
        near = difflib.get_close_matches(failure_type, pages, 1)
        raise UsageError(
            f"{failure_type!r} is no failure type",
            subject=failure_type,
            hint=f"rerail kb runbook {near[0]}" if near else "one of knowledge_base/taxonomy.yaml",
        )
    Console(highlight=False).print(pages[failure_type].text, markup=False, soft_wrap=True)
    return 0
