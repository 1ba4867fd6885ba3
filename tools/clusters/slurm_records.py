"""What Slurm says of jobs and nodes, in one form for text and for both JSON generations."""

from __future__ import annotations

from dataclasses import dataclass

ENDED_BADLY = frozenset(
    {
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
    }
)
RUNNING = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "STAGE_OUT", "RESIZING"})


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One job step. `exit_code` and `signal` are None where the source does not tell the truth."""

    step: str
    state: str
    exit_code: int | None
    signal: int | None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One start of a job. Times are seconds since the epoch; `uid` is the job's user."""

    job: str
    attempt: int
    state: str
    nodes: tuple[str, ...]
    exit_code: int | None = None
    signal: int | None = None
    start: float | None = None
    end: float | None = None
    uid: int | None = None
    steps: tuple[StepRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node: its state words in upper case without flags characters, and the reason set on it."""

    node: str
    state: str
    reason: str = ""
    since: str = ""

    @property
    def lost(self) -> bool:
        """Whether the controller does not reach the node or has marked it down."""
        return "DOWN" in self.state or "NOT_RESPONDING" in self.state or "FAIL" in self.state

    @property
    def drained(self) -> bool:
        """Whether the node takes no new jobs by an administrator's order."""
        return "DRAIN" in self.state


def state_word(text: str) -> str:
    """Return the plain state of `CANCELLED by 0`, `RUNNING+`, ..."""
    words = text.split()
    return words[0].rstrip("+").upper() if words else "UNKNOWN"


def exit_pair(text: str) -> tuple[int | None, int | None]:
    """Return exit code and signal of `1:0`; 0:125 is Slurm's mark of an out-of-memory kill."""
    code, _, number = text.strip().partition(":")
    if not code.lstrip("-").isdigit():
        return None, None
    return int(code), int(number) if number.isdigit() else 0
