"""The body of `rerail run`: starts a launcher, stays out of its way, diagnoses its failure.

torchrun remains the launcher and supervisor of its ranks; rerail gives it a folder for logs and
elastic error files, passes signals on, and reads what is left when it fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.record import record_outcome
from rerail.domain.diagnosis import Action, Diagnosis, Outcome
from rerail.errors import EvidenceError, UsageError

RESTART = (Action.RESTART_AS_IS, Action.REQUEUE)


def run_command(command: list[str], log_dir: Path | None, restarts: int) -> int:
    """Run the command, at most `restarts` times again where the verdict says that this helps.

    Returns:
        The exit code of the last run.

    Raises:
        UsageError: The program does not exist or cannot be started.
    """
    folder = log_dir or Path(tempfile.mkdtemp(prefix="rerail-run-"))
    folder.mkdir(parents=True, exist_ok=True)
    for attempt in range(restarts + 1):
        logs = folder / f"attempt_{attempt}"
        logs.mkdir(exist_ok=True)
        code = _supervise(_with_logs(command, logs), logs)
        if code == 0:
            return 0
        diagnosis = _judge(logs, code, attempt)
        if diagnosis is None or diagnosis.recovery.action not in RESTART:
            break
        if attempt < restarts:
            print(f"rerail run: starting again ({attempt + 1} of {restarts})", file=sys.stderr)
    return code if code > 0 else 128 - code


def _is_torchrun(command: list[str]) -> bool:
    return Path(command[0]).name == "torchrun" or "torch.distributed.run" in command[:4]


def _with_logs(command: list[str], logs: Path) -> list[str]:
    """Let torchrun keep each rank's output and error file, unless the user said where."""
    if Path(command[0]).name != "torchrun" or any(one.startswith("--log") for one in command):
        return command
    return [command[0], "--log-dir", str(logs), "--redirects", "3", "--tee", "3", *command[1:]]


def _supervise(command: list[str], logs: Path) -> int:
    # torchrun gives each rank an error file; its own would repeat one of them without the rank.
    own = {} if _is_torchrun(command) else {"TORCHELASTIC_ERROR_FILE": str(logs / "error.json")}
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **own},
        )
    except OSError as error:
        raise UsageError(
            f"{command[0]}: {error.strerror}", subject=command[0], hint="rerail run -- torchrun ..."
        ) from None

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {one: signal.signal(one, pass_on) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        with (logs / "launcher.log").open("wb") as copy:
            if process.stdout is not None:
                for line in process.stdout:
                    copy.write(line)
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()
        return process.wait()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _judge(logs: Path, code: int, attempt: int) -> Diagnosis | None:
    from rerail.assistant.verdict_out import show

    try:
        outcome = diagnose_paths([logs])
    except EvidenceError as error:
        print(f"rerail run: exit code {code}; {error.message}", file=sys.stderr)
        return None
    recorded = record_outcome(outcome, [logs], attempt=attempt)
    if outcome.diagnosis.outcome is Outcome.NO_FAILURE:
        print(f"rerail run: exit code {code}, and no failure in the logs", file=sys.stderr)
        return None
    show(recorded.outcome.diagnosis, json_output=False, quiet=False, verbose=False)
    return recorded.outcome.diagnosis
