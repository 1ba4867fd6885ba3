"""The body of `rerail hook`: one file to disk, then back to the scheduler, always with success.

Only light modules are imported here: a scheduler waits for this process.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from pathlib import Path

from pydantic import ValidationError

from rerail.domain.job import JobEvent, JobRef, NodeEvent
from rerail.errors import ClusterError, RecoveryError, RerailError
from rerail.knowledge_base.store.clock import now_iso
from rerail.recovery import spool
from rerail.settings import load_settings
from rerail.tools.clusters.host_list import expand

BAD = frozenset(
    {"FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL", "DEADLINE"}
)
NODE_TRIGGERS = ("down", "drained", "fail")
JOB_TRIGGERS = ("fini", "time")
MOST_INPUT_BYTES = 1 << 20
LONGEST_WRITE_S = 3.0


def hook_command(
    path: Path | None, *, slurm: bool, process: bool, limit_s: float, strigger: str | None = None
) -> int:
    """Keep the event and return 0 whatever happens; what went wrong goes to standard error."""
    try:
        event: JobEvent | NodeEvent | None
        if strigger is not None:
            event = from_strigger(strigger, "" if path is None else str(path))
        else:
            event = from_slurm(dict(os.environ)) if slurm else _read(path)
        if event is None:
            return 0
        folder = load_settings().data_dir.expanduser()
        _leave_in_time(folder / spool.FOLDER, event.model_dump_json().encode())
        if process:
            _in_background(limit_s)
    except RerailError as error:
        print(f"rerail hook: {error.message}", file=sys.stderr)
    except OSError as error:
        print(f"rerail hook: {error.filename or path}: {error.strerror}", file=sys.stderr)
    except Exception as error:  # the scheduler must never see a failure of ours
        print(f"rerail hook: {type(error).__name__}: {error}", file=sys.stderr)
    return 0


def _leave_in_time(folder: Path, body: bytes) -> None:
    """Write the event; a file system that hangs must not hold up the scheduler.

    A child of its own writes: a process that waits for a dead NFS server cannot even be killed. It
    goes on after we have left, so that the event is not lost when the server comes back.

    Raises:
        RecoveryError: The folder cannot be written, or not within the time.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        said = b""
        try:
            os.setsid()
            # Whoever reads our output must not wait for the child.
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nowhere, stream)
            spool.leave(folder, body)
        except RecoveryError as error:
            said = error.message.encode()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}".encode()
        os.write(write, said)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        ready, _, _ = select.select([answer], [], [], LONGEST_WRITE_S)
        said = (
            answer.read()
            if ready
            else f"no answer from {folder} within {LONGEST_WRITE_S:g} s".encode()
        )
    if ready:
        os.waitpid(child, 0)
    if said:
        raise RecoveryError(said.decode(), subject=str(folder), hint="is its file system there?")


def _read(path: Path | None) -> JobEvent:
    if path is None:
        raise RecoveryError(
            "neither an event file nor --slurm nor --strigger was given", subject="hook"
        )
    raw = (
        sys.stdin.buffer.read(MOST_INPUT_BYTES + 1)
        if str(path) == "-"
        else path.open("rb").read(MOST_INPUT_BYTES + 1)
    )
    if len(raw) > MOST_INPUT_BYTES:
        raise RecoveryError(f"an event of more than {MOST_INPUT_BYTES} bytes", subject=str(path))
    try:
        content = json.loads(raw)
        if not isinstance(content, dict):
            raise ValueError("a JSON object is expected")
        content.setdefault("time", now_iso())
        content.setdefault("source", "hook")
        if isinstance(content.get("job"), dict):
            content["job"].setdefault("cluster", load_settings().cluster)
        return JobEvent.model_validate(content)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}" for one in error.errors()[:3]
        )
        raise RecoveryError(f"{path} is no job event: {wrong}", subject=str(path)) from None
    except ValueError as error:
        first = str(error).splitlines()[0]
        raise RecoveryError(f"{path} is no job event: {first}", subject=str(path)) from None


def from_slurm(environment: dict[str, str]) -> JobEvent | None:
    """Return the event of EpilogSlurmctld's or jobcomp/script's environment; None for a good end.

    EpilogSlurmctld is not told the state; anything but exit 0 is passed on as FAILED, and the
    worker asks Slurm for the truth.
    """
    job = environment.get("SLURM_JOB_ID") or environment.get("JOBID") or ""
    if not re.fullmatch(r"\d+(_\d+)?", job):
        raise RecoveryError("neither SLURM_JOB_ID nor JOBID is set", subject="hook --slurm")
    code, signal = _exit(environment)
    state = environment.get("JOBSTATE", "").split()[:1]
    if state:
        word = state[0].upper()
        if word not in BAD:
            return None
    elif not code and not signal:
        return None
    else:
        word = "FAILED"
    attempt = environment.get("SLURM_JOB_RESTART_COUNT") or environment.get("SLURM_RESTART_COUNT")
    return JobEvent(
        job=JobRef(
            cluster=load_settings().cluster,
            job=job,
            attempt=int(attempt) if attempt and attempt.isdigit() else 0,
            user=environment.get("SLURM_JOB_USER") or environment.get("USERNAME"),
        ),
        source="slurm-hook",
        state=word,
        time=now_iso(),
        exit_code=code,
        signal=signal,
    )


def from_strigger(what: str, argument: str) -> NodeEvent:
    """Return the event of a trigger: strigger gives a node list or a job's number as last argument.

    Which attempts ran there is asked by the daemon: the trigger's program should end at once.

    Raises:
        RecoveryError: The trigger is of another kind, or its argument is missing or malformed.
    """
    word = what.lower()
    if word not in (*NODE_TRIGGERS, *JOB_TRIGGERS):
        known = ", ".join((*NODE_TRIGGERS, *JOB_TRIGGERS))
        raise RecoveryError(f"--strigger {what!r} is none of {known}", subject="hook --strigger")
    about_job = re.fullmatch(r"\d+", argument) is not None
    if about_job != (word in JOB_TRIGGERS):
        wanted = "a job's number" if word in JOB_TRIGGERS else "a node list"
        raise RecoveryError(
            f"--strigger {word} needs {wanted} as its argument, not {argument!r}",
            subject="hook --strigger",
        )
    try:
        nodes = () if about_job else expand(argument)
    except ClusterError as error:
        raise RecoveryError(error.message, subject="hook --strigger") from None
    if not about_job and not nodes:
        raise RecoveryError(f"--strigger {word}: no node is named", subject="hook --strigger")
    return NodeEvent(
        cluster=load_settings().cluster,
        what=word,
        nodes=nodes,
        job=argument if about_job else "",
        source="slurm-strigger",
        time=now_iso(),
    )


def _exit(environment: dict[str, str]) -> tuple[int | None, int | None]:
    text = environment.get("SLURM_JOB_EXIT_CODE2") or environment.get("EXITCODE") or ""
    code, _, number = text.partition(":")
    return (
        int(code) if code.isdigit() else None,
        int(number) if number.isdigit() else None,
    )


def _in_background(limit_s: float) -> None:
    """Start `rerail watch --once` on its own: in another session, with nothing to wait for."""
    subprocess.Popen(
        [
            *(sys.executable, "-c", "from rerail.assistant.cli.main import main; main()"),
            *("watch", "--once", "--limit-s", str(limit_s)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
