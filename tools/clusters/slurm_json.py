"""Reads the JSON of `sacct --json` and slurmrestd, of Slurm 22.05 and of 23.02 and later.

22.05 prints `exit_code: SUCCESS, 0` for steps that failed (measured), so there an exit code that
contradicts the state is reported as unknown instead of as success.
"""

from __future__ import annotations

import json
from typing import Any

from rerail.errors import ClusterError
from rerail.tools.clusters.host_list import expand
from rerail.tools.clusters.slurm_records import AttemptRecord, StepRecord, state_word


def read_sacct_json(text: str) -> list[AttemptRecord]:
    """Return the attempts in a `sacct --json` document, oldest first.

    Raises:
        ClusterError: The text is not such a document.
    """
    try:
        jobs = json.loads(text)["jobs"]
    except (ValueError, KeyError, TypeError) as error:
        raise _wrong(error) from None
    return read_job_records(jobs)


def read_job_records(jobs: Any) -> list[AttemptRecord]:
    """Return the attempts in a list of accounting's job records, oldest first.

    Raises:
        ClusterError: They are none.
    """
    found: list[AttemptRecord] = []
    seen: dict[str, int] = {}
    try:
        for job in jobs:
            name = str(job["job_id"])
            found.append(_attempt(job, name, seen.get(name, 0)))
            seen[name] = seen.get(name, 0) + 1
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _wrong(error) from None
    return found


def _wrong(error: Exception) -> ClusterError:
    return ClusterError(
        f"not the JSON of sacct: {type(error).__name__} {error}",
        subject="sacct --json",
        hint="text output is read first; rerail doctor says which Slurm this is",
    )


def _attempt(job: dict[str, Any], name: str, number: int) -> AttemptRecord:
    state = state_of(job["state"]["current"])
    code, killed = _exit(job.get("exit_code"), state)
    times = job.get("time", {})
    steps = tuple(_step(step) for step in job.get("steps", []))
    nodes = expand(job.get("nodes") or "")
    return AttemptRecord(
        name,
        int(job.get("restart_cnt", number)) if "restart_cnt" in job else number,
        state,
        nodes,
        code,
        killed,
        epoch_of(times.get("start")),
        epoch_of(times.get("end")),
        None,
        steps,
    )


def _step(step: dict[str, Any]) -> StepRecord:
    state = state_of(step["state"])
    named = step["step"]["id"]
    label = str(named).rpartition(".")[2]
    code, killed = _exit(step.get("exit_code"), state)
    listed = step.get("nodes", {}).get("list") or []
    return StepRecord(label, state, code, killed, tuple(str(node) for node in listed))


def state_of(value: object) -> str:
    """Return the state; a list from 23.02 on, of which the first word is the base state."""
    if isinstance(value, list):
        return state_word(str(value[0])) if value else "UNKNOWN"
    return state_word(str(value))


def epoch_of(value: object) -> float | None:
    """Return a time of either generation; unset, infinite and 0 (never) give None."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return float(value) if isinstance(value, int | float) and value else None


def _exit(value: Any, state: str) -> tuple[int | None, int | None]:
    if not isinstance(value, dict):
        return None, None
    code, signal = value.get("return_code"), value.get("signal")
    if isinstance(code, dict):
        code = code.get("number") if code.get("set") else 0
    number = 0
    if isinstance(signal, dict):
        raw = signal.get("id", signal.get("signal_id", 0))
        if isinstance(raw, dict):
            raw = raw.get("number") if raw.get("set") else 0
        number = int(raw or 0)
    if code is None:
        return None, number or None
    if state not in ("COMPLETED", "RUNNING", "PENDING") and not code and not number:
        return None, None
    return int(code), number
