"""Runs one fault under one launcher and keeps what was written."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rerail.evals.launchers.hosts import Hosts
from rerail.evals.launchers.job import Job, Launcher, Process
from rerail.evals.launchers.scenarios import Scenario, close_pipes, write_shards

PROGRAMS = Path(__file__).resolve().parent / "programs"
UNDER_WAY = re.compile(r"step\b\D{0,12}(?:8|10)\b|step 4|'step': 8|\b8/24 \[")
SHARED_PROGRAMS = ("shards.py", "train_torch.py")
SECOND_TRY = "attempt 2 of"


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of one run beside its logs."""

    launcher: str
    scenario: str
    logs: dict[str, str]
    exit_codes: tuple[int | None, ...]
    timed_out: bool
    wall_s: float
    host: str = ""


def run(launcher: Launcher, scenario: Scenario, environment: Path) -> Record:
    """Run the job once; `environment` is the folder of the virtual environments."""
    environment = environment / launcher.environment
    top = Path(tempfile.mkdtemp(prefix="lab-"))
    top.chmod(0o755)
    try:
        folder, logs = top / "job", top / "logs"
        logs.mkdir()
        for name in launcher.hosts:
            (logs / name).mkdir()
        world = len(launcher.hosts) * launcher.per_host
        write_shards(folder / "data", world)
        shutil.copy(PROGRAMS / launcher.program, folder / "train.py")
        for name in SHARED_PROGRAMS:
            shutil.copy(PROGRAMS / name, folder / name)
        scenario.prepare(folder)
        # The launcher runs in the job's folder, and nothing else of the lab lies there.
        (top / "job" / "net").mkdir()
        with Hosts(
            launcher.hosts, folder / "net", str(environment / "bin"), scenario.memory_mb
        ) as hosts:
            job = Job(
                *(hosts, folder, logs, environment / "bin" / "python", launcher.per_host),
                ("--data", "data", *scenario.options),
            )
            return _watch(launcher, scenario, job)
    finally:
        close_pipes()
        shutil.rmtree(top, ignore_errors=True)


def _watch(launcher: Launcher, scenario: Scenario, job: Job) -> Record:
    shard = job.folder / "data" / "shard_0003.jsonl"
    if scenario.late_shard:
        shard.rename(shard.with_suffix(".late"))
    started = time.monotonic()
    processes = launcher.start(job)
    vanished: set[int] = set()
    to_do = scenario.late_shard or scenario.vanish
    timed_out = False
    while any(one.poll() is None for one in processes if one.pid not in vanished):
        written = (
            "".join(
                path.read_text(errors="replace")
                for path in (*_files(job.logs), *job.folder.glob("seen-*"))
            )
            if to_do
            else ""
        )
        if scenario.late_shard and to_do and SECOND_TRY in written:
            shard.with_suffix(".late").rename(shard)
            to_do = False
        if scenario.vanish and to_do and UNDER_WAY.search(written):
            job.hosts.vanish(job.names[-1] if len(job.names) < 3 else job.names[1])
            to_do = False
        if time.monotonic() - started > launcher.limit_s:
            timed_out = True
            _interrupt(processes)
            break
        time.sleep(0.1)
    if scenario.memory_mb and (kernel := job.hosts.kernel_log()):
        # dmesg as somebody took it from the host where the killed process ran.
        group = re.search(rf"{job.hosts.token}\.(\d+)", kernel)
        host = job.names[int(group[1]) if group else min(1, len(job.names) - 1)]
        (job.logs / f"dmesg-{host}.txt").write_text(kernel)
    found = {
        str(path.relative_to(job.logs)): path.read_bytes().decode("utf-8", "replace")
        for path in _files(job.logs)
        if path.stat().st_size
    }
    rules = replacements(job.folder, job.python)
    rules.append((re.compile(re.escape(job.hosts.token)), "job-4711"))
    clean = {name: cleaned(text, rules) for name, text in found.items()}
    codes = tuple(one.poll() for one in processes)
    return Record(
        launcher.name, scenario.name, clean, codes, timed_out, round(time.monotonic() - started, 1)
    )


def _interrupt(processes: list[Process]) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        for one in processes:
            if one.poll() is None:
                os.killpg(one.pid, number)
        for one in processes:
            try:
                one.wait(timeout=2)
            except subprocess.TimeoutExpired:
                continue


def _files(folder: Path) -> list[Path]:
    """Return all files; a link beside the file it leads to (as absl makes them) adds nothing."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def replacements(folder: Path, python: Path) -> list[tuple[re.Pattern[str], str]]:
    """Return what is replaced: folders and the name of the machine that recorded, nothing else."""
    command = [str(python), "-c", "import sys; print(sys.base_prefix)"]
    base = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return [
        (re.compile(re.escape(f"{folder.parent}/r")), "/tmp/ray"),  # noqa: S108
        (re.compile(re.escape(str(folder))), "/home/user/job"),
        (re.compile(re.escape(str(folder.parent))), "/home/user"),
        (re.compile(re.escape(str(python.parent.parent))), "/opt/venv"),
        (re.compile(re.escape(str(python.parent.parent.resolve()))), "/opt/venv"),
        (re.compile(re.escape(base or sys.base_prefix)), "/opt/python"),
    ]


def cleaned(text: str, rules: list[tuple[re.Pattern[str], str]]) -> str:
    """Return a text with all replacements made."""
    for pattern, new in rules:
        text = pattern.sub(new, text)
    return text
