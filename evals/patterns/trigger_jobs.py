"""Real 4-process jobs that are only watched: does the trigger fire, on all ranks at one iteration?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from rerail.evals.detectors.gloo_jobs import run_ranks, torch_missing
from rerail.tools.localize.findings import Localization
from rerail.tools.localize.localize_paths import localize_paths
from rerail.tools.profiles.summary import SUFFIX, read_summary

GUILTY = 2
_WORLD, _LIMIT_S = 4, 900


@dataclass(frozen=True)
class Watched:
    """What a watched job left: first iterations of the windows, the verdict, stacks by rank."""

    windows: tuple[int, ...]
    verdict: Localization | None
    stacks: dict[int, str]


def run_watched_job(fault: str, folder: Path | None = None) -> Watched:
    """Run four processes over gloo with one fault (slow or stall) and return what they left.

    Raises:
        RuntimeError: the job failed or took too long; with its last output.
    """
    if folder is None:
        with TemporaryDirectory() as name:
            return run_watched_job(fault, Path(name))
    worker = "rerail.evals.patterns.trigger_worker"
    run_ranks(worker, folder, _WORLD, str(GUILTY), fault, limit_s=_LIMIT_S)
    profiles = folder / "profiles"
    summaries = [read_summary(path) for path in sorted(profiles.glob(f"*{SUFFIX}"))]
    stacks = {
        rank: path.read_text()
        for rank in range(_WORLD)
        if (path := profiles / f"stacks-rank{rank}.txt").exists()
    }
    verdict = None
    if summaries:
        for path in profiles.glob("stacks-*"):
            path.unlink()
        verdict = localize_paths([profiles])[0].localization
    return Watched(tuple(one.first_step for one in summaries), verdict, stacks)


def trigger_table(out: Console) -> bool:
    """Run both faults and print what was noticed; return whether all is right."""
    reason = torch_missing()
    if reason:
        out.print(f"skipped: watched jobs ({reason})", markup=False)
        return True
    slow, stall = run_watched_job("slow"), run_watched_job("stall")
    named = [] if slow.verdict is None else [one.workers for one in slow.verdict.findings]
    together = len(slow.windows) == _WORLD and len(set(slow.windows)) == 1
    out.print(
        f"watched job, rank {GUILTY} turns slow: windows of {len(slow.windows)} ranks at iteration "
        f"{sorted(set(slow.windows))}, named {named}",
        markup=False,
    )
    guilty = "load_from_a_tired_disk"
    shown = [rank for rank, text in stall.stacks.items() if guilty in text]
    out.print(
        f"watched job, rank {GUILTY} stalls: stacks of ranks {sorted(stall.stacks)}, "
        f"{guilty} on {shown}",
        markup=False,
    )
    return together and set(named) == {(GUILTY,)} and shown == [GUILTY] and len(stall.stacks) == 4
