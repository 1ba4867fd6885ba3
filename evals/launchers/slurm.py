"""`srun -l` on the real Slurm of `rerail eval cluster`; every node daemon has a host name of its own."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path

from rerail.evals.cluster.lab import Lab
from rerail.evals.launchers.job import Launcher
from rerail.evals.launchers.lab import (
    PROGRAMS,
    SECOND_TRY,
    SHARED_PROGRAMS,
    UNDER_WAY,
    Record,
    cleaned,
    replacements,
)
from rerail.evals.launchers.scenarios import Scenario, close_pipes, write_shards

HEAD = """#!/bin/bash
#SBATCH --job-name=train
#SBATCH --time=3
#SBATCH --no-requeue
"""
SEATS = """#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={per_host}
#SBATCH --mem={memory}
"""
SETTINGS = """export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
"""
TASK = """bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS \\
  exec {python} train.py {arguments}'
"""
BATCH = f"{HEAD}{SEATS}{SETTINGS}srun -l {TASK}"
FILES = f"{HEAD}{SEATS}{SETTINGS}srun --output=logs/%x-%j-%N-%t.out {TASK}"
ARRAY = f"""{HEAD}#SBATCH --ntasks=1
#SBATCH --mem={{task_memory}}
#SBATCH --array=0-{{last}}
#SBATCH --output=logs/%x_%A_%a.out
{SETTINGS}export RANK=$SLURM_ARRAY_TASK_ID WORLD_SIZE=$SLURM_ARRAY_TASK_COUNT
exec {{python}} train.py {{arguments}}
"""
SUBMITIT = SETTINGS + "exec {python} train.py {nodes} {per_host} {memory} {arguments}\n"
FORMS = {"srun": BATCH, "srun_files": FILES, "job_array": ARRAY, "submitit": SUBMITIT}
"""What is submitted, by launcher; submitit's submits by itself."""
STATE = re.compile(r"JobState=(\w+)")
ENDED = {"COMPLETED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED"}


class NamedLab(Lab):
    """The cluster, with node daemons that have a UTS namespace and so a name of their own."""

    def start_node(self, node: str) -> None:
        """Start the slurmd of one node under its own host name."""
        (self.root / "spool" / node).mkdir(exist_ok=True)
        script = f"hostname {node}; exec slurmd -D -N {node}"
        self._spawn(
            f"slurmd.{node}", "unshare", "--uts", "sh", "-c", script, extra={"LAB_NODE": node}
        )


def run(launcher: Launcher, scenario: Scenario, environment: Path) -> Record:
    """Run the job once under a Slurm of its own."""
    top = Path(tempfile.mkdtemp(prefix="lab-"))
    top.chmod(0o755)
    prefix = launcher.hosts[0].rstrip("0123456789")
    try:
        folder = top / "job"
        write_shards(folder / "data", len(launcher.hosts) * launcher.per_host)
        shutil.copy(PROGRAMS / launcher.program, folder / "train.py")
        for name in SHARED_PROGRAMS:
            shutil.copy(PROGRAMS / name, folder / name)
        (folder / "logs").mkdir()
        scenario.prepare(folder)
        with NamedLab(len(launcher.hosts), prefix=prefix, rest=False) as lab:
            return _watch(lab, launcher, scenario, folder, environment / launcher.environment)
    finally:
        close_pipes()
        shutil.rmtree(top, ignore_errors=True)


def _watch(
    lab: Lab, launcher: Launcher, scenario: Scenario, folder: Path, environment: Path
) -> Record:
    python = environment / "bin" / "python"
    text = FORMS[launcher.name].format(
        nodes=len(launcher.hosts),
        per_host=launcher.per_host,
        memory=scenario.memory_mb or 3500,
        task_memory=1900,
        last=len(launcher.hosts) * launcher.per_host - 1,
        port=29517,
        python=python,
        arguments=" ".join(("--data", "data", *scenario.options)),
    )
    (folder / "job.sh").write_text(text)
    shard = folder / "data" / "shard_0003.jsonl"
    if scenario.late_shard:
        shard.rename(shard.with_suffix(".late"))
    started = time.monotonic()
    submit = ("bash",) if launcher.name == "submitit" else ("sbatch", "--parsable")
    job = lab.run(*submit, "job.sh", cwd=str(folder)).strip()
    to_do, timed_out = scenario.late_shard or scenario.vanish, False
    while not _ended(lab.run("scontrol", "show", "job", job)):
        written = "".join(path.read_text(errors="replace") for path in _outputs(folder))
        if scenario.late_shard and to_do and SECOND_TRY in written:
            shard.with_suffix(".late").rename(shard)
            to_do = False
        if scenario.vanish and to_do and UNDER_WAY.search(written):
            lab.kill_node(launcher.hosts[1])
            to_do = False
        if time.monotonic() - started > launcher.limit_s:
            timed_out = True
            lab.run("scancel", job)
            break
        time.sleep(0.2)
    time.sleep(2)
    shown = lab.run("scontrol", "show", "job", job)
    fields = "JobID,JobName,State,ExitCode,NodeList,Start,End"
    controller = (lab.root / "log" / "slurmctld.log").read_text(errors="replace").splitlines()
    wanted = re.compile(rf"Job(?:Id)?[=_]{job}\b|[Nn]ode.*{launcher.hosts[1]}")
    logs = {
        **{path.name: path.read_text(errors="replace") for path in _outputs(folder)},
        "scontrol_job.txt": shown,
        "sacct.txt": lab.run("sacct", "-j", job, f"--format={fields}", "-P"),
        "slurmctld.log": "\n".join(line for line in controller if wanted.search(line)) + "\n",
    }
    rules = replacements(folder, python)
    codes = re.findall(r"ExitCode=(\d+):\d+", shown)
    return Record(
        *(launcher.name, scenario.name),
        {name: cleaned(text, rules) for name, text in logs.items() if text.strip()},
        tuple(int(code) for code in codes) or (None,),
        timed_out,
        round(time.monotonic() - started, 1),
    )


def _ended(shown: str) -> bool:
    return set(STATE.findall(shown)) <= ENDED


def _outputs(folder: Path) -> list[Path]:
    """Return what the job wrote, without submitit's pickled files and its batch script."""
    found = [*folder.glob("slurm-*.out"), *(folder / "logs").glob("*")]
    return sorted(path for path in found if path.suffix not in {".pkl", ".sh"})
