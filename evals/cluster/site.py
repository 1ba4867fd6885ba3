"""A site on the one-machine cluster: policy file, data folder, and a watch daemon of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from rerail.evals.cluster.lab import Lab

RERAIL = (sys.executable, "-c", "from rerail.assistant.cli.main import main; main()")


def policy(lab: Lab, folder: Path, stalled_after_s: float) -> dict[str, Any]:
    """Return the policy of the scenarios: job restarts and proven drains run by themselves."""
    return {
        "schema_version": 1,
        "dry_run": False,
        "default_mode": "propose",
        "rules": [
            {
                "id": "slow-group",
                "failure_types": ["fail_slow_unexplained"],
                "mode": "auto-low",
                "auto_from": "supported",
            },
            {
                "id": "restart-and-drain",
                "actions": [
                    "restart_as_is",
                    "requeue",
                    "drain_node_and_restart_elsewhere",
                    "restart_and_exclude_suspect_node",
                    "roll_back_to_previous_checkpoint",
                    "roll_back_checkpoint_and_skip_data",
                ],
                "mode": "auto-low",
                "auto_from": "supported",
            },
            {"id": "the-rest", "mode": "propose"},
        ],
        "budgets": {"restarts_without_progress": 2},
        "slow": {"after_lost_s": 3.0},
        "jobs": {
            "speeds": "{folder}/speeds.jsonl",
            "micro_batch_file": "{folder}/micro_batches.json",
            "checkpoints": "{folder}/ckpt/step_*.pt",
            "restart_file": "{folder}/restart.json",
            "scheduler_logs": [f"{lab.root}/log/slurmd.{{node}}.log"],
            "kernel_logs": [f"{folder}/kernel/{{node}}.log"],
            "stalled_after_s": stalled_after_s,
            "dump_wait_s": 2.0,
            "health_command": list(RERAIL),
            "health_output": f"{folder}/health-%j.json",
            "group_wait_s": 1.0,
            "verify_within_s": 90.0,
        },
        "dcgm": {"files": [f"{folder}/dcgm/{{node}}/*.prom"]},
        "notify": {"file": f"{folder}/messages.jsonl"},
    }


class LabSite:
    """The daemon's side of a scenario; `start` and `kill` may be called any number of times."""

    def __init__(self, lab: Lab, folder: Path, stalled_after_s: float = 40.0) -> None:
        self.lab = lab
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.policy_file = folder / "policy.yaml"
        self.policy_file.write_text(yaml.safe_dump(policy(lab, folder, stalled_after_s)))
        self.daemon: subprocess.Popen[bytes] | None = None
        self.poll_s = 1.0

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every rerail process of this site."""
        kept = {k: v for k, v in self.lab.environment.items() if not k.startswith("RERAIL_")}
        cache = os.environ.get("RERAIL_CACHE_DIR")
        return {
            **kept,
            **({"RERAIL_CACHE_DIR": cache} if cache else {}),
            "RERAIL_DATA_DIR": str(self.folder / "data"),
            "RERAIL_POLICY_FILE": str(self.policy_file),
            "RERAIL_SCHEDULER": "slurm",
            "RERAIL_CLUSTER": "lab",
        }

    def start(self) -> None:
        """Start `rerail watch`."""
        with (self.folder / "watch.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [*RERAIL, "watch", "--interval", "0.3", "--poll", str(self.poll_s)],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def set_mode(self, mode: str) -> None:
        """Change the mode of every rule and start the daemon anew: policies are read at the start."""
        content = yaml.safe_load(self.policy_file.read_text())
        for rule in content["rules"]:
            rule["mode"] = "propose" if rule["id"] == "the-rest" else mode
        self.policy_file.write_text(yaml.safe_dump(content))
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kill the daemon the hard way, as a crash does."""
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait()
            self.daemon = None

    def hook_program(self, name: str, *arguments: str) -> Path:
        """Write a program for Slurm to run that calls `rerail hook` as this site; return its path."""
        program = self.folder / name
        kept = ("RERAIL_DATA_DIR", "RERAIL_CLUSTER", "RERAIL_SCHEDULER")
        exports = "".join(f"export {one}={self.environment[one]}\n" for one in kept)
        command = shlex.join([*RERAIL, "hook", *arguments])
        program.write_text(f'#!/bin/sh\n{exports}exec {command} "$@"\n')
        program.chmod(0o755)
        return program

    def rerail(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one rerail command of this site."""
        return subprocess.run(
            [
                sys.executable,
                "-c",
                "from rerail.assistant.cli.main import main; main()",
                *arguments,
            ],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def submit(
        self, name: str, *job: str, sbatch: tuple[str, ...] = (), program: str = "job"
    ) -> tuple[str, Path]:
        """Submit a two-node training job in a new folder; return its id and the folder."""
        folder = self.folder / "jobs" / name
        folder.mkdir(parents=True)
        return self.again(folder, *job, sbatch=sbatch, program=program), folder

    def again(
        self, folder: Path, *job: str, sbatch: tuple[str, ...] = (), program: str = "job"
    ) -> str:
        """Submit a training job in a folder that may hold checkpoints already; return its id."""
        script = folder / "job.sh"
        # MASTER_PORT is chosen anew at every start: an old one may still be in TIME_WAIT.
        port = 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
        script.write_text(
            "#!/bin/bash\n"
            "export MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1\n"
            f"export MASTER_PORT=$({sys.executable} -c '{port}')\n"
            f"srun --label --kill-on-bad-exit=1 {sys.executable} -m rerail.evals.cluster.{program} "
            f"--folder {folder} {' '.join(job)}\n"
        )
        return self.lab.run(
            *("sbatch", "--parsable", "--requeue", "-N", "2", "--ntasks-per-node=1"),
            *("-J", folder.name, "-D", str(folder), "-o", f"{folder}/slurm-%j.out"),
            *(*sbatch, str(script)),
        ).strip()


def wait_for(ready: Any, limit_s: float) -> bool:
    """Wait until `ready()` is true; return whether it became so in time."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if ready():
            return True
        time.sleep(0.1)
    return False
