"""The configuration files of the one-machine Slurm cluster, as text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports of the daemons, all on the loopback address."""

    controller: int
    accounting: int
    database: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """What the configuration depends on.

    `slurm_user` runs controller and accounting, `further` are lines of the set-up page.
    `down_after_s` is SlurmdTimeout: how long a silent node stays up in the controller's eyes.
    """

    root: Path
    host: str
    nodes: tuple[str, ...]
    ports: Ports
    cpus: int
    cgroups: bool
    accounting: bool
    slurm_user: str = "slurm"
    further: str = ""
    down_after_s: int = 5


def slurm_conf(layout: Layout) -> str:
    """Return slurm.conf."""
    root = layout.root
    lines = [
        "ClusterName=lab",
        f"SlurmctldHost={layout.host}(127.0.0.1)",
        f"SlurmctldPort={layout.ports.controller}",
        f"SlurmUser={layout.slurm_user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={root}/munge/socket",
        f"StateSaveLocation={root}/state",
        f"SlurmdSpoolDir={root}/spool/%n",
        f"SlurmctldPidFile={root}/run/slurmctld.pid",
        f"SlurmdPidFile={root}/run/slurmd.%n.pid",
        f"SlurmctldLogFile={root}/log/slurmctld.log",
        f"SlurmdLogFile={root}/log/slurmd.%n.log",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "DefMemPerNode=900",
        f"SlurmdTimeout={layout.down_after_s}",
        "SlurmctldTimeout=10",
        "InactiveLimit=0",
        "KillWait=3",
        "MinJobAge=3600",
        "ReturnToService=1",
        "MessageTimeout=10",
        "UnkillableStepTimeout=30",
        "MpiDefault=none",
        "SwitchType=switch/none",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={root}/log/jobcomp.txt",
        "JobAcctGatherFrequency=1",
        "JobRequeue=1",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=CANCEL",
    ]
    lines += layout.further.splitlines()
    if layout.cgroups:
        lines += [
            "ProctrackType=proctrack/cgroup",
            "TaskPlugin=task/cgroup",
            "JobAcctGatherType=jobacct_gather/cgroup",
            "PrologFlags=Contain",
        ]
    else:
        lines += [
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/linux",
        ]
    if layout.accounting:
        lines += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={layout.ports.accounting}",
            f"AccountingStoragePass={root}/munge/socket",
        ]
    for node, port in zip(layout.nodes, layout.ports.nodes, strict=True):
        lines.append(
            f"NodeName={node} NodeHostname={layout.host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={layout.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={layout.cpus} "
            "ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN"
        )
    every = ",".join(layout.nodes)
    lines += [
        f"PartitionName=main Nodes={every} Default=YES MaxTime=INFINITE State=UP PriorityTier=1",
        f"PartitionName=urgent Nodes={every} MaxTime=INFINITE State=UP PriorityTier=10",
    ]
    return "\n".join(lines) + "\n"


def cgroup_conf() -> str:
    """Return cgroup.conf: memory limits are enforced per node of a job."""
    return (
        "CgroupPlugin=cgroup/v1\nCgroupAutomount=yes\nConstrainCores=no\n"
        "ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n"
    )


def slurmdbd_conf(layout: Layout) -> str:
    """Return slurmdbd.conf; the database listens on loopback and is thrown away with the cluster."""
    root = layout.root
    return "\n".join(
        (
            "AuthType=auth/munge",
            f"AuthInfo=socket={root}/munge/socket",
            "DbdHost=localhost",
            "DbdAddr=127.0.0.1",
            f"DbdPort={layout.ports.accounting}",
            f"SlurmUser={layout.slurm_user}",
            f"LogFile={root}/log/slurmdbd.log",
            f"PidFile={root}/run/slurmdbd.pid",
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={layout.ports.database}",
            "StorageUser=slurm",
            "StoragePass=slurm",
            "StorageLoc=slurm_acct_db",
            "",
        )
    )
