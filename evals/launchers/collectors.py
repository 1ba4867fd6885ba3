"""Torchrun under tools that start commands on several hosts, or that gather the lines of several."""

from __future__ import annotations

import json
from pathlib import Path

from rerail.evals.launchers.job import SEEN, Job, Process, torchrun_command

RSYSLOG = """module(load="imudp")
input(type="imudp" port="514")
template(name="traditional" type="string"
  string="%TIMESTAMP% %HOSTNAME% %syslogtag%%msg:::sp-if-no-1st-sp%%msg:::drop-last-lf%\\n")
action(type="omfile" file="{log}" template="traditional")
"""


def clush(job: Job) -> list[Process]:
    """Torchrun by ClusterShell's clush, which puts the host in front of every line."""
    command = [job.program("clush"), "-w", ",".join(job.names), "-o", "-T", str(host_script(job))]
    return [job.start(job.names[0], command, "clush.log")]


def parallel_ssh(job: Job) -> list[Process]:
    """Torchrun by parallel-ssh with `-i`: the output of each host behind its heading, at the end."""
    command = [
        *("parallel-ssh", "-t", "0", "-i", "-H", " ".join(job.names)),
        str(host_script(job)),
    ]
    return [job.start(job.names[0], command, "pssh.log")]


def gnu_parallel(job: Job) -> list[Process]:
    """Torchrun by GNU parallel with `--tag` and ssh, a job a host."""
    command = [
        *("parallel", "--will-cite", "--tag", "--line-buffer", "-j0"),
        *("ssh", "{}", str(host_script(job)), ":::", *job.names),
    ]
    return [job.start(job.names[0], command, "parallel.log", {"SHELL": "/bin/sh"})]


def ansible(job: Job) -> list[Process]:
    """Torchrun by ansible's ad-hoc command: the output of each host behind a heading, at the end."""
    command = [
        *(job.program("ansible"), "all", "-i", ",".join(job.names) + ","),
        *("-e", f"ansible_python_interpreter={job.python}", "-m", "ansible.builtin.shell"),
        *("-a", str(host_script(job))),
    ]
    extra = {"ANSIBLE_SSH_ARGS": "", "HOME": str(job.folder), "ANSIBLE_LOCAL_TEMP": "/tmp/.ansible"}  # noqa: S108
    return [job.start(job.names[0], command, "ansible.log", extra)]


def syslog(job: Job) -> list[Process]:
    """Torchrun into logger(1) on each host, rsyslog's traditional form on the first."""
    folder = job.folder.parent
    settings = folder / "rsyslog.conf"
    settings.write_text(RSYSLOG.format(log=job.logs / "messages"))
    job.hosts.run(
        job.names[0],
        ["rsyslogd", "-n", "-f", str(settings), "-i", str(folder / "rsyslog.pid")],
        folder / "rsyslogd.out",
    )
    found = []
    for node, name in enumerate(job.names):
        words = " ".join(torchrun_command(job, node))
        send = f"{words} 2>&1 | logger -d -n {job.head} -P 514 --rfc3164 --id -t torchrun; sleep 1"
        found.append(job.start(name, ["sh", "-c", f"sleep 1; {send}"], "../logger.out"))
    return found


def honcho(job: Job) -> list[Process]:
    """A Procfile of each host's ranks under honcho: time and name of the process before each line."""
    found = []
    for node, name in enumerate(job.names):
        lines = []
        for local in range(job.per_host):
            rank = node * job.per_host + local
            settings = f"env RANK={rank} LOCAL_RANK={local} "
            lines.append(f"rank{rank}: {settings}{' '.join(job.command())}\n")
        place = job.folder / f"Procfile.{name}"
        place.write_text("".join(lines))
        extra = {"WORLD_SIZE": str(job.world), "MASTER_ADDR": job.head, "MASTER_PORT": "29500"}
        command = [job.program("honcho"), "start", "-f", str(place)]
        found.append(job.start(name, command, f"{name}.log", extra))
    return found


def log_folders(job: Job) -> list[Process]:
    """Torchrun with `--redirects 3`: a file for each stream of each local rank, a folder a host."""
    return [
        job.start(
            name,
            torchrun_command(job, node, "--log-dir", f"{job.logs}/{name}/elastic", "--redirects=3"),
            f"{name}/torchrun.log",
        )
        for node, name in enumerate(job.names)
    ]


def tensorflow(job: Job) -> list[Process]:
    """TensorFlow's workers by TF_CONFIG, over ssh; one file a worker."""
    seats = [(name, local) for name in job.names for local in range(job.per_host)]
    workers = [f"{job.hosts.address[name]}:{2222 + local}" for name, local in seats]
    found = []
    for index, (name, _) in enumerate(seats):
        cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        extra = {"TF_CONFIG": json.dumps(cluster), "CUDA_VISIBLE_DEVICES": ""}
        found.append(job.start(name, job.command(), f"worker-{index}.log", extra))
    return found


def paddle(job: Job) -> list[Process]:
    """`paddle.distributed.launch` on each host: its own log and `workerlog.N` of each local rank."""
    found = []
    for node, name in enumerate(job.names):
        command = [
            *(str(job.python), "-m", "paddle.distributed.launch"),
            *("--master", f"{job.head}:29600", "--nnodes", str(len(job.names))),
            *("--rank", str(node), "--nproc_per_node", str(job.per_host)),
            *("--log_dir", f"{job.logs}/{name}", "train.py", *job.arguments),
        ]
        found.append(
            job.start(name, command, f"{name}/launch.out", {"PADDLE_DISTRI_BACKEND": "gloo"})
        )
    return found


def mindspore(job: Job) -> list[Process]:
    """MindSpore's msrun on each host: its own output, `worker_N.log` and `scheduler.log`."""
    found = []
    for node, name in enumerate(job.names):
        command = [
            *(job.program("msrun"), f"--worker_num={job.world}"),
            *(f"--local_worker_num={job.per_host}", f"--node_rank={node}"),
            *(f"--master_addr={job.head}", "--master_port=8118", "--join=True"),
            *(f"--log_dir={job.logs}/{name}", "train.py", *job.arguments),
        ]
        extra = {"MS_NODE_TIMEOUT": "12", "PYTHON": str(job.python)}
        found.append(job.start(name, command, f"{name}/msrun.out", extra))
    return found


def host_script(job: Job) -> Path:
    """Write what each host runs: torchrun, with the host's number from its name."""
    place = job.folder / "launch.sh"
    words = " ".join(torchrun_command(job, 0)).replace("--node-rank=0", "--node-rank=$node")
    cases = " ".join(f"{name}) node={node};;" for node, name in enumerate(job.names))
    # Some of these tools print at the end alone; the lab sees by the copy how far training is.
    place.write_text(
        f"#!/bin/bash\nset -o pipefail\ncd {job.folder}\ncase $(hostname) in {cases} esac\n"
        f"{words} 2>&1 | tee {job.folder}/{SEEN}-$node\n"
    )
    place.chmod(0o755)
    return place
