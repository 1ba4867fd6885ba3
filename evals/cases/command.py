"""`rerail eval cases FILE`: the score table beside its baselines, and under rewriting."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rerail.evals.cases.baselines import keyword_tally
from rerail.evals.cases.case_file import LabelledCase, load_cases
from rerail.evals.cases.paraphrase import REWRITES, paraphrase
from rerail.evals.cases.run import run_cases
from rerail.evals.cases.score import QUESTIONS, CaseScore, Tally, tally

_TITLES = {"type": "type", "category": "category", "line": "root line", "near": "within 2", "rank": "rank",
           "node": "node", "action": "action"}  # fmt: skip


def cases_command(
    file: Path, *, rewrites: bool, seed: int, json_output: bool, failures: bool
) -> int:
    """Score a case file; return 0 when it could be scored."""
    cases = load_cases(file)
    scores = run_cases(cases)
    rewritten = {}
    if rewrites:
        for name in REWRITES:
            rewritten[name] = tally(run_cases(paraphrase(cases, name, seed), digests=False))
    if json_output:
        sys.stdout.write(json.dumps(_payload(scores, rewritten), indent=2) + "\n")
        return 0
    # Twelve columns: a pipe gets them all on one line rather than folded cells.
    console = Console(width=None if sys.stdout.isatty() else 190)
    if failures:
        _print_failures(scores, console)
    console.print(_table(cases, scores, rewritten))
    times = [s.milliseconds for s in scores]
    console.print(
        f"{len(cases)} cases; median {statistics.median(times):.1f} ms, slowest {max(times):.1f} ms; "
        f"digest median {statistics.median(s.digest_bytes for s in scores):.0f} bytes, "
        f"largest {max(s.digest_bytes for s in scores)} bytes",
        highlight=False,
    )
    return 0


def _table(
    cases: list[LabelledCase], scores: list[CaseScore], rewritten: dict[str, Tally]
) -> Table:
    table = Table(title="labelled cases (accepted alternatives count)")
    for column in ("", *_TITLES.values(), "false alarms", "established wrong", "inconclusive"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("rerail", *_cells(tally(scores)))
    table.add_row("first keyword", *_cells(keyword_tally(cases, last=False)))
    table.add_row("last keyword", *_cells(keyword_tally(cases, last=True)))
    if rewritten:
        table.add_section()
    for name, total in rewritten.items():
        table.add_row(f"rerail, {name}", *_cells(total))
    return table


def _cells(total: Tally) -> list[str]:
    def cell(column: str) -> str:
        asked = total.asked.get(column, 0)
        return f"{total.right.get(column, 0)}/{asked}" if asked else "-"

    return [cell(q) for q in QUESTIONS] + [
        cell("false_alarm"),
        cell("established_wrong"),
        cell("inconclusive"),
    ]


def _print_failures(scores: list[CaseScore], console: Console) -> None:
    for one in scores:
        wrong = [
            _TITLES[q]
            for q in QUESTIONS
            if getattr(one, q) is False and q not in ("near", "category")
        ]
        if one.false_alarm:
            wrong.append("false alarm")
        if not wrong:
            continue
        first = one.diagnosis.first_fault
        console.print(
            f"{one.case.id}: {', '.join(wrong)}: said {one.diagnosis.failure_type} "
            f"({one.diagnosis.outcome}, {one.diagnosis.status}) at line {first.line - 1 if first else None} "
            f"rule {first.rule if first else None}, {one.diagnosis.recovery.action}; "
            f"want {sorted(one.case.labels)} at {sorted(one.case.lines)} rank {one.case.rank} node {one.case.node} "
            f"{sorted(one.case.actions)}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip


def _payload(scores: list[CaseScore], rewritten: dict[str, Tally]) -> dict[str, object]:
    total = tally(scores)
    return {
        "schema_version": 1,
        "cases": len(scores),
        "right": total.right,
        "asked": total.asked,
        "rewrites": {name: {"right": t.right, "asked": t.asked} for name, t in rewritten.items()},
        "wrong": [s.case.id for s in scores if not (s.type and s.action and s.line is not False)],
    }
