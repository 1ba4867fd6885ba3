"""Collects the evidence of one failed attempt of a job, parted by who could have written it.

`job/` holds what the job wrote and can have forged; `system/` what the scheduler and the kernel
wrote. Only observations from `system/`, and the scheduler's own answers, count as attested.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO

from rerail.assistant.watch.dcgm_witness import dcgm_facts
from rerail.assistant.watch.health_reports import read_health_report
from rerail.assistant.watch.kernel_witness import AFTER_S, accused_by_kernel
from rerail.assistant.watch.trusted_file import job_may_write
from rerail.domain.job import JobEvent
from rerail.errors import EvidenceError, RerailError
from rerail.log_parsers.text import clean
from rerail.recovery.safe_files import open_regular
from rerail.recovery.site_policy import Dcgm, JobLayout
from rerail.recovery.situation import Attested
from rerail.tools.clusters.attempt_span import AttemptSpan
from rerail.tools.clusters.reader import ClusterReader
from rerail.tools.clusters.slurm_outputs import Outputs
from rerail.tools.clusters.slurm_read import JobFiles
from rerail.tools.clusters.slurm_records import AttemptRecord

MOST_COPIED_BYTES = 256 << 20
MOST_READ_BYTES = 64 << 30
MOST_LOGS = 5_000
"""Files of one job that are looked at; a job may make any number."""
WEBHOOKS = ("webhook", "alertmanager")
"""Sources of events whose sender is not an account of this host."""
MOST_KEPT_LINES = 20_000
FATAL_SIGNALS = frozenset({6, 7, 9, 11})
_DIED = re.compile(
    r"^\[(?P<at>[^\]]+)\] \[(?P<job>\d+)\.\S+\] get_exit_code task \d+ died by signal: (?P<n>\d+)"
)


@dataclass
class Evidence:
    """Where the evidence lies, what is attested, and what could not be had."""

    paths: list[Path] = field(default_factory=list)
    attested: list[Attested] = field(default_factory=list)
    died_by_signal: bool = False
    tested: bool = False
    problems: list[str] = field(default_factory=list)
    files: JobFiles = field(default_factory=lambda: JobFiles(None, None, None))
    _held: list[tuple[Path, int]] = field(default_factory=list)

    def hold(self, name: Path, handle: int) -> None:
        """Let a large file be read under `name` where it lies: as it was opened, whatever is there now."""
        name.symlink_to(f"/proc/{os.getpid()}/fd/{handle}")
        self._held.append((name, handle))

    def close(self) -> None:
        """Let go of what was not copied."""
        for name, handle in self._held:
            name.unlink(missing_ok=True)
            os.close(handle)
        self._held.clear()


def fill(pattern: str, event: JobEvent, files: JobFiles, node: str = "") -> str:
    """Return a pattern of the policy with its fields filled in; the job's folder is taken literally."""
    values = {
        "folder": glob.escape(files.folder or ""),
        "job": glob.escape(event.job.job),
        # Whoever sent the event chose the name: it must not lead out of the folder of users.
        "user": glob.escape(event.job.user or "") if _is_name(event.job.user or "") else "",
        "node": node,
    }
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), pattern)


def _is_name(text: str) -> bool:
    return "/" not in text and text not in (".", "..")


def allowed_logs(event: JobEvent, folders: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the logs that an event may name, and why others are left out.

    Who can post a webhook may not choose what is read here: only below `folders`.
    """
    logs = [Path(one) for one in event.logs]
    if event.source.partition(":")[0] not in WEBHOOKS:
        return logs, []
    roots = [os.path.realpath(one) for one in folders]
    kept = [one for one in logs if any(_below(one, root) for root in roots)]
    left = [
        f"{one} was named by a webhook and lies in none of webhooks.log_folders; it was not read"
        for one in logs
        if one not in kept
    ]
    return [Path(os.path.realpath(one)) for one in kept], left


def _below(path: Path, root: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(root)


def collect_evidence(
    event: JobEvent,
    span: AttemptSpan,
    reader: ClusterReader,
    layout: JobLayout,
    folder: Path,
    *,
    dcgm: Dcgm | None = None,
    as_reader: Sequence[str] = (),
    webhook_folders: Sequence[str] = (),
) -> Evidence:
    """Copy the evidence of an attempt into `folder`; what cannot be read becomes a problem.

    `dcgm` names where DCGM is asked, `as_reader` is put before commands that ask it.
    """
    attempt = span.attempt
    found = Evidence(files=reader.files(event.job.job))
    (folder / "job").mkdir(parents=True, exist_ok=True)
    (folder / "system").mkdir(exist_ok=True)
    found.problems += reader.save_logs(attempt, folder)
    for source in _job_files(event, found.files, reader.outputs(attempt), layout):
        _take(source, folder / "job", attempt.uid, found, span)
    further, left_out = allowed_logs(event, webhook_folders)
    found.problems += left_out
    for extra in further:
        _take(extra, folder / "job", attempt.uid, found)
    _attest_nodes(attempt, reader, found, folder)
    _scheduler_logs(event, span, layout, found, folder)
    _kernel_logs(event, span, layout, found, folder)
    _health_reports(event, attempt, layout, found)
    if dcgm is not None:
        _dcgm(attempt, dcgm, as_reader, found, folder)
    found.paths.insert(0, folder)
    return found


def _job_files(
    event: JobEvent, files: JobFiles, outputs: Outputs, layout: JobLayout
) -> Iterator[Path]:
    named = [Path(one) for one in (files.stdout, files.stderr) if one]
    # Of what steps were told only what is there: which of several names a task uses is not known.
    named += [Path(one) for one in outputs.paths() if os.path.lexists(one)]
    for pattern in layout.logs:
        hits = itertools.islice(glob.iglob(fill(pattern, event, files)), MOST_LOGS)
        named += [Path(one) for one in sorted(hits)]
    yield from dict.fromkeys(path for path in named if path.name != "null")


def _take(
    source: Path, into: Path, uid: int | None, found: Evidence, span: AttemptSpan | None = None
) -> None:
    """Copy one file that belongs to the job's user; a large one is read where it lies.

    A job can name any path as its output, so a file of another user is not read, nor, with a `span`, one that
    another attempt wrote last.
    """
    try:
        handle = open_regular(source, owners=() if uid is None else (uid,), follow=True)
    except RerailError as error:
        found.problems.append(error.message)
        return
    except OSError as error:
        found.problems.append(f"{source}: {error.strerror}")
        return
    facts = os.fstat(handle)
    if span is not None and (why := span.of_another(facts.st_mtime)):
        os.close(handle)
        found.problems.append(f"{source}: {why}")
        return
    if facts.st_size <= MOST_COPIED_BYTES:
        with os.fdopen(handle, "rb") as stream, _free_name(into, source).open("wb") as out:
            # No further than its size: a file may grow while it is copied, for ever.
            _copy(stream, out, facts.st_size)
        return
    if facts.st_size > MOST_READ_BYTES or 512 * facts.st_blocks < facts.st_size // 2:
        os.close(handle)
        found.problems.append(f"{source}: {facts.st_size} bytes, most of them a hole, or too many")
        return
    found.hold(_free_name(into, source), handle)


def _copy(stream: IO[bytes], out: IO[bytes], size: int) -> None:
    left = size
    while left > 0 and (piece := stream.read(min(left, 1 << 20))):
        out.write(piece)
        left -= len(piece)


def _free_name(into: Path, source: Path) -> Path:
    target = into / source.name
    number = 1
    while target.exists():
        number += 1
        target = into / f"{source.stem}-{number}{source.suffix}"
    return target


def _attest_nodes(
    attempt: AttemptRecord, reader: ClusterReader, found: Evidence, folder: Path
) -> None:
    """Write down what the scheduler says of the attempt and its nodes; lost nodes are attested."""
    states = []
    if attempt.nodes:
        try:
            for node in reader.nodes(attempt.nodes):
                states.append(f"{node.node} {node.state} {clean(node.reason.encode())}".rstrip())
                if node.lost:
                    what = node.state.lower().replace("+", ", ").replace("_", " ")
                    found.attested.append(Attested(source="scheduler", node=node.node, what=what))
        except RerailError as error:
            found.problems.append(error.message)
    (folder / "system" / "sacct.txt").write_text(attempt_table(attempt))
    if found.attested:
        (folder / "system" / "sinfo.txt").write_text("\n".join(states) + "\n")


def attempt_table(attempt: AttemptRecord) -> str:
    """Return an attempt and its steps as the table of `sacct -P`, which the log readers know."""
    lines = ["JobID|State|ExitCode|NodeList"]
    lines.append(_row(attempt.job, attempt.state, attempt.exit_code, attempt.signal, attempt.nodes))
    for step in attempt.steps:
        name = f"{attempt.job}.{step.step}"
        lines.append(_row(name, step.state, step.exit_code, step.signal, step.nodes))
    return "\n".join(lines) + "\n"


def _row(
    name: str, state: str, code: int | None, number: int | None, nodes: tuple[str, ...]
) -> str:
    return f"{name}|{state}|{code or 0}:{number or 0}|{','.join(nodes)}"


def _scheduler_logs(
    event: JobEvent, span: AttemptSpan, layout: JobLayout, found: Evidence, folder: Path
) -> None:
    """Copy the lines of slurmctld's and slurmd's logs that belong to this attempt."""
    attempt = span.attempt
    wanted = scheduler_pattern((event.job.job,))
    for pattern in layout.scheduler_logs:
        for name in sorted(
            {
                one
                for node in (*attempt.nodes, "")
                for one in glob.glob(fill(pattern, event, found.files, node))
            }
        ):
            kept = []
            try:
                if job_may_write(Path(name), attempt.uid):
                    found.problems.append(f"{name}: the job's user may have written it")
                    continue
                with open(name, errors="replace") as lines:
                    for line in lines:
                        if belongs_to(line, wanted, span):
                            kept.append(line)
                            died = _DIED.match(line)
                            if died and int(died["n"]) in FATAL_SIGNALS:
                                found.died_by_signal = True
            except OSError as error:
                found.problems.append(f"{name}: {error.strerror}")
            if kept:
                target = folder / "system" / Path(name).name
                target.write_text("".join(kept[-MOST_KEPT_LINES:]))


def scheduler_pattern(ids: Sequence[str]) -> re.Pattern[str]:
    """Return what finds the lines of slurmctld's and slurmd's logs on a job, under any of its ids."""
    any_id = "|".join(map(re.escape, ids))
    return re.compile(rf"\[(?:{any_id})\.\w+\]|JobId=(?:{any_id})\b")


def belongs_to(line: str, wanted: re.Pattern[str], span: AttemptSpan) -> bool:
    """Tell whether a line of a daemon's log is of this attempt."""
    if wanted.search(line) is None:
        return False
    first, last, at = span.first_s(1.0), span.last_s(1.0, AFTER_S), _logged_at(line)
    return at is None or ((first is None or at >= first) and (last is None or at < last))


def _logged_at(line: str) -> float | None:
    """Return when a daemon of Slurm wrote a line, in seconds since the epoch, if it says."""
    if not line.startswith("["):
        return None
    try:
        # Slurm writes local time without a zone.
        return datetime.fromisoformat(line[1 : line.index("]")]).astimezone().timestamp()
    except ValueError:
        return None


def _kernel_logs(
    event: JobEvent, span: AttemptSpan, layout: JobLayout, found: Evidence, folder: Path
) -> None:
    """Copy kernel logs and judge them alone: what they accuse without the job's text is attested."""
    attempt = span.attempt
    for node in attempt.nodes:
        for pattern in layout.kernel_logs:
            for name in sorted(glob.glob(fill(pattern, event, found.files, node))):
                target = folder / "system" / "kernel" / node / Path(name).name
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    if job_may_write(Path(name), attempt.uid):
                        found.problems.append(
                            f"{name} is no witness: the job's user may have written it"
                        )
                        continue
                    shutil.copyfile(name, target)
                except OSError as error:
                    found.problems.append(f"{name}: {error.strerror}")
                    continue
                seen, left_out = accused_by_kernel(target, span, node)
                if seen is not None:
                    found.attested.append(seen)
                if left_out:
                    found.problems.append(f"kernel log of {node}: {left_out}")


def _dcgm(
    attempt: AttemptRecord, dcgm: Dcgm, as_reader: Sequence[str], found: Evidence, folder: Path
) -> None:
    """Keep what DCGM attests, as evidence for the diagnosis as well."""
    facts = dcgm_facts(attempt, dcgm, reader=as_reader, job_folder=found.files.folder)
    found.attested += facts.attested
    found.problems += facts.problems
    for node, lines in facts.lines.items():
        target = folder / "system" / "dcgm" / f"{node}.log"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("\n".join(lines) + "\n")


def _health_reports(
    event: JobEvent, attempt: AttemptRecord, layout: JobLayout, found: Evidence
) -> None:
    """Read reports of health tests from after the attempt's start; the newest word on a node counts."""
    if attempt.start is None:
        return
    # sbatch fills in %j and the like; rerail's own fields are filled in first.
    pattern = re.sub(r"%\d*[A-Za-z]", "*", fill(layout.health_output, event, found.files))
    verdicts: dict[str, str] = {}
    reports = [one for one in glob.glob(pattern) if one != "/dev/null"]
    for path in sorted(reports, key=_mtime):
        if _mtime(path) < attempt.start:
            continue
        try:
            report = read_health_report(Path(path), attempt.uid, layout.health_owners)
        except EvidenceError as error:
            found.problems.append(error.message)
            continue
        if report is None or not report.tested & set(attempt.nodes):
            continue
        found.tested = report.tested >= set(attempt.nodes)
        verdicts |= {node: report.failed.get(node, "") for node in report.tested}
    found.attested += [
        Attested(source="healthcheck", node=node, what=what)
        for node, what in verdicts.items()
        if what and node in attempt.nodes
    ]


def _mtime(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def prune_evidence(root: Path, days: float, now: float) -> int:
    """Remove copies older than that many days; the incidents keep their own snapshots."""
    removed = 0
    for folder in root.glob("*/*"):
        try:
            if now - folder.stat().st_mtime > 86_400.0 * days:
                shutil.rmtree(folder)
                removed += 1
        except OSError:
            continue
    return removed


def prune_files(folder: Path, days: float, now: float) -> None:
    """Remove files older than that many days: kept pods, marks of steps whose plans expired."""
    for path in folder.glob("*"):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > 86_400.0 * days:
                path.unlink()
