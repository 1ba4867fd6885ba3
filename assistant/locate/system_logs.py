"""Logs of the kernel and of Slurm's daemons, as far as they are of one attempt of a job.

Where a line is of another job or another time, an empty one stands in its place: the line numbers are
those of the file. What the job's user may have written is not read.
"""

from __future__ import annotations

import glob
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rerail.assistant.locate.attempt import Chosen
from rerail.assistant.locate.budget import Budget, in_words
from rerail.assistant.locate.locator import Found, Item
from rerail.assistant.watch.evidence import belongs_to, fill, scheduler_pattern
from rerail.assistant.watch.kernel_witness import dated_lines, of_host
from rerail.assistant.watch.trusted_file import job_may_write
from rerail.domain.evidence import Stream
from rerail.domain.job import JobEvent
from rerail.errors import RerailError
from rerail.log_parsers.sources import Problem
from rerail.recovery.safe_files import open_regular
from rerail.recovery.site_policy import JobLayout
from rerail.tools.clusters.slurm_read import JobFiles
from rerail.tools.clusters.slurm_records import AttemptRecord

_NO_FILES = JobFiles(None, None, None)


def add_system_logs(
    event: JobEvent,
    chosen: Chosen,
    layout: JobLayout,
    configured: Sequence[str],
    ids: Sequence[str],
    budget: Budget,
    found: Found,
) -> None:
    """Add what the kernel and Slurm's daemons wrote down during an attempt.

    Args:
        event: fills in the patterns of the policy.
        chosen: its nodes and its time, and when the next attempt had the nodes.
        layout: the site's patterns.
        configured: logs of this host that Slurm's own configuration names.
        ids: the ids under which Slurm's logs speak of the job.
        budget: the time that is left.
        found: takes what is found and what is not.
    """
    attempt = chosen.attempt
    wanted = scheduler_pattern(ids)
    of_slurm = [
        path
        for node in (*attempt.nodes, "")
        for path in _filled(layout.scheduler_logs, event, node)
    ]
    for pattern in dict.fromkeys((*of_slurm, *configured)):

        def of_job(stream: Iterator[str]) -> Iterator[str]:
            return (line if belongs_to(line, wanted, chosen.span) else "\n" for line in stream)

        _add(pattern, None, Stream.SCHEDULER, of_job, attempt, budget, found)
    kernel = {node: _filled(layout.kernel_logs, event, node) for node in attempt.nodes}
    for node, patterns in kernel.items():

        def of_time(stream: Iterator[str], node: str = node) -> Iterator[str]:
            return (
                line if within and of_host(host, node) else "\n"
                for line, within, host in dated_lines(stream, chosen.span)
            )

        for pattern in patterns:
            _add(pattern, node, Stream.KERNEL, of_time, attempt, budget, found)
    if attempt.nodes and not layout.kernel_logs:
        which = ", ".join(attempt.nodes[:4]) + (", ..." if len(attempt.nodes) > 4 else "")
        why = "nothing says where they are kept: jobs.kernel_logs in the policy file"
        found.missing.append(
            Problem(f"kernel logs of {which}", why, f"ssh {attempt.nodes[0]} dmesg -T")
        )


def _filled(patterns: Sequence[str], event: JobEvent, node: str) -> list[str]:
    return [fill(one, event, _NO_FILES, node) for one in patterns if node or "{node}" not in one]


def _add(
    pattern: str,
    node: str | None,
    stream: Stream,
    keep: Callable[[Iterator[str]], Iterator[str]],
    attempt: AttemptRecord,
    budget: Budget,
    found: Found,
) -> None:
    what = f"kernel log of {node}" if node else "log of Slurm's daemons"
    hint = f"ssh {node} dmesg -T" if node else f"ls -l {pattern}"
    try:
        names = budget.on_files(lambda: sorted(glob.glob(pattern)), Path(pattern))
        if not names:
            found.missing.append(Problem(f"{what}: {pattern}", "is not there", hint))
        for name in names:
            text = budget.on_files(partial(_read, Path(name), keep, attempt), Path(name))
            if text.strip():
                found.items.append(Item(name, text, node=node, stream=stream))
            else:
                why = "holds no line of this attempt"
                found.missing.append(Problem(f"{what}: {name}", why, hint))
    except (RerailError, OSError) as error:
        why, _ = in_words(error)
        found.missing.append(Problem(f"{what}: {pattern}", why, hint))


def _read(
    path: Path, keep: Callable[[Iterator[str]], Iterator[str]], attempt: AttemptRecord
) -> bytes:
    if job_may_write(path, attempt.uid):
        raise PermissionError(0, "is no witness: the job's user may have written it", str(path))
    handle = open_regular(path, follow=True)
    with open(handle, encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        return "".join(keep(lines)).encode("utf-8", "surrogateescape")


def on_this_host(pattern: str, nodes: Sequence[str]) -> list[str]:
    """Return the logs of this host that a pattern of slurm.conf names: %n is a node, %h this host.

    Source: slurm.conf(5), SlurmdLogFile.
    """
    host = socket.gethostname().split(".")[0]
    if "%n" in pattern:
        return [pattern.replace("%n", node).replace("%h", host) for node in nodes]
    return [re.sub("%h", host, pattern)]
