"""A site on the one-machine cluster, set up by the documentation: accounts, rights, policy, a daemon.

The daemon runs as `rerail`, the writer is `svc-rerail-writer`, SlurmUser is `slurm` and jobs belong to
users of their own; the policy is the page's plus what the scenarios are about.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rerail.evals.cluster import private_system, setup_page
from rerail.evals.cluster.lab import Lab

RERAIL = (sys.executable, "-c", "from rerail.assistant.cli.main import main; main()")
USERS = ("ann", "bob")
COMMAND = "/etc/rerail/rerail"
NOT_DEFAULT = {
    "jobs.stalled_after_s": 40.0,
    "slow.after_lost_s": 3.0,
}
"""What differs from the defaults, and only so that a run takes minutes: both are waiting times of
minutes before something that is slow or silent counts as a fault."""


def as_account(name: str, *command: str) -> list[str]:
    """Return a command as another account runs it, with that account's groups and home."""
    return ["runuser", "-u", name, "--", *command]


def policy_of(lab: Lab, witness: Path) -> dict[str, Any]:
    """Return the page's policy, with rules that let restarts and proven drains run by themselves."""
    content: dict[str, Any] = yaml.safe_load(Path("/etc/rerail/policy.yaml").read_text())
    content |= {
        "dry_run": False,
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
        "slow": {"after_lost_s": NOT_DEFAULT["slow.after_lost_s"]},
        "dcgm": {"files": [f"{witness}/dcgm/{{node}}/*.prom"]},
    }
    content["jobs"] |= {
        "speeds": "{folder}/speeds.jsonl",
        "micro_batch_file": "{folder}/micro_batches.json",
        "scheduler_logs": [f"{lab.root}/log/slurmd.{{node}}.log"],
        "kernel_logs": [f"{witness}/kernel/{{node}}.log"],
        "stalled_after_s": NOT_DEFAULT["jobs.stalled_after_s"],
    }
    return content


class LabSite:
    """The daemon's side of a scenario; `start` and `kill` may be called any number of times."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        setup_page.install()
        setup_page.follow(lab.environment)
        file = Path("/etc/rerail/environment")
        file.write_text(file.read_text().replace("RERAIL_CLUSTER=h100-a", "RERAIL_CLUSTER=lab"))
        for user in USERS:
            subprocess.run(
                ("useradd", "--create-home", "--groups", "trainers", user), check=False, timeout=30
            )
            Path(f"/home/{user}").chmod(0o755)
            lab.run("sacctmgr", "-i", "add", "user", user, "account=rerail", check=False)
        self.policy_file = Path("/etc/rerail/policy.yaml")
        self.write_policy(policy_of(lab, folder))
        self.service = setup_page.service()
        self.data = Path(self.environment["RERAIL_DATA_DIR"])
        self.health = Path("/var/log/rerail-health")
        self.daemon: subprocess.Popen[bytes] | None = None
        self.arguments: tuple[str, ...] = ()
        # The controller learns of its new group and of the hook.
        lab.add_settings(setup_page.text_of("slurm.conf"))
        lab.restart_controller()

    def write_policy(self, content: dict[str, Any]) -> None:
        """Put a policy in place of the present one."""
        self.policy_file.write_text(yaml.safe_dump(content))

    def policy(self) -> dict[str, Any]:
        """Return what the policy file says now."""
        content: dict[str, Any] = yaml.safe_load(self.policy_file.read_text())
        return content

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the daemon's unit: its file, and what systemd gives every service."""
        account = pwd.getpwnam("rerail")
        cache = {"RERAIL_CACHE_DIR": str(self.data_cache())}
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": account.pw_dir,
            "USER": "rerail",
            "LANG": "C.UTF-8",
            # By these the end of the cluster finds its processes.
            "SLURM_CONF": str(self.lab.root / "etc/slurm.conf"),
            **cache,
            **setup_page.environment_file("/etc/rerail/environment"),
        }

    def data_cache(self) -> Path:
        """Return a cache of compiled rules that the daemon's account may write; it is made once."""
        cache = Path("/var/cache/rerail")
        if not cache.is_dir():
            given = os.environ.get("RERAIL_CACHE_DIR")
            if given and Path(given).is_dir():
                shutil.copytree(given, cache, ignore_dangling_symlinks=True)
            cache.mkdir(parents=True, exist_ok=True)
            subprocess.run(("chown", "-R", "rerail", str(cache)), check=True, timeout=60)
        return cache

    def start(self, *arguments: str) -> None:
        """Start the daemon as its unit does; `arguments` replace those of the last start."""
        self.arguments = arguments or self.arguments
        command = [*shlex.split(self.service["ExecStart"]), *self.arguments]
        with (self.folder / "watch.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                as_account(self.service["User"], *command),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )

    def log(self) -> str:
        """Return what the daemon has said."""
        path = self.folder / "watch.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def set_mode(self, mode: str) -> None:
        """Change the mode of every rule and start the daemon anew."""
        content = self.policy()
        for rule in content["rules"]:
            rule["mode"] = "propose" if rule["id"] == "the-rest" else mode
        self.write_policy(content)
        self.kill()
        self.start()

    def signal(self, number: int) -> None:
        """Send a signal to the daemon itself: `runuser` stands in front of it."""
        if self.daemon is None:
            return
        children = Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children")
        for pid in [*map(int, children.read_text().split())] or [self.daemon.pid]:
            os.kill(pid, number)

    def kill(self) -> None:
        """Kill the daemon the hard way, as a crash does."""
        if self.daemon is not None:
            try:
                self.signal(signal.SIGKILL)
            except OSError:
                pass
            self.daemon.kill()
            self.daemon.wait()
            self.daemon = None

    def rerail(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one rerail command of this site, as an operator does."""
        return subprocess.run(
            as_account("rerail", COMMAND, *arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd="/",
        )

    def submit(
        self,
        name: str,
        *job: str,
        sbatch: tuple[str, ...] = (),
        program: str = "job",
        user: str = USERS[0],
    ) -> tuple[str, Path]:
        """Submit a two-node training job of a user in a new folder; return its id and the folder."""
        folder = Path(f"/home/{user}/jobs") / name
        folder.mkdir(parents=True)
        for path in (folder.parent, folder):
            shutil.chown(path, user, user)
        return self.again(folder, *job, sbatch=sbatch, program=program), folder

    def again(
        self, folder: Path, *job: str, sbatch: tuple[str, ...] = (), program: str = "job"
    ) -> str:
        """Submit a training job in a folder that may hold checkpoints already; return its id."""
        script = folder / "job.sh"
        # MASTER_PORT is chosen anew at every start: an old one may still be in TIME_WAIT.
        port = "from rerail.evals.faultlab.machine import free_port; print(free_port())"
        script.write_text(
            "#!/bin/bash\n"
            "export MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1\n"
            f"export MASTER_PORT=$({sys.executable} -c '{port}')\n"
            f"srun --label --kill-on-bad-exit=1 {sys.executable} -m rerail.evals.cluster.{program} "
            f"--folder {folder} {' '.join(job)}\n"
        )
        owner = folder.owner()
        shutil.chown(script, owner, owner)
        return self.sbatch(
            owner,
            *("-N", "2", "--ntasks-per-node=1", "-J", folder.name, "-D", str(folder)),
            *("-o", f"{folder}/slurm-%j.out", *sbatch, str(script)),
        )

    def sbatch(self, user: str, *arguments: str) -> str:
        """Submit a job as a user; return its id."""
        command: Sequence[str] = as_account(user, "sbatch", "--parsable", *arguments)
        return self.lab.run(*command, cwd=f"/home/{user}").strip()


PATIENCE = 4.0
"""A limit tells a thing that hangs from one that is slow: it is what an idle machine never needs, and a
machine that runs other tests beside gets so many times as long. Nothing takes longer by it that works."""


def wait_for(ready: Any, limit_s: float) -> bool:
    """Wait until `ready()` is true; return whether it became so in time (`limit_s` if idle)."""
    deadline = time.monotonic() + limit_s * PATIENCE
    while time.monotonic() < deadline:
        if ready():
            return True
        time.sleep(0.1)
    return False


def private() -> None:
    """Give the accounts of the page a system of their own; the machine's stays as it is."""
    private_system.enter()
