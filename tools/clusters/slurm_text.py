"""Reads the text output of Slurm's commands, with fields that a job cannot write.

`scontrol show job` prints the job's name and comment between other fields, so a job can forge any
field of it. Everything that decides something is therefore read from `sacct -P` and `squeue -o`
with explicit fields, none of which the job's user can set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from rerail.tools.clusters.host_list import expand
from rerail.tools.clusters.slurm_records import (
    AttemptRecord,
    NodeRecord,
    StepRecord,
    exit_pair,
    state_word,
)

SACCT_FIELDS = ("JobIDRaw", "State", "ExitCode", "NodeList", "Start", "End", "UID")
TABLE_FIELDS = (
    *("State", "ExitCode", "NodeList", "Start", "End"),
    *("DerivedExitCode", "MaxRSS", "MaxRSSNode", "MaxRSSTask"),
)
"""What a person would look at; a job's owner can change DerivedExitCode, so nothing is decided by it."""
SINFO_FORMAT = "%N|%T|%H|%E"
SQUEUE_FORMAT = "%A|%T|%U|%N"


def read_sacct(text: str) -> list[AttemptRecord]:
    """Return the attempts of `sacct -P -D`, with or without the header line, oldest first.

    A job that was requeued has several records under one id; the first is attempt 0.
    """
    rows = [line.split("|") for line in text.splitlines() if "|" in line]
    names = list(SACCT_FIELDS)
    if rows and rows[0][0] in ("JobID", "JobIDRaw"):
        names = ["JobIDRaw" if name == "JobID" else name for name in rows[0]]
        rows = rows[1:]
    attempts: list[AttemptRecord] = []
    steps: list[list[StepRecord]] = []
    seen: dict[str, int] = {}
    latest: dict[str, int] = {}
    for row in rows:
        value = dict(zip(names, row, strict=False))
        job, _, step = value["JobIDRaw"].partition(".")
        code, number = exit_pair(value.get("ExitCode", ""))
        nodes = expand(value.get("NodeList", ""))
        state = state_word(value.get("State", ""))
        if step:
            if job in latest:
                steps[latest[job]].append(StepRecord(step, state, code, number, nodes))
            continue
        latest[job] = len(attempts)
        steps.append([])
        attempts.append(
            AttemptRecord(
                job,
                seen.get(job, 0),
                state,
                nodes,
                code,
                number,
                _epoch(value.get("Start", "")),
                _epoch(value.get("End", "")),
                int(value["UID"]) if value.get("UID", "").isdigit() else None,
            )
        )
        seen[job] = seen.get(job, 0) + 1
    return [replace(one, steps=tuple(steps[place])) for place, one in enumerate(attempts)]


def attempt_rows(text: str, attempt: AttemptRecord) -> str:
    """Return the header and the rows of one attempt out of a table of `sacct -P -D` without rows of others.

    Times stand there as seconds since the epoch, and are written as dates here.
    """
    lines = text.splitlines()
    if not lines:
        return ""
    names = lines[0].split("|")
    kept = [lines[0]]
    number = -1
    for line in lines[1:]:
        row = line.split("|")
        job, _, step = row[0].partition(".")
        if job != attempt.job:
            continue
        number += not step
        if number == attempt.attempt:
            kept.append("|".join(map(_dated, names, row)))
    return "\n".join(kept) + "\n" if len(kept) > 1 else ""


def _dated(name: str, value: str) -> str:
    at = _epoch(value) if name in ("Start", "End") else None
    # Slurm's own form: local time without a zone.
    return value if at is None else datetime.fromtimestamp(at).isoformat()  # noqa: DTZ006


def _epoch(text: str) -> float | None:
    """Return seconds since the epoch; SLURM_TIME_FORMAT=%s makes Slurm print them."""
    return float(text) if text.isdigit() else None


def read_squeue(text: str) -> list[tuple[str, str, int | None, tuple[str, ...]]]:
    """Return job id, state, uid and nodes of each line in SQUEUE_FORMAT."""
    found = []
    for line in text.splitlines():
        job, state, uid, nodes = [*line.split("|", 3), "", "", ""][:4]
        if job:
            user = int(uid) if uid.isdigit() else None
            found.append((job, state_word(state), user, expand(nodes)))
    return found


def read_sinfo(text: str) -> list[NodeRecord]:
    """Return the nodes of `sinfo -h -N` in SINFO_FORMAT, each once."""
    nodes: dict[str, NodeRecord] = {}
    for line in text.splitlines():
        parts = line.split("|", 3)
        if len(parts) == 4:
            name, state, since, reason = (part.strip() for part in parts)
            reason = "" if reason in ("none", "(null)") else reason
            # A star marks a node that does not answer.
            word = state.upper().replace("*", "+NOT_RESPONDING")
            nodes[name] = NodeRecord(name, word, reason, since)
    return list(nodes.values())


def job_paths(lines: Iterable[str], job: str = "") -> dict[str, str]:
    """Return StdOut, StdErr and WorkDir of `scontrol show job`: hints on where to look, no facts.

    The last mention wins: these fields come after everything else that the user can write. Of an
    array, of which all tasks are shown, those of the task with the raw id `job` are taken.
    """
    found: dict[str, str] = {}
    wanted = True
    for line in lines:
        if line.startswith("JobId="):
            wanted = not job.isdigit() or line.split()[0] == f"JobId={job}"
        key, _, value = line.strip().partition("=")
        if wanted and key in ("StdOut", "StdErr", "WorkDir"):
            found[key] = value
    return found
