"""How recovery and a running job speak of micro-batches: one file of speeds, one file of orders.

The job appends its groups' times to the speeds file (`MicroBatchPlan.record`) and follows the split of
the orders file (`MicroBatchPlan.orders`). Both are the job's own: they can change that job's split
and nothing else.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rerail.domain.job import JobRef
from rerail.domain.plan import PlannedAction
from rerail.errors import RecoveryError
from rerail.recovery.clusters.writer import Before, Check, nothing_before
from rerail.recovery.job_file import JobFile
from rerail.recovery.situation import GroupSpeeds

TAIL_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Measured:
    """The newest line of a speeds file."""

    step: int
    speeds: GroupSpeeds


@dataclass(frozen=True, slots=True)
class Order:
    """A split that was ordered: counts [n] of all groups, and a number that rises with every order."""

    number: int
    micro_batches: tuple[int, ...]
    plan: str = ""


def read_speeds(path: Path, uid: int | None = None) -> Measured | None:
    """Return what the job measured last, or None where it wrote nothing usable.

    With `uid`, a file of another user is not read: the job chose the path.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as stream:
        facts = os.fstat(stream.fileno())
        if not stat.S_ISREG(facts.st_mode) or uid not in (None, facts.st_uid):
            return None
        stream.seek(max(0, facts.st_size - TAIL_BYTES))
        lines = stream.read().splitlines()
    for line in reversed(lines):
        try:
            content = json.loads(line)
            speeds = GroupSpeeds(
                unit_time_s=content["unit_time_s"],
                micro_batches=content["micro_batches"],
                communication=content.get("communication", False),
            )
            return Measured(int(content["step"]), speeds)
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
            continue  # the last line may be half written
    return None


def read_order(path: Path) -> Order | None:
    """Return the split that a file orders; None where there is no file. The job itself calls this.

    Raises:
        RecoveryError: The file is damaged.
    """
    try:
        return _parsed(path, path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(path, error) from None


def standing_order(file: JobFile) -> Order | None:
    """Return the split that stands in a job's file, read with the care that a user's folder needs.

    Raises:
        RecoveryError: The file is damaged, or not one that may be read.
    """
    raw = file.read()
    return None if raw is None else _parsed(file.path, raw)


def _parsed(path: Path, raw: bytes) -> Order:
    try:
        content = json.loads(raw)
        counts = tuple(int(one) for one in content["micro_batches"])
        if not counts or min(counts) < 1:
            raise ValueError("micro_batches must be positive")
        return Order(int(content["number"]), counts, str(content.get("plan", "")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> RecoveryError:
    return RecoveryError(
        f"micro-batch order {path}: {error}", subject=str(path), hint="remove the file"
    )


def write_order(file: JobFile, micro_batches: list[int], plan: str) -> None:
    """Order a split: at once or not at all; the same plan twice is one order.

    Raises:
        RecoveryError: It cannot be written.
    """
    before = standing_order(file)
    if before is not None and before.plan == plan and list(before.micro_batches) == micro_batches:
        return
    number = 1 if before is None else before.number + 1
    body = {"schema_version": 1, "number": number, "micro_batches": micro_batches, "plan": plan}
    file.write(json.dumps(body))


@dataclass(frozen=True)
class MicroBatchWriter:
    """Carries out `adjust_micro_batches`: the write face of a job's own files.

    `order_file` and `speeds` give a job's orders file and its newest measurement, None where the
    policy or the scheduler does not say where they lie.
    """

    order_file: Callable[[JobRef], JobFile | None]
    speeds: Callable[[JobRef], Measured | None]
    running: Callable[[JobRef], bool]

    def _file(self, job: JobRef) -> JobFile:
        file = self.order_file(job)
        if file is None:
            raise RecoveryError(
                "the policy does not say where the job reads its micro-batch orders",
                subject="jobs.micro_batch_file",
                hint="set jobs.micro_batch_file in the policy file",
            )
        return file

    def commands(self, action: PlannedAction, job: JobRef, incident: str) -> list[list[str]]:
        """Return what is written, and where to."""
        counts = json.dumps(action.parameters.get("micro_batches"))
        return [["write", str(self._file(job).path), f"micro_batches={counts}"]]

    def preconditions(self, action: PlannedAction, job: JobRef) -> str:
        """Return which precondition does not hold (any more), or an empty string."""
        if not self.running(job):
            return "the job does not run any more"
        now = self.speeds(job)
        if now is None:
            return "the job reports no speeds any more"
        if list(now.speeds.micro_batches) != list(action.parameters.get("before") or []):
            return f"the job follows another split by now: {list(now.speeds.micro_batches)}"
        try:
            self._file(job).check()
        except RecoveryError as error:
            return error.message
        return ""

    def rehearse(self, action: PlannedAction, job: JobRef, incident: str) -> str:
        """Look whether the order could be written; nothing is written."""
        file = self._file(job)
        return f"{file.path} can be written {file.check()}, nothing was"

    def carry_out(
        self, action: PlannedAction, job: JobRef, incident: str, before: Before = nothing_before
    ) -> None:
        """Write the order.

        Raises:
            RecoveryError: It cannot be written.
        """
        for command in self.commands(action, job, incident):
            before(command)
        counts = [int(one) for one in action.parameters["micro_batches"]]
        # One incident may order several splits; each order of a split is its own.
        write_order(self._file(job), counts, f"{incident} {counts}")

    def effect(self, action: PlannedAction, job: JobRef) -> Check:
        """Say whether the order stands, and whether the job follows it."""
        wanted = list(action.parameters["micro_batches"])
        now = self.speeds(job)
        if now is not None and list(now.speeds.micro_batches) == wanted:
            return Check.DONE
        order = standing_order(self._file(job))
        stands = order is not None and list(order.micro_batches) == wanted
        return Check.PENDING if stands else Check.ABSENT

    def running_elsewhere(self, action: PlannedAction, job: JobRef) -> Check:
        """Nothing is restarted by this action."""
        return Check.DONE
