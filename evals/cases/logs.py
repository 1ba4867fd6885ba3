"""`rerail eval logs DIR`: whole log files with an index that says what each of them is.

The index (`index.json`) is a list of objects with `file` and `label`. The labels of the MLPerf
training logs are outcomes, not leaves; here stands what counts as right for each of them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rerail.assistant.pipeline import diagnose_paths
from rerail.domain.diagnosis import Diagnosis, Outcome
from rerail.errors import EvidenceError

_COMPLETE = ("no_failure", "teardown_hang_or_abort")
RIGHT: dict[str, Callable[[Diagnosis], bool]] = {
    "success_with_scary_lines": lambda d: (
        d.outcome is Outcome.NO_FAILURE and d.failure_type in _COMPLETE
    ),
    "success_then_teardown_failure": lambda d: d.failure_type in _COMPLETE,
    "fail_slow": lambda d: d.category == "fail_slow",
    "failed_exception": lambda d: (
        d.outcome is Outcome.FAILURE and d.category in ("user_code", "data", "checkpoint")
    ),
    "job_time_limit": lambda d: d.failure_type == "job_time_limit",
    "log_ends_without_run_stop": lambda d: d.outcome is Outcome.INCONCLUSIVE,
    "target_not_reached": lambda d: d.failure_type == "target_not_reached",
}


def logs_command(folder: Path, *, json_output: bool) -> int:
    """Diagnose every file of the index; return 0 when the index could be read.

    Raises:
        EvidenceError: when the index is missing or not valid.
    """
    index = folder / "index.json"
    try:
        entries = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvidenceError(
            f"{index}: {error}", subject=str(index), hint="rerail eval logs DIR_WITH_INDEX"
        ) from None
    counts: dict[str, list[int]] = {}
    wrong: list[tuple[str, str, Diagnosis]] = []
    started = time.perf_counter()
    size = 0
    for entry in entries:
        outcome = diagnose_paths([folder / entry["file"]])
        size += outcome.collection.size
        diagnosis = outcome.diagnosis
        label = entry["label"]
        good = RIGHT.get(label, lambda d, label=label: d.failure_type == label)(diagnosis)
        row = counts.setdefault(label, [0, 0])
        row[0] += good
        row[1] += 1
        if not good:
            wrong.append((entry["file"], label, diagnosis))
    elapsed = time.perf_counter() - started
    if json_output:
        payload = {"schema_version": 1, "right": {k: v[0] for k, v in counts.items()},
                   "asked": {k: v[1] for k, v in counts.items()}, "wrong": [w[0] for w in wrong]}  # fmt: skip
        sys.stdout.write(json.dumps(payload, indent=2) + "\n")
        return 0
    console = Console()
    for name, label, diagnosis in wrong:
        console.print(
            f"{name}: want {label}, said {diagnosis.outcome} {diagnosis.failure_type}: {diagnosis.summary}",
            markup=False,
        )
    table = Table("label", "right", "of", title=f"whole logs in {folder.name}")
    for label, (good, asked) in counts.items():
        table.add_row(label, str(good), str(asked))
    console.print(table)
    console.print(f"{len(entries)} logs, {size / 1e6:.0f} MB in {elapsed:.1f} s", highlight=False)
    return 0
