"""The restart file: how recovery tells a job from which checkpoint to start and what to skip.

A scheduler starts the same script again with the same environment; a file beside the job's
checkpoints is the only thing that both sides can see. The job reads it with `read_restart`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rerail.errors import RecoveryError
from rerail.recovery.job_file import JobFile


@dataclass(frozen=True, slots=True)
class Restart:
    """Start from `checkpoint` (None: the newest), train on every batch but those in `skip`.

    `skip` holds inclusive ranges of batch numbers, all ever ordered for this job. A batch has the
    number that the job's own log prints as its step: where the line of the first batch says
    `step 1`, that batch is number 1; where it says `step 0`, it is number 0.
    """

    checkpoint: str | None = None
    step: int | None = None
    skip: tuple[tuple[int, int], ...] = ()
    plan: str = ""

    def skips(self, batch: int) -> bool:
        """Return whether a batch is to be left out.

        Args:
            batch: the number that the job prints as `step` in the log line of this batch. A loop
                `for i, batch in enumerate(loader)` that logs `step {i + 1}` asks `skips(i + 1)`.
        """
        return any(first <= batch <= last for first, last in self.skip)


def read_restart(path: str | Path) -> Restart:
    """Return what the file orders; nothing is ordered where there is no file.

    Raises:
        RecoveryError: The file is damaged; starting without it could train on bad data again.
    """
    try:
        return _parsed(Path(path).read_bytes())
    except FileNotFoundError:
        return Restart()
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, error) from None


def _parsed(raw: bytes) -> Restart:
    content = json.loads(raw)
    return Restart(
        content.get("checkpoint"),
        content.get("step"),
        tuple((int(first), int(last)) for first, last in content.get("skip", [])),
        str(content.get("plan", "")),
    )


def _damaged(path: str | Path, error: Exception) -> RecoveryError:
    return RecoveryError(
        f"restart file {path}: {error}", subject=str(path), hint="remove it, or mend it"
    )


def order(file: JobFile, restart: Restart) -> None:
    """Write the file at once or not at all; ranges that were ordered before stay ordered.

    Raises:
        RecoveryError: It cannot be written, or what stands there is no restart file.
    """
    raw = file.read()
    try:
        before = Restart() if raw is None else _parsed(raw)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(file.path, error) from None
    ranges = sorted({*before.skip, *restart.skip})
    file.write(
        json.dumps(
            {
                "schema_version": 1,
                "checkpoint": restart.checkpoint,
                "step": restart.step,
                "skip": [list(one) for one in ranges],
                "plan": restart.plan,
            }
        )
    )
