"""The rights of the writer's account on Slurm, tried: each trial writes what stands there already.

`ok` is only said of what was tried as that account. A trial that needs a job of somebody else says
`open` while there is none.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from rerail.assistant.watch.evidence import fill
from rerail.assistant.watch.site import Site
from rerail.domain.job import JobEvent, JobRef
from rerail.domain.plan import ActionKind
from rerail.errors import ClusterError, RerailError
from rerail.recovery.clusters.slurm_rights import explained, level_for
from rerail.recovery.job_file import JobFile, fill_user
from rerail.tools.clusters.command import run_command
from rerail.tools.clusters.slurm_read import SlurmReader
from rerail.tools.clusters.slurm_records import AttemptRecord

Finding = tuple[str, str, str]


def rights_findings(site: Site, reader: SlurmReader) -> Iterator[Finding]:
    """Yield what the writer and the job's user may do here, one finding a right."""
    prefix = tuple(site.policy.identities.writer)
    try:
        name = run_command((*prefix, "id", "-un")).strip()
    except ClusterError as error:
        yield "writer", "bad", f"as {' '.join(prefix)}: {error.message}"
        return
    who = f"as {' '.join(prefix)} ({name})" if prefix else f"as {name}"
    same = not prefix and not site.policy.identities.reader
    note = (
        "; reader and writer are the same account (identities in the policy file)" if same else ""
    )
    yield "writer", "ok", f"{who} runs commands{note}"
    yield _same_cluster(reader, prefix)
    nodes = reader.nodes()
    yield _node_update(reader, prefix, nodes[0].node if nodes else "")
    try:
        running = reader.running()
    except ClusterError as error:
        yield "requeue", "bad", error.message
        return
    yield _job_update(reader, prefix, running, name)
    yield _job_requeue(reader)
    yield _submit(site, reader, prefix)
    yield _health_output(site, name)
    yield _order_files(site, reader, running)


def _same_cluster(reader: SlurmReader, prefix: tuple[str, ...]) -> Finding:
    """Compare which cluster the writer's commands speak to with the reader's: sudo drops SLURM_CONF."""
    own = _config(reader, reader.prefix)
    try:
        theirs = _config(reader, prefix)
    except ClusterError as error:
        return "SLURM_CONF", "bad", f"the writer's commands speak to no cluster: {error.message}"
    if own != theirs:
        return "SLURM_CONF", "bad", f"the writer speaks to {theirs}, the reader to {own}"
    return "SLURM_CONF", "ok", f"reader and writer speak to {own[0]} ({own[1]})"


def _config(reader: SlurmReader, prefix: tuple[str, ...]) -> tuple[str, str]:
    text = run_command((*prefix, "scontrol", "show", "config"), environment=reader.environment)
    found = dict(re.findall(r"^(ClusterName|SlurmctldHost\[0\])\s*= (\S+)", text, re.M))
    return found.get("ClusterName", "?"), found.get("SlurmctldHost[0]", "?")


def _node_update(reader: SlurmReader, prefix: tuple[str, ...], node: str) -> Finding:
    """Set a node's comment to what it is: the same request, and the same right, as a drain."""
    if not node:
        return "drain", "open", "not tried: Slurm shows no node"
    shown = run_command(("scontrol", "show", "node", node), environment=reader.environment)
    found = re.search(r"^ +Comment=(.*)$", shown, re.M)
    comment = found[1].strip() if found else ""
    return _tried(
        "drain",
        ("scontrol", "update", f"NodeName={node}", f"Comment={comment}"),
        *(reader, prefix, ActionKind.DRAIN, f"may drain (tried on the comment of {node})"),
    )


def _job_update(
    reader: SlurmReader, prefix: tuple[str, ...], running: list[AttemptRecord], writer: str
) -> Finding:
    """Set the comment of somebody else's job to what it is: the same right as a requeue or cancel."""
    own = pwd.getpwnam(writer).pw_uid if _known(writer) else -1
    others = [one for one in running if one.uid not in (None, own)]
    if not others:
        level = level_for(ActionKind.REQUEUE)
        return (
            "requeue",
            "open",
            f"not tried: no job of another user runs; needs adminlevel={level}",
        )
    job = others[0].job
    shown = run_command(("squeue", "-h", "-j", job, "-o", "%k"), environment=reader.environment)
    comment = shown.strip().replace("(null)", "")
    return _tried(
        "requeue",
        ("scontrol", "update", f"JobId={job}", f"Comment={comment}"),
        *(reader, prefix, ActionKind.REQUEUE, f"may requeue and cancel (tried on job {job})"),
    )


def _known(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _tried(
    what: str,
    command: tuple[str, ...],
    reader: SlurmReader,
    prefix: tuple[str, ...],
    kind: ActionKind,
    good: str,
) -> Finding:
    try:
        run_command((*prefix, *command), environment=reader.environment)
    except ClusterError as error:
        return what, "bad", explained(error, kind).message
    return what, "ok", good


def _job_requeue(reader: SlurmReader) -> Finding:
    text = run_command(
        (*reader.prefix, "scontrol", "show", "config"), environment=reader.environment
    )
    found = re.search(r"^JobRequeue\s*= (\d)", text, re.M)
    if found and found[1] == "0":
        said = "JobRequeue=0: only jobs submitted with --requeue can be restarted"
        return "JobRequeue", "open", f"{said}; of others the owner is told"
    return "JobRequeue", "ok", "jobs can be requeued, but those submitted with --no-requeue"


def _submit(site: Site, reader: SlurmReader, prefix: tuple[str, ...]) -> Finding:
    command = ("sbatch", "--test-only", "--nodes=1", "--wrap", "true")
    try:
        run_command((*prefix, *command), environment=reader.environment)
    except ClusterError as error:
        return "health tests", "bad", explained(error, ActionKind.HEALTH_TESTS).message
    return "health tests", "ok", "sbatch --test-only accepts a job of the writer"


def _health_output(site: Site, writer: str) -> Finding:
    """Look whether the writer's jobs can write their reports, and whether they would be believed."""
    pattern = site.policy.jobs.health_output
    folder = Path(pattern).parent
    if "{" in str(folder):
        return "health_output", "open", f"not looked at: {folder} depends on the job"
    try:
        facts = folder.stat()
        account = pwd.getpwnam(writer)
    except (OSError, KeyError) as error:
        said = error.strerror if isinstance(error, OSError) else f"no account {writer}"
        return "health_output", "bad", f"{folder}: {said}"
    groups = os.getgrouplist(writer, account.pw_gid)
    may = (
        account.pw_uid == 0
        or (facts.st_uid == account.pw_uid and facts.st_mode & stat.S_IWUSR)
        or (facts.st_gid in groups and facts.st_mode & stat.S_IWGRP)
        or facts.st_mode & stat.S_IWOTH
    )
    if not may:
        return "health_output", "bad", f"{writer} cannot write {folder}"
    trusted = writer in site.policy.jobs.health_owners or account.pw_uid in (0, os.geteuid())
    if not trusted or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"reports in {folder} would be no witness: jobs.health_owners, chmod go-w"
        return "health_output", "bad", why
    return (
        "health_output",
        "ok",
        f"{writer} owns what it writes in {folder} (by its mode, not tried)",
    )


def _order_files(site: Site, reader: SlurmReader, running: list[AttemptRecord]) -> Finding:
    """Ask whether an order could be written into the folder of a job that runs; nothing is."""
    jobs = site.policy.jobs
    pattern = jobs.restart_file or jobs.micro_batch_file
    if not pattern:
        return "order files", "off", "no jobs.restart_file: no roll-back is planned"
    job = next((one for one in running if one.uid), None)
    if job is None or job.uid is None:
        return "order files", "open", "not tried: no user's job runs"
    try:
        files = reader.files(job.job)
        if not files.folder:
            return "order files", "open", f"not tried: job {job.job} has no folder"
        ref = JobRef(cluster=site.settings.cluster, job=job.job, attempt=job.attempt)
        event = JobEvent(job=ref, source="doctor", state="", time="")
        path = Path(
            fill(pattern.replace("{folder}", "\0"), event, files).replace("\0", files.folder)
        )
        as_user = fill_user(site.policy.identities.job_user, job.uid)
        said = JobFile(path, job.uid, as_user, jobs.job_file_command).check()
    except RerailError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return "order files", "bad", f"job {job.job}: {error.message}{hint}"
    return "order files", "ok", f"{path} can be written {said}"
