"""The restart file: how recovery tells a job from which checkpoint to start and what to skip.

A scheduler starts the same script again with the same environment; a file beside the job's
checkpoints is the only thing that both sides can see. The job reads it with `read_restart`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rerail.errors import RecoveryError
from rerail.recovery.job_file import write_job_file


@dataclass(frozen=True, slots=True)
class Restart:
    """Start from `checkpoint` (None: the newest), train on every batch but those in `skip`.

    `skip` holds inclusive ranges of batch numbers, all ever ordered for this job.
    """

    checkpoint: str | None = None
    step: int | None = None
    skip: tuple[tuple[int, int], ...] = ()
    plan: str = ""

    def skips(self, batch: int) -> bool:
        """Return whether a batch is to be left out."""
        return any(first <= batch <= last for first, last in self.skip)


def read_restart(path: str | Path) -> Restart:
    """Return what the file orders; nothing is ordered where there is no file.

    Raises:
        RecoveryError: The file is damaged; starting without it could train on bad data again.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return Restart(
            content.get("checkpoint"),
            content.get("step"),
            tuple((int(first), int(last)) for first, last in content.get("skip", [])),
            str(content.get("plan", "")),
        )
    except FileNotFoundError:
        return Restart()
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RecoveryError(
            f"restart file {path}: {error}", subject=str(path), hint="remove it, or mend it"
        ) from None


def order(path: Path, restart: Restart) -> None:
    """Write the file at once or not at all; ranges that were ordered before stay ordered.

    Raises:
        RecoveryError: It cannot be written.
    """
    before = read_restart(path)
    ranges = sorted({*before.skip, *restart.skip})
    body = json.dumps(
        {
            "schema_version": 1,
            "checkpoint": restart.checkpoint,
            "step": restart.step,
            "skip": [list(one) for one in ranges],
            "plan": restart.plan,
        }
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_job_file(path, body)
    except OSError as error:
        raise RecoveryError(
            f"restart file {path}: {error.strerror}", subject=str(path), hint="jobs.restart_file"
        ) from None
