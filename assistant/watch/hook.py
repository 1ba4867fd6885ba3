"""The body of `rerail hook`: one file to disk, then back to the scheduler, always with success.

A scheduler waits for this process, a thousand times a minute on a bad day: nothing is imported here
that takes longer than writing the file. What the event says is checked by the daemon, which names
the wrong field; here only what would make it useless is refused at once.
"""

from __future__ import annotations

import os
import select
import sys
import time

from rerail.configured import CLUSTER, DATA_DIR, value_of
from rerail.errors import ClusterError, RecoveryError, RerailError
from rerail.recovery.leave_event import MOST_BYTES, leave

SPOOL = "spool"
BAD = frozenset(
    {"FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL", "DEADLINE"}
)
NODE_TRIGGERS = ("down", "drained", "fail")
JOB_TRIGGERS = ("fini", "time")
LONGEST_S = 2.8
"""From the start of the process until it has left, whatever a file system does."""
REQUIRED = (("job", dict), ("state", str))
FIELDS = frozenset(
    "schema_version job source state time exit_code signal logs allocation topology extra".split()
)
Event = dict[str, object]


def answered(given: list[str]) -> int | None:
    """Run the hook with these arguments; None for those that the full command line should answer."""
    path: str | None = None
    strigger: str | None = None
    flags, limit_s = {"--slurm": False, "--process": False}, 60.0
    rest = list(given)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word in flags:
            flags[word] = True
        elif name in ("--strigger", "--limit-s") and (equals or rest):
            value = value if equals else rest.pop(0)
            if name == "--strigger":
                strigger = value
                continue
            try:
                limit_s = float(value)
            except ValueError:
                return None
        elif (word == "-" or not word.startswith("-")) and path is None:
            path = word
        else:
            return None
    slurm, process = flags["--slurm"], flags["--process"]
    return hook_command(path, slurm=slurm, process=process, limit_s=limit_s, strigger=strigger)


def hook_command(
    path: str | os.PathLike[str] | None,
    *,
    slurm: bool,
    process: bool,
    limit_s: float,
    strigger: str | None = None,
) -> int:
    """Keep the event and return 0 whatever happens; what went wrong goes to standard error."""
    deadline = _started() + LONGEST_S
    try:
        if strigger is not None:
            event: Event | None = from_strigger(strigger, "" if path is None else str(path))
        else:
            event = from_slurm(dict(os.environ)) if slurm else _read(path, deadline)
        if event is None:
            return 0
        folder = os.path.join(os.path.expanduser(value_of("data_dir", DATA_DIR)), SPOOL)
        _leave_in_time(folder, as_json(event).encode(), deadline)
        if process:
            _in_background(limit_s)
    except RerailError as error:
        print(f"rerail hook: {error.message}", file=sys.stderr)
    except OSError as error:
        print(f"rerail hook: {error.filename or path}: {error.strerror}", file=sys.stderr)
    except Exception as error:  # the scheduler must never see a failure of ours
        print(f"rerail hook: {type(error).__name__}: {error}", file=sys.stderr)
    return 0


def _started() -> float:
    """Return when this process was started, in seconds of the clock since boot (proc(5), stat)."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return now
    # A process that was forked long ago, as a test is, has its time from now on.
    return started if now - started < LONGEST_S else now


def _left(deadline: float) -> float:
    return max(0.05, deadline - time.clock_gettime(time.CLOCK_BOOTTIME))


def _leave_in_time(folder: str, body: bytes, deadline: float) -> None:
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
            leave(folder, body)
        except RecoveryError as error:
            said = error.message.encode()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}".encode()
        os.write(write, said)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        wait_s = _left(deadline)
        ready, _, _ = select.select([answer], [], [], wait_s)
        said = answer.read() if ready else f"no answer from {folder} within {wait_s:.1f} s".encode()
    if ready:
        os.waitpid(child, 0)
    if said:
        raise RecoveryError(said.decode(), subject=folder, hint="is its file system there?")


def _read(path: str | os.PathLike[str] | None, deadline: float) -> Event:
    if path is None:
        raise RecoveryError(
            "neither an event file nor --slurm nor --strigger was given", subject="hook"
        )
    import json

    raw = _bytes_of(os.fspath(path), deadline)
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RecoveryError(f"{path} is no job event: {first}", subject=str(path)) from None
    if not isinstance(content, dict):
        raise RecoveryError(f"{path} is no job event: a JSON object is expected")
    if why := _what_is_wrong(content):
        raise RecoveryError(f"{path} is no job event: {why}", subject=str(path))
    content.setdefault("time", now_iso())
    content.setdefault("source", "hook")
    content["job"].setdefault("cluster", value_of("cluster", CLUSTER))
    return content


def _what_is_wrong(content: Event) -> str:
    """Return which field makes an event useless; everything else is checked where it is taken."""
    for key, kind in REQUIRED:
        if not isinstance(content.get(key), kind):
            what = "an object" if kind is dict else "a text"
            return f"{key}: {what} is required" + ("" if key in content else ", and is missing")
    job = content["job"]
    if not isinstance(job, dict) or not isinstance(job.get("job"), str) or not job["job"]:
        return "job.job: a text is required, the job's id"
    unknown = sorted(set(content) - FIELDS)
    return f"{unknown[0]}: there is no such field" if unknown else ""


def _bytes_of(path: str, deadline: float) -> bytes:
    """Read a file or standard input; a writer that never ends does not hold us.

    Raises:
        RecoveryError: It is too large, or did not end in time.
        OSError: It cannot be opened.
    """
    handle = 0 if path == "-" else os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    pieces = b""
    while len(pieces) <= MOST_BYTES:
        ready, _, _ = select.select([handle], [], [], _left(deadline) - 0.04)
        if not ready:
            raise RecoveryError(f"{path} did not end in time", subject=path)
        piece = os.read(handle, 1 << 16)
        if not piece:
            return pieces
        pieces += piece
    raise RecoveryError(f"an event of more than {MOST_BYTES} bytes", subject=path)


def as_json(value: object) -> str:
    """Return a value as JSON; the module that does the same takes as long to load as all the rest."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_json(str(k))}: {as_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(as_json, value)) + "]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    plain = (one if " " <= one < "\x7f" else _escaped(ord(one)) for one in escaped)
    return '"' + "".join(plain) + '"'


def _escaped(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def now_iso() -> str:
    """Return the present time as the store writes it."""
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z"


def from_slurm(environment: dict[str, str]) -> Event | None:
    """Return the event of EpilogSlurmctld's or jobcomp/script's environment; None for a good end.

    EpilogSlurmctld is not told the state; anything but exit 0 is passed on as FAILED, and the
    worker asks Slurm for the truth.
    """
    job = environment.get("SLURM_JOB_ID") or environment.get("JOBID") or ""
    number, _, index = job.partition("_")
    if not number.isdecimal() or (index and not index.isdecimal()) or not job.isascii():
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
    return {
        "job": {
            "cluster": value_of("cluster", CLUSTER),
            "job": job,
            "attempt": int(attempt) if attempt and attempt.isdecimal() else 0,
            "user": environment.get("SLURM_JOB_USER") or environment.get("USERNAME"),
        },
        "source": "slurm-hook",
        "state": word,
        "time": now_iso(),
        "exit_code": code,
        "signal": signal,
    }


def from_strigger(what: str, argument: str) -> Event:
    """Return the event of a trigger: strigger gives a node list or a job's number as last argument.

    Which attempts ran there is asked by the daemon: the trigger's program should end at once.

    Raises:
        RecoveryError: The trigger is of another kind, or its argument is missing or malformed.
    """
    from rerail.tools.clusters.host_list import expand

    word = what.lower()
    if word not in (*NODE_TRIGGERS, *JOB_TRIGGERS):
        known = ", ".join((*NODE_TRIGGERS, *JOB_TRIGGERS))
        raise RecoveryError(f"--strigger {what!r} is none of {known}", subject="hook --strigger")
    about_job = argument.isdecimal() and argument.isascii()
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
    return {
        "cluster": value_of("cluster", CLUSTER),
        "what": word,
        "nodes": list(nodes),
        "job": argument if about_job else "",
        "source": "slurm-strigger",
        "time": now_iso(),
    }


def _exit(environment: dict[str, str]) -> tuple[int | None, int | None]:
    text = environment.get("SLURM_JOB_EXIT_CODE2") or environment.get("EXITCODE") or ""
    code, _, number = text.partition(":")
    return (
        int(code) if code.isdecimal() else None,
        int(number) if number.isdecimal() else None,
    )


def _in_background(limit_s: float) -> None:
    """Start `rerail watch --once` on its own: in another session, with nothing to wait for."""
    import subprocess

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
