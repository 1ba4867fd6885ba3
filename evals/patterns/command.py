"""`rerail eval patterns`: who is named on labelled slow jobs, beside the rules of others."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from rerail.evals.patterns.baselines import nvrx_score, published_rule
from rerail.evals.patterns.cases import Case, Made, all_cases, make
from rerail.tools.localize.findings import Localization
from rerail.tools.profiles.function_table import DEVICE_COMPUTE
from rerail.tools.profiles.judge import judge_profiles

BAR = 0.975


@dataclass(frozen=True)
class Scored:
    """What was said of one case; `right` is the function, the workers and nobody else."""

    name: str
    cause: str
    workers: int
    right: bool
    said: str
    published: bool
    nvrx: bool
    judge_s: float


def patterns_command(
    only: str, seed: int, scale: bool, real: bool, json_output: bool, failures: bool
) -> int:
    """Run the suite, print the tables and return 0 if the bars are held."""
    started = time.perf_counter()
    out = Console(highlight=False, stderr=json_output)
    rows = [score(case) for case in _progress(out, all_cases(seed), only)]
    held = _table(out, rows, failures) if rows else True
    if scale:
        from rerail.evals.patterns.parse import parse_table
        from rerail.evals.patterns.scale import scale_table

        held &= scale_table(out)
        held &= parse_table(out)
    if real:
        from rerail.evals.patterns.gloo_jobs import real_table
        from rerail.evals.patterns.runners import runners_table
        from rerail.evals.patterns.trigger_jobs import trigger_table

        held &= real_table(out)
        held &= trigger_table(out)
        held &= runners_table(out)
    out.print(f"{time.perf_counter() - started:.0f} s in all", markup=False)
    if json_output:
        sys.stdout.write(
            json.dumps({"schema_version": 1, "cases": [asdict(r) for r in rows]}) + "\n"
        )
    return 0 if held else 1


def _progress(out: Console, cases: list[Case], only: str) -> Iterable[Case]:
    chosen = [case for case in cases if only.lower() in case.name.lower()]
    for number, case in enumerate(chosen, 1):
        if out.is_terminal:
            out.print(f"{number}/{len(chosen)} {case.name}", end="\r", markup=False)
        yield case


def score(case: Case) -> Scored:
    """Judge one case by all rules."""
    made = make(case)
    started = time.perf_counter()
    verdict = judge_profiles(case.name, made.matrix, made.expected)
    took = time.perf_counter() - started
    return Scored(
        case.name, case.cause, case.shape.workers, _right(case, made, verdict), _said(verdict),
        _published(case, made), nvrx_score(made.matrix) == made.workers, took,
    )  # fmt: skip


def _right(case: Case, made: Made, verdict: Localization) -> bool:
    if str(verdict.outcome) != case.expect:
        return False
    if case.expect in ("healthy", "no_reference"):
        return not verdict.findings
    first = verdict.findings[0]
    others = {w for one in verdict.findings for w in one.workers}
    return (
        first.function in made.functions
        and frozenset(first.workers) == made.workers
        and others <= made.workers
    )


def _said(verdict: Localization) -> str:
    rows = [
        f"{one.kind} {one.function} of {len(one.workers)} ({', '.join(map(str, one.workers[:6]))})"
        for one in verdict.findings[:3]
    ]
    return "; ".join([str(verdict.outcome), *rows])


def _published(case: Case, made: Made) -> bool:
    found = published_rule(made.matrix)
    if not made.workers:
        return not found
    named = {w for _, workers in found for w in workers}
    functions = set(made.functions)
    if "all compute kernels" in functions:
        of = dict(zip(made.matrix.functions, made.matrix.work, strict=True))
        functions = {name for name, work in of.items() if work in DEVICE_COMPUTE}
    hit = any(name in functions and workers == made.workers for name, workers in found)
    return hit and named <= made.workers


def _table(out: Console, rows: list[Scored], failures: bool) -> bool:
    by_cause: dict[str, list[Scored]] = defaultdict(list)
    for row in rows:
        by_cause[row.cause].append(row)
    table = Table(title="right function and exactly the right workers, simulated jobs")
    for name in (
        "cause",
        "cases",
        "workers",
        "rerail",
        "EROICA rule as published",
        "NVRx score < 0.75",
    ):
        table.add_column(name, justify="left" if name == "cause" else "right")
    for cause, group in by_cause.items():
        sizes = sorted({one.workers for one in group})
        table.add_row(
            cause, str(len(group)), f"{sizes[0]}-{sizes[-1]}", str(sum(o.right for o in group)),
            str(sum(o.published for o in group)), str(sum(o.nvrx for o in group)),
        )  # fmt: skip
    out.print(table)
    sick = [row for row in rows if not row.cause.startswith("healthy")]
    well = [row for row in rows if row.cause.startswith("healthy")]
    held = True
    for name, group in (("faulty jobs", sick), ("healthy jobs without a finding", well)):
        if group:
            counts = [sum(getattr(o, key) for o in group) for key in ("right", "published", "nvrx")]
            shares = ", ".join(
                f"{who} {n} of {len(group)} ({n / len(group):.1%})"
                for who, n in zip(
                    ("rerail", "EROICA rule", "NVRx (workers only)"), counts, strict=True
                )
            )
            out.print(f"{name}: {shares}", markup=False)
            held &= counts[0] >= (BAR if group is sick else 1.0) * len(group)
    out.print(
        "The jobs are simulated by the same authors as the rules; EROICA's rule is rebuilt from reports "
        "of its paper, not from its code.",
        markup=False,
    )
    for row in rows:
        if failures and not row.right:
            out.print(f"wrong: {row.name}: {row.said}", markup=False)
    return held
