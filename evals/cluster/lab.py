"""Starts and stops a real multi-node Slurm on one machine: munge, accounting, controller, nodes.

No systemd: every daemon runs in the foreground mode of its own as a child of this process, and its
process id is kept in `lab.json`, so that another process can stop the cluster too. Debian's slurmd
is built for several daemons per host, so a node is one process; killing it is a node failure.
"""

from __future__ import annotations

import contextlib
import ctypes
import grp
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from rerail.errors import UsageError
from rerail.evals.cluster import private_system
from rerail.evals.cluster.config import Layout, Ports, cgroup_conf, slurm_conf, slurmdbd_conf
from rerail.evals.faultlab import machine

SLURM_USER = "slurm"
DEFAULT_FOLDER = Path("/etc/slurm")
# Accounts that every Debian has; slurmrestd refuses to run as root.
REST_USERS = {"reader": ("nobody", "nogroup"), "writer": ("daemon", "daemon")}
PROGRAMS = ("slurmctld", "slurmd", "munged", "scontrol", "sbatch", "sudo")


def cannot_run() -> str:
    """Return why the cluster cannot run on this machine, or an empty string."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (run evals/cluster/install.sh)"
    return "" if os.geteuid() == 0 else "the cluster's daemons need root"


def die_with_parent() -> None:
    """Let the kernel end this daemon when the process that started it dies, however it dies."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Lab:
    """One cluster; use it as a context manager, or `start` and `stop` it.

    Raises:
        UsageError: The machine lacks the programs or the rights (on `start`).
    """

    def __init__(
        self,
        nodes: int = 4,
        *,
        root: Path | None = None,
        prefix: str = "n",
        further: str = "",
        accounting: bool | None = None,
        rest: bool | None = None,
        outlives_us: bool = False,
    ) -> None:
        self.root = root or Path(tempfile.mkdtemp(prefix="rerail-cluster-"))
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        with_accounting = shutil.which("mariadbd", path="/usr/sbin:/usr/bin") is not None
        ports = machine.free_ports(nodes + 3)
        self.layout = Layout(
            root=self.root,
            host=socket.gethostname().split(".")[0],
            nodes=tuple(f"{prefix}{number}" for number in range(1, nodes + 1)),
            ports=Ports(ports[0], ports[1], ports[2], tuple(ports[3:])),
            cpus=os.cpu_count() or 1,
            cgroups=not machine.missing("memory_cgroup") and not machine.missing("freezer_cgroup"),
            accounting=with_accounting if accounting is None else accounting,
            further=further,
        )
        program = shutil.which("slurmrestd", path="/usr/sbin:/usr/bin")
        self.rest = program is not None if rest is None else rest
        self.processes: dict[str, int] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        self._outlives_us = outlives_us

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which Slurm's commands speak to this cluster."""
        return {
            **os.environ,
            "SLURM_CONF": str(self.root / "etc/slurm.conf"),
            "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
        }

    def __enter__(self) -> Lab:
        """Start the cluster."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the cluster and remove its folder."""
        self.stop()

    def add_settings(self, lines: str) -> None:
        """Add lines to slurm.conf; the controller reads them when it is started anew."""
        self.layout = replace(self.layout, further=f"{self.layout.further}{lines}")
        (self.root / "etc/slurm.conf").write_text(slurm_conf(self.layout))

    def run(self, *command: str, check: bool = True, cwd: str | None = None) -> str:
        """Run one of Slurm's commands and return its standard output."""
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=cwd,
        )
        if check and done.returncode:
            raise UsageError(f"{' '.join(command)}: {done.stderr.strip()}", subject=command[0])
        return done.stdout

    def start(self) -> None:
        """Write the configuration and start every daemon; returns when all nodes are idle."""
        if reason := cannot_run():
            raise UsageError(reason, subject="cluster", hint="evals/cluster/install.sh")
        closed = [one for one in self.root.parents if not one.stat().st_mode & 0o001]
        if closed:
            raise UsageError(
                f"{self.root} cannot be used by the accounts of the cluster: {closed[0]} is closed to others",
                subject="TMPDIR",
                hint="TMPDIR=/tmp, or another folder that every account may enter",
            )
        for name in ("etc", "log", "run", "state", "spool", "munge"):
            (self.root / name).mkdir(exist_ok=True)
        for name in ("run", "state", "log"):
            shutil.chown(self.root / name, self.layout.slurm_user, self.layout.slurm_user)
        self._start_munge()
        etc = self.root / "etc"
        (etc / "slurm.conf").write_text(slurm_conf(self.layout))
        (etc / "cgroup.conf").write_text(cgroup_conf())
        self._take_the_default_place(etc)
        if self.layout.accounting:
            self._start_accounting()
        self.start_controller()
        for node in self.layout.nodes:
            self.start_node(node)
        self._wait("all nodes idle", self._all_idle, 20)
        if self.rest:
            self._start_rest()

    def _take_the_default_place(self, etc: Path) -> None:
        """Let commands without SLURM_CONF, as sudo leaves them, speak to this cluster.

        Only where /etc is this process tree's own (`rerail.evals.cluster.private_system`).
        """
        if not private_system.entered():
            return
        if DEFAULT_FOLDER.is_symlink():
            DEFAULT_FOLDER.unlink()
        elif DEFAULT_FOLDER.is_dir():
            shutil.rmtree(DEFAULT_FOLDER)
        DEFAULT_FOLDER.symlink_to(etc)

    def restart_controller(self) -> None:
        """Stop slurmctld politely and start it, as after a change of its groups or settings."""
        self._kill("slurmctld", signal.SIGTERM)
        self.start_controller()

    def rest_socket(self, face: str) -> Path:
        """Return the socket of slurmrestd for a face, `reader` or `writer`."""
        return self.root / "rest" / face / "socket"

    def _start_rest(self) -> None:
        """Start slurmrestd twice: requests act as its account, so reader and writer need one each."""
        for face, (user, group) in REST_USERS.items():
            folder = self.rest_socket(face).parent
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            shutil.chown(folder, user)
            if face == "writer" and self.layout.accounting:
                operator = ("account=root", "adminlevel=operator")
                self.run("sacctmgr", "-i", "add", "user", user, *operator, check=False)
            self._spawn(
                f"slurmrestd.{face}",
                *("slurmrestd", "-a", "rest_auth/local", f"unix:{self.rest_socket(face)}"),
                user=user,
                group=group,
            )
            self._wait(f"slurmrestd of the {face}", self.rest_socket(face).exists, 10)

    def _all_idle(self) -> bool:
        shown = self.run("sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N", check=False)
        return len(set(shown.split())) == len(self.layout.nodes)

    def _wait(self, what: str, ready: object, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if callable(ready) and ready():
                return
            time.sleep(0.05)
        raise UsageError(
            f"the cluster did not reach: {what}", subject="cluster", hint=f"see {self.root}/log"
        )

    def _spawn(
        self,
        name: str,
        *command: str,
        extra: Mapping[str, str] | None = None,
        user: str | None = None,
        group: str | None = None,
        groups: Sequence[int] = (),
    ) -> None:
        with (self.root / "log" / f"{name}.console").open("ab") as out:
            child = subprocess.Popen(
                command,
                env={**self.environment, **(extra or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                user=user,
                group=group,
                extra_groups=None if group is None else list(groups),
                preexec_fn=None if self._outlives_us else die_with_parent,
            )
        self._children.append(child)
        self.processes[name] = child.pid
        (self.root / "lab.json").write_text(json.dumps(self.processes))

    def _spawn_as_slurm(self, name: str, *command: str) -> None:
        """Start a daemon as SlurmUser, with all groups that this account has now."""
        account = pwd.getpwnam(self.layout.slurm_user)
        groups = os.getgrouplist(account.pw_name, account.pw_gid)
        self._spawn(
            *(name, *command),
            user=account.pw_name,
            group=grp.getgrgid(account.pw_gid).gr_name,
            groups=groups,
        )

    def _start_munge(self) -> None:
        folder = self.root / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        folder.chmod(0o755)
        for path in (folder, key):
            shutil.chown(path, "munge", "munge")
        self._spawn(
            "munged",
            *("/usr/sbin/munged", "--foreground", "--force"),
            *(f"--key-file={key}", f"--socket={folder}/socket", f"--pid-file={folder}/pid"),
            *(f"--seed-file={folder}/seed", f"--log-file={folder}/log"),
            user="munge",
        )
        self._wait("munge", (folder / "socket").exists, 10)

    def _start_accounting(self) -> None:
        data = self.root / "db"
        data.mkdir(exist_ok=True)
        shutil.chown(data, "mysql", "mysql")
        subprocess.run(
            [
                *("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={data}/data"),
                *("--auth-root-authentication-method=socket", "--skip-test-db"),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
        self._spawn(
            "mariadbd",
            *("/usr/sbin/mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}/data"),
            *(f"--socket={data}/socket", f"--pid-file={data}/pid", "--bind-address=127.0.0.1"),
            *(f"--port={self.layout.ports.database}", "--innodb-buffer-pool-size=64M"),
            *("--innodb-log-file-size=32M", "--innodb-lock-wait-timeout=900"),
            "--innodb-flush-log-at-trx-commit=0",
        )
        client = ("mariadb", "--no-defaults", "-S", f"{data}/socket", "-e")
        grants = "; ".join(
            f"create user 'slurm'@'{host}' identified by 'slurm'; "
            f"grant all on slurm_acct_db.* to 'slurm'@'{host}'"
            for host in ("127.0.0.1", "localhost")
        )
        self._wait("database", lambda: self._succeeds(*client, "select 1"), 20)
        self.run(*client, grants)
        conf = self.root / "etc/slurmdbd.conf"
        conf.write_text(slurmdbd_conf(self.layout))
        conf.chmod(0o600)
        shutil.chown(conf, self.layout.slurm_user, self.layout.slurm_user)
        self._spawn_as_slurm("slurmdbd", "slurmdbd", "-D")
        self._wait("accounting", lambda: self._succeeds("sacctmgr", "-n", "list", "cluster"), 20)
        for what in (("cluster", "lab"), ("account", "root"), ("user", "root", "account=root")):
            self.run("sacctmgr", "-i", "add", *what, check=False)

    def _succeeds(self, *command: str) -> bool:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, timeout=30, check=False
        )
        return done.returncode == 0

    def start_controller(self) -> None:
        """Start slurmctld, with the state of the one before if there was one."""
        self._spawn_as_slurm("slurmctld", "slurmctld", "-D")
        self._wait("controller", lambda: "is UP" in self.run("scontrol", "ping", check=False), 20)

    def kill_controller(self) -> None:
        """Kill slurmctld the hard way; the nodes keep running."""
        self._kill("slurmctld", signal.SIGKILL)

    def start_node(self, node: str) -> None:
        """Start the slurmd of one node."""
        (self.root / "spool" / node).mkdir(exist_ok=True)
        log = self.root / "log" / f"slurmd.{node}.log"
        log.touch()
        log.chmod(0o644)  # slurmd itself makes it for root alone, and rerail reads it
        self._spawn(f"slurmd.{node}", "slurmd", "-D", "-N", node, extra={"LAB_NODE": node})

    def kill_node(self, node: str) -> None:
        """Kill a node's slurmd, step daemons and tasks at once, as a power cut does."""
        self._kill(f"slurmd.{node}", signal.SIGKILL)
        lab = f"SLURM_CONF={self.root}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                environ = (entry / "environ").read_bytes()
                names = (f"LAB_NODE={node}\0".encode(), f"SLURMD_NODENAME={node}\0".encode())
                if lab in environ and any(name in environ for name in names):
                    os.kill(int(entry.name), signal.SIGKILL)

    def _kill(self, name: str, number: int) -> None:
        pid = self.processes.pop(name, None)
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        for child in self._children:
            if child.pid == pid:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=8)
                    return
                child.kill()
                child.wait()

    def stop(self) -> None:
        """Cancel all jobs, end every daemon and every process of a job, remove the folder."""
        if "slurmctld" in self.processes:
            with contextlib.suppress(UsageError, subprocess.TimeoutExpired):
                self.cancel_all()
                time.sleep(0.3)
        for name in sorted(self.processes, key=lambda one: not one.startswith("slurmd.")):
            self._kill(name, signal.SIGTERM)
        machine.end_processes(str(self.root), spare_callers=True)
        self._remove_cgroups()
        shutil.rmtree(self.root, ignore_errors=True)

    def cancel_all(self) -> None:
        """Cancel every job of every user."""
        jobs = self.run("squeue", "-h", "-o", "%A", check=False).split()
        if jobs:
            self.run("scancel", *jobs, check=False)

    def _remove_cgroups(self) -> None:
        for controller in machine.CGROUPS.glob("*"):
            for node in self.layout.nodes:
                top = controller / f"slurm_{node}"
                if top.is_dir():
                    for folder, _, _ in os.walk(top, topdown=False):
                        with contextlib.suppress(OSError):
                            Path(folder).rmdir()


def stop_from(root: Path) -> None:
    """Stop a cluster that another process started, by the ids it wrote down.

    Raises:
        UsageError: The folder holds no cluster.
    """
    record = root / "lab.json"
    if not record.is_file():
        raise UsageError(
            f"no cluster in {str(root)!r}", subject=str(root), hint="rerail eval cluster up"
        )
    # A number in an old record may be another's process by now.
    own = set(machine.processes_of(str(root))) - machine.callers()
    for pid in own & set(json.loads(record.read_text()).values()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    time.sleep(1)
    machine.end_processes(str(root), spare_callers=True)
    shutil.rmtree(root, ignore_errors=True)
