"""The site that the pictures show: a server over two stores, one of recorded jobs and one of a simulated year."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rerail.errors import UsageError
from rerail.evals.fleet.command import BAD
from rerail.evals.fleet.year import Year, as_sacct, incidents_of, simulate
from rerail.evals.serving import CALL, serving
from rerail.knowledge_base.store.engine import open_store, writing
from rerail.knowledge_base.store.incidents import record
from rerail.settings import Settings

_SEED = 4711
RANKS, LOST, NODE = 512, 139, "gpu-0417"


@dataclass(frozen=True, slots=True)
class Site:
    """Addresses of the page over recorded jobs and over the year, and incidents by name."""

    jobs: str
    year: str
    hang: str
    lost: str


@contextmanager
def served(recorded: Path, scratch: Path) -> Iterator[Site]:
    """Diagnose recorded jobs and a made one of 512 ranks, simulate a year, and serve both.

    Raises:
        UsageError: The recorded jobs are not there.
    """
    if not (recorded / "hang_one_rank").is_dir():
        raise UsageError(f"{recorded}: no recorded jobs", subject=str(recorded), hint="run it from a checkout")  # fmt: skip
    logs = scratch / "logs"
    logs.mkdir()
    found = {}
    jobs = _environment(scratch / "jobs")
    for folder in sorted(recorded.iterdir()):
        if folder.is_dir():
            shutil.copytree(folder, logs / folder.name)
            found[folder.name] = _diagnosed(folder.name, logs, jobs)
    (logs / "job-918234").mkdir()
    (logs / "job-918234" / "train.log").write_text(_lost_gpu(), encoding="utf-8")
    lost = _diagnosed("job-918234", logs, jobs)
    year = _environment(scratch / "year")
    year.update(_year(scratch / "year"))
    with ExitStack() as held:
        at = [held.enter_context(serving(logs, one)) for one in (jobs, year)]
        yield Site(at[0], at[1], found["hang_one_rank"], lost)


def _environment(folder: Path) -> dict[str, str]:
    folder.mkdir()
    ours = {name: text for name, text in os.environ.items() if not name.startswith("RERAIL_")}
    return {
        **ours,
        "RERAIL_CACHE_DIR": os.environ.get("RERAIL_CACHE_DIR", str(folder / "cache")),
        "RERAIL_DATA_DIR": str(folder / "data"),
    }


def _run(arguments: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [*CALL, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    if done.returncode not in (0, 3, 10):
        raise RuntimeError(f"rerail {' '.join(arguments)}: {done.stderr[-500:]}")
    return done.stdout


def _diagnosed(name: str, folder: Path, environment: dict[str, str]) -> str:
    told = _run(["diagnose", "--json", "--no-model", name], folder, environment)
    return str(json.loads(told)["incident"])


def _lost_gpu() -> str:
    """Return the log of a job whose GPU falls off the bus at step 60, as kernel and ranks print it."""
    rows = [
        f"2026-11-20 02:{10 * step // 60:02d}:{10 * step % 60:02d} [rank{rank}] step {step} "
        f"loss {4 * 0.99**step + 0.01 * (step % 3):.4f} step_time {10 + 0.1 * (step % 5):.2f}s"
        for step in range(61)
        for rank in range(0, RANKS, 1 if step == 60 else 64)
    ]
    rows.append(
        f"2026-11-20T02:10:31.119231+00:00 {NODE} kernel: NVRM: Xid (PCI:0000:8d:00): 79, pid='<unknown>', "
        "name=<unknown>, GPU has fallen off the bus."
    )
    rows += [
        f"2026-11-20 02:20:4{rank % 10} [rank{rank}] [E1120 02:20:40.1 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog "
        "caught collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600001 milliseconds before timing out."
        for rank in range(RANKS)
        if rank != LOST
    ]
    return "\n".join(rows) + "\n"


def _year(folder: Path) -> dict[str, str]:
    """Record what a simulated year holds until now, and return the settings that name its jobs and switches."""
    whole, now = simulate(BAD, _SEED), time.time()
    runs = [run for run in whole.runs if run.end < now]
    kept = {(run.job, run.attempt) for run in runs}
    found = [one for one in whole.found if (one.row.job, one.row.attempt) in kept]
    engine = open_store(Settings(data_dir=folder / "data"))
    with writing(engine) as connection:
        for incident in incidents_of(Year(found=found)):
            record(connection, incident)
    engine.dispose()
    (folder / "jobs.txt").write_text(as_sacct(Year(runs=runs)), encoding="utf-8")
    roots = "\n".join(f"  {name}: [{', '.join(nodes)}]" for name, nodes in whole.roots.items())
    (folder / "policy.yaml").write_text(f"roots:\n{roots}\n", encoding="utf-8")
    return {
        "RERAIL_JOBS_FILE": str(folder / "jobs.txt"),
        "RERAIL_POLICY_FILE": str(folder / "policy.yaml"),
    }
