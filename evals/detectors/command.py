"""`rerail eval detectors`: every table that shows what the numeric detectors can and cannot do.

All methods see the same series in the same run. Baselines whose package is missing are named.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from rerail.domain.series import StepSeries
from rerail.evals.detectors.gloo_jobs import gloo_noise, gloo_table
from rerail.evals.detectors.loss_table import score_rules
from rerail.evals.detectors.methods import METHODS, Method, first_alarms
from rerail.evals.detectors.place_table import localize_table, period_table, replay_table
from rerail.evals.detectors.real_logs import LogVerdict, judge_cases, judge_mlperf, noise_pool
from rerail.evals.detectors.scoring import Score
from rerail.evals.detectors.step_sets import (
    FAMILIES,
    HEALTHY,
    Labelled,
    Maker,
    falcon_set,
    with_pool,
)
from rerail.tools.detectors.detect import detect
from rerail.tools.detectors.events import SeriesOutcome
from rerail.tools.detectors.slow_steps_many import SlowStepBank

_TINY_ROWS = 800
_LEAST_S = 0.05
_FEW_JOBS = ("FOCuS, hold 5", "fast-bocpd")
OURS = ("rerail, first alarm", "rerail, confirmed")


@dataclass(slots=True)
class Plan:
    """How much to run. Slow baselines get the first series of each family only."""

    seed: int = 50_000
    series: int = 50
    rows: int = 20_000
    slow_series: int = 4
    slow_rows: int = 6_000
    healthy_rows: int = 1_000_000
    skip: tuple[str, ...] = ()
    results: dict[str, Any] = field(default_factory=dict)


def detectors_command(
    *,
    seed: int = 50_000,
    quick: bool = False,
    cases: Path | None = None,
    only: str = "",
    trace: Path | None = None,
    console: Console | None = None,
) -> int:
    """Print the tables and return 0 when every bar of detectors.md section 11 (D, L, N, P) holds.

    `cases` is a folder with `dev.jsonl` and `mlperf/`; `only` names one table (steps, healthy,
    falcon, loss, cost, logs, periods, places, gloo, replay); `quick` runs a tenth. `trace` is an
    op-level timeline for the replay table. Returns 1 when a bar does not hold.
    """
    out = console or Console()
    plan = Plan(seed)
    if quick:
        plan = Plan(seed, 10, 10_000, 2, 3_000, 100_000)
    methods = [method for method in METHODS if _available(out, method)]
    bars: dict[str, bool] = {}
    tables: dict[str, Callable[[], dict[str, bool]]] = {
        "steps": lambda: _steps(out, plan, methods, cases),
        "healthy": lambda: _healthy(out, plan),
        "falcon": lambda: _falcon(out, plan, methods, cases),
        "loss": lambda: _loss(out, plan),
        "cost": lambda: _cost(out, plan, methods),
        "logs": lambda: _logs(out, cases),
        "periods": lambda: period_table(out, plan.seed, 200 if not quick else 20),
        "places": lambda: localize_table(out, plan.seed, 20 if not quick else 4),
        "gloo": lambda: gloo_table(out),
        "replay": lambda: replay_table(out, plan.seed, trace),
    }
    for name, table in tables.items():
        if only in ("", name):
            bars.update(table())
    _print_bars(out, bars)
    return 0 if all(bars.values()) else 1


def _available(out: Console, method: Method) -> bool:
    reason = method.missing()
    if reason:
        out.print(f"skipped: {reason}", markup=False)
    return reason is None


def _score(method: Method, series: list[Labelled]) -> tuple[Score, float]:
    score = Score()
    begin = time.perf_counter()
    alarms = method.run(np.stack([item.values for item in series]))
    spent = time.perf_counter() - begin
    for item, found in zip(series, alarms, strict=True):
        score.add(item, found)
    return score, 1e6 * spent / max(1, score.steps)


def _make(make: Maker, seed: int, count: int, rows: int) -> list[Labelled]:
    return [make(np.random.default_rng((seed, number)), rows) for number in range(count)]


def _steps(out: Console, plan: Plan, methods: list[Method], cases: Path | None) -> dict[str, bool]:
    families = dict(FAMILIES)
    if cases is not None and (pool := noise_pool(cases / "mlperf")):
        families |= {k: v for k, v in with_pool(pool).items() if not k.startswith("h_")}
    if pool := gloo_noise(3000 if plan.series >= 50 else 500):
        families["gloo_noise"] = with_pool(pool)["log_noise"]
    families |= HEALTHY
    titles = ("family", "method", "F1", "precision", "onset recall", "relief recall", "delay",
              "false/M", "us/pt")  # fmt: skip
    table = Table(*titles, title="Step time: level changes of 10 % and more")
    bars: dict[str, bool] = {}
    for name, make in families.items():
        full = _make(make, plan.seed, plan.series, plan.rows)
        small = _make(make, plan.seed, plan.slow_series, plan.slow_rows)
        tiny = _make(make, plan.seed, 2, _TINY_ROWS)
        scores: dict[str, Score] = {}
        beside: dict[str, Score] = {}
        for method in methods:
            sample = tiny if method.tiny else small if method.slow else full
            score, cost = _score(method, sample)
            scores[method.name] = score
            if method.name in OURS:
                beside[method.name], _ = _score(method, small)
            mark = " **" if method.tiny else " *" if method.slow else ""
            _row(table, name, method.name + mark, score, cost)
        short, _ = _score(methods[0], tiny)
        bars |= _step_bars(name, scores, beside, short)
    out.print(table)
    out.print(
        f"* on {plan.slow_series} series of {plan.slow_rows} rows, others on {plan.series} of "
        f"{plan.rows}, ** on 2 series of {_TINY_ROWS}; bars against such a baseline compare on its "
        "series",
        markup=False,
    )
    return bars


def _row(table: Table, family: str, name: str, score: Score, cost: float) -> None:
    onset = score.onset_hits / score.onset_true if score.onset_true else float("nan")
    relief = score.relief_hits / score.relief_true if score.relief_true else float("nan")
    table.add_row(
        family,
        name,
        f"{score.f1:.4f}" if score.true_changes else "-",
        f"{score.precision:.4f}" if score.true_changes else "-",
        f"{onset:.4f}" if score.onset_true else "-",
        f"{relief:.4f}" if score.relief_true else "-",
        f"{score.delay:.1f}" if score.true_changes else "-",
        f"{score.false_per_million:.1f}",
        f"{cost:.2f}",
    )


def _step_bars(
    name: str, scores: dict[str, Score], beside: dict[str, Score], short: Score
) -> dict[str, bool]:
    first, confirmed = scores[OURS[0]], scores[OURS[1]]
    bars: dict[str, bool] = {}
    if name == "adv":
        bars["D2 adv, confirmed: F1 >= .99, <= 1 false/M"] = (
            confirmed.f1 >= 0.99 and confirmed.false_per_million <= 1
        )
    elif name in FAMILIES:
        recalls = (first.onset_hits / first.onset_true, first.relief_hits / first.relief_true)
        bars[f"D2 {name}: F1 >= .99, recalls >= .98"] = first.f1 >= 0.99 and min(recalls) >= 0.98
    verified = scores.get("BOCD+V (FALCON)")
    if verified and name in ("clean", "real", "small", "short", "overlap"):
        ratio = beside[OURS[0]].delay / verified.delay
        bars[f"D3 {name}: delay <= .75 of BOCD+V"] = ratio <= 0.75
    if name in ("real", "small", "short", "varlen"):
        rivals = [
            (short if method.tiny else beside[OURS[0]] if method.slow else first).f1
            >= scores[method.name].f1
            for method in METHODS
            if method.name in scores and method.name not in OURS
        ]
        bars[f"D4 {name}: F1 >= every baseline"] = all(rivals)
    return bars


def _healthy(out: Console, plan: Plan) -> dict[str, bool]:
    table = Table("series", "steps", "first alarms", "confirmed", "us/pt",
                  title="False alarms on long healthy series")  # fmt: skip
    total = verified = 0
    for name, make in {**HEALTHY, "h_clean 2": HEALTHY["h_clean"]}.items():
        series = make(np.random.default_rng((plan.seed, 9)), plan.healthy_rows)
        begin = time.perf_counter()
        alarms = [alarm for alarm in first_alarms(series.values) if alarm.said_at >= 100]
        spent = 1e6 * (time.perf_counter() - begin) / plan.healthy_rows
        confirmed = METHODS[1].run(series.values[None, :])[0]
        total, verified = total + len(alarms), verified + len(confirmed)
        table.add_row(name, str(plan.healthy_rows), str(len(alarms)), str(len(confirmed)),
                      f"{spent:.2f}")  # fmt: skip
    out.print(table)
    return {
        "D1: no false event on 5 long healthy series": verified == 0,
        "D1, first alarms too": total == 0,
    }


def _falcon(out: Console, plan: Plan, methods: list[Method], cases: Path | None) -> dict[str, bool]:
    table = Table("set", "method", "jobs", "accuracy", "FPR", "FNR",
                  title="FALCON-like job sets, standard FPR and FNR")  # fmt: skip
    right = jobs = 0
    for kind in ("compute", "comm"):
        series = falcon_set(kind, plan.seed, 10_000 if plan.series >= 50 else 4_000)
        score = Score()
        for item in series:
            report = detect(StepSeries(item.name, np.arange(len(item.values)), item.values))
            score.add(item, [], report.outcome is SeriesOutcome.FAIL_SLOW)
        right, jobs = right + score.jobs_right, jobs + score.jobs
        _job_row(table, kind, "rerail, outcome", score)
        for method in methods:
            if method.name in OURS or method.tiny or method.needs == "ruptures":
                continue
            few = series[:10] + series[-6:] if method.name in _FEW_JOBS else series
            score, _ = _score(method, few)
            _job_row(table, kind, method.name, score)
    if cases is not None and (pool := noise_pool(cases / "mlperf")):
        score = Score()
        for make in with_pool(pool).values():
            for item in _make(make, plan.seed, plan.series, 5_000):
                report = detect(StepSeries(item.name, np.arange(len(item.values)), item.values))
                score.add(item, [], report.outcome is SeriesOutcome.FAIL_SLOW)
        _job_row(table, "noise of real logs", "rerail, outcome", score)
    out.print(table)
    return {"job accuracy above 99.8 %": right / jobs > 0.998}


def _job_row(table: Table, kind: str, name: str, score: Score) -> None:
    table.add_row(
        kind,
        name,
        str(score.jobs),
        f"{score.accuracy:.4f} ({score.jobs_right})",
        f"{score.fpr:.4f} ({score.false_jobs}/{score.healthy_jobs})",
        f"{score.fnr:.4f} ({score.missed_jobs}/{score.slow_jobs})",
    )


def _loss(out: Console, plan: Plan) -> dict[str, bool]:
    table = Table("rule", "false/M healthy", "precision", "recall 8-15 %", "15-50 %", "> 50 %",
                  "delay p50/p95", "divergences missed", "delay", title="Loss")  # fmt: skip
    scores = score_rules(plan.seed, curves=plan.series)
    for name, score in scores.items():
        delays = score.delays or [0]
        late = score.divergence_delays
        table.add_row(
            name,
            f"{score.false_per_million:.1f}",
            f"{score.precision:.3f}",
            f"{score.recall(0, 0.15):.3f}",
            f"{score.recall(0.15, 0.5):.3f}",
            f"{score.recall(0.5):.3f}",
            f"{np.median(delays):.0f}/{np.quantile(delays, 0.95):.0f}",
            f"{score.missed}/{score.divergences}",
            f"{np.mean(late):.0f}" if late else "-",
        )
    out.print(table)
    own = scores["rerail"]
    good = own.false_per_million <= 1 and own.recall(0.15) >= 0.95 and own.missed == 0
    return {"N1: <= 1 false/M, recall >= .95 from 15 %, no divergence missed": good}


def _cost(out: Console, plan: Plan, methods: list[Method]) -> dict[str, bool]:
    """Time every method on one series, median of three interleaved rounds, and many at once."""
    series = FAMILIES["real"](np.random.default_rng((plan.seed, 1)), plan.slow_rows).values
    spent: dict[str, list[float]] = {method.name: [] for method in methods}
    for _ in range(3):
        for method in methods:
            begin = time.thread_time()
            rows, runs = series[:_TINY_ROWS] if method.tiny else series, 0
            # CPU time, of as many runs as the clock needs: others may use the machine as well.
            while not runs or time.thread_time() - begin < _LEAST_S:
                method.run(rows[None, :])
                runs += 1
            spent[method.name].append(1e6 * (time.thread_time() - begin) / len(rows) / runs)
    median = {name: float(np.median(values)) for name, values in spent.items()}
    table = Table("method", "us/pt", "times ours", title="Cost per point, one series")
    own = median[OURS[0]]
    for name, value in sorted(median.items(), key=lambda item: item[1]):
        table.add_row(name, f"{value:.3f}", f"{value / own:.1f}")
    out.print(table)
    small, large = _bank_seconds(1_000), _bank_seconds(10_000)
    out.print(
        f"many at once: {1e9 * small / 1_000:.0f} ns/pt for 1,000 series, "
        f"{1e9 * large / 10_000:.0f} ns/pt for 10,000 ({1e3 * large:.1f} ms a step)",
        markup=False,
    )
    bars = {"D5: >= 3x cheaper than own BOCD": median["BOCD"] >= 3 * own}
    if "fast-bocpd" in median:
        library = median["fast-bocpd"]
        bars["D5: >= 50x cheaper than a per-point library (fast-bocpd)"] = library >= 50 * own
    bars["D6: 10x the series cost at most 15x"] = large <= 15 * small
    return bars


def _bank_seconds(n: int, steps: int = 128) -> float:
    rng = np.random.default_rng(n)
    values = np.exp(rng.normal(0, 0.01, (steps + 64, n)))
    bank = SlowStepBank(n)
    for row in range(64):
        bank.update(row, values[row])
    begin = time.perf_counter()
    for row in range(64, 64 + steps):
        bank.update(row, values[row])
    return (time.perf_counter() - begin) / steps


def _logs(out: Console, cases: Path | None) -> dict[str, bool]:
    if cases is None:
        out.print("skipped: real logs (no folder of cases given)", markup=False)
        return {}
    table = Table("log", "label", "verdicts", "lost", "reason", title="Real logs")
    wrong_healthy = missed = healthy = slow = 0
    for verdict in judge_mlperf(cases / "mlperf") + judge_cases(cases / "dev.jsonl"):
        said = "fail_slow" in verdict.outcomes
        is_slow = verdict.label.startswith("fail_slow")
        slow, missed = slow + is_slow, missed + (is_slow and not said)
        if not is_slow and any(item != "insufficient" for item in verdict.outcomes):
            healthy += 1
            wrong_healthy += said
        if said or is_slow or _telling(verdict):
            table.add_row(
                verdict.case,
                verdict.label,
                ", ".join(sorted(set(verdict.outcomes))),
                f"{verdict.lost_share:.1%}",
                verdict.reason,
            )
    out.print(table)
    out.print(
        f"fail_slow: {slow - missed} of {slow} found; {wrong_healthy} of {healthy} others called "
        "fail_slow",
        markup=False,
    )
    return {"real logs: every fail_slow found": missed == 0,
            "real logs: no other log called fail_slow": wrong_healthy == 0}  # fmt: skip


def _telling(verdict: LogVerdict) -> bool:
    return bool(set(verdict.outcomes) - {"healthy", "insufficient"}) or verdict.lost_share > 0


def _print_bars(out: Console, bars: dict[str, bool]) -> None:
    table = Table("bar", "holds", title="Bars")
    for name, holds in bars.items():
        table.add_row(name, "yes" if holds else "NO")
    out.print(table)
