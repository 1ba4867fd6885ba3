"""Step series out of real training logs, to judge false alarms and to draw noise from.

Reads just the lines that the case sets hold (MLPerf logging, DLLogger, Megatron-LM); the product
has its own log reader, and this one stays independent of it on purpose.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rerail.domain.series import FloatArray, MetricSeries, StepSeries
from rerail.tools.detectors.detect import detect
from rerail.tools.detectors.loss import find_frozen
from rerail.tools.detectors.workload import running_median

_ITERATION = re.compile(
    r"Iteration (\d+) \|.*?iteration_time : ([\d.]+) ms(?: \| train_loss : (\S+))?"
)
_MEGATRON = re.compile(
    r"iteration +(\d+)/ *\d+ \|.*?elapsed time per iteration \((m?s)\): ([\d.]+)"
)
_LM_LOSS = re.compile(r"lm loss: (\S+)")


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """What one log's series were judged, beside its label."""

    case: str
    label: str
    outcomes: tuple[str, ...]
    lost_share: float
    reason: str


def series_of(lines: Iterable[str], name: str) -> tuple[list[StepSeries], list[MetricSeries]]:
    """Return the step series and evaluation scores found in the lines of one log."""
    times: dict[str, list[tuple[int, float, float]]] = {}
    scores: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        if ":::MLLOG " in line:
            _mllog(line, times, scores)
        elif match := _ITERATION.search(line):
            loss = float(match[3]) if match[3] else np.nan
            row = (int(match[1]), float(match[2]) / 1e3, loss)
            times.setdefault("iteration", []).append(row)
        elif match := _MEGATRON.search(line):
            scale = 1e-3 if match[2] == "ms" else 1.0
            loss_match = _LM_LOSS.search(line)
            loss = float(loss_match[1]) if loss_match else np.nan
            row = (int(match[1]), float(match[3]) * scale, loss)
            times.setdefault("iteration", []).append(row)
    found = []
    for kind, rows in times.items():
        step, seconds, loss_column = (np.array(column) for column in zip(*rows, strict=True))
        has_loss = bool(np.isfinite(loss_column).any())
        found.append(
            StepSeries(
                f"{name} {kind}",
                step.astype(np.int64),
                seconds.astype(np.float64),
                loss=loss_column if has_loss else None,
            )
        )
    metrics = [
        MetricSeries(
            f"{name} {kind}",
            np.array([number for number, _ in rows]),
            np.array([score for _, score in rows]),
        )
        for kind, rows in scores.items()
    ]
    return found, metrics


def _mllog(
    line: str,
    times: dict[str, list[tuple[int, float, float]]],
    scores: dict[str, list[tuple[int, float]]],
) -> None:
    try:
        record = json.loads(line[line.find(":::MLLOG ") + 9 :])
    except ValueError:
        return
    key, value, about = record.get("key"), record.get("value"), record.get("metadata") or {}
    number = about.get("step_num") or about.get("samples_count") or about.get("epoch_num")
    if not isinstance(number, int | float):
        return
    if key == "tracked_stats" and isinstance(value, dict):
        rate = value.get("throughput")
        if isinstance(rate, int | float) and rate > 0:
            times.setdefault("throughput", []).append((int(number), 1 / float(rate), np.nan))
    elif key == "train_loss" and isinstance(value, int | float):
        times.setdefault("loss", []).append((int(number), np.nan, float(value)))
    elif key == "eval_accuracy" and isinstance(value, int | float):
        metric = str(about.get("metric", "score"))
        scores.setdefault(metric, []).append((int(number), float(value)))


def judge(lines: Iterable[str], case: str, label: str) -> LogVerdict:
    """Judge every series of one log and return all verdicts."""
    found, metrics = series_of(lines, case)
    outcomes, reasons, share = [], [], 0.0
    for series in found:
        report = detect(series)
        outcomes.append(str(report.outcome))
        reasons.append(report.reason)
        share = max(share, report.lost_share)
    for metric in metrics:
        if find_frozen(metric.step, metric.value, least=3):
            outcomes.append("frozen_score")
    return LogVerdict(case, label, tuple(outcomes), share, "; ".join(r for r in reasons if r))


def judge_mlperf(folder: Path) -> list[LogVerdict]:
    """Judge all logs of a folder with `index.json` (file, label) and gzip files."""
    verdicts = []
    for entry in json.loads((folder / "index.json").read_text()):
        with gzip.open(folder / entry["file"], "rt", errors="replace") as lines:
            verdicts.append(judge(lines, entry["file"].split(".")[0], entry["label"]))
    return verdicts


def judge_cases(path: Path) -> list[LogVerdict]:
    """Judge the logs of a JSON-lines file of cases (id, label, log) that hold any series."""
    verdicts = []
    for line in path.read_text().splitlines():
        case = json.loads(line)
        verdict = judge(case["log"].splitlines(), case["id"], case["label"])
        if verdict.outcomes:
            verdicts.append(verdict)
    return verdicts


def noise_pool(folder: Path, least: int = 1000) -> tuple[FloatArray, ...]:
    """Return log residuals [n] of the long healthy series in a folder of real logs.

    The slow trend is removed with a running median, and the logs labelled slow are left out. Short
    stretches in which every other step takes twice as long are part of that noise.
    """
    pool = []
    for entry in json.loads((folder / "index.json").read_text()):
        if entry["label"] == "fail_slow":
            continue
        with gzip.open(folder / entry["file"], "rt", errors="replace") as lines:
            found, _ = series_of(lines, entry["file"])
        for series in found:
            seconds = series.step_time_s
            if len(seconds) < least or not np.isfinite(seconds).all():
                continue
            logs = np.log(seconds[50:])
            pool.append(np.asarray(logs - running_median(logs, 101)))
    return tuple(pool)
