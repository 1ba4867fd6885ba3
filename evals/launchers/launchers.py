"""The launchers: how each starts the same job on the hosts, and where its output goes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rerail.evals.launchers.hosts import Hosts

Process = subprocess.Popen[bytes]
STEP_LIMIT_S = 30


@dataclass(frozen=True, slots=True)
class Job:
    """One run: hosts, the job's folder, where logs go, the interpreter, the program's arguments."""

    hosts: Hosts
    folder: Path
    logs: Path
    python: Path
    per_host: int
    arguments: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hosts."""
        return self.hosts.names

    @property
    def head(self) -> str:
        """Address of the first host."""
        return self.hosts.address[self.names[0]]

    def program(self, name: str) -> str:
        """Return the path of an installed command."""
        return str(self.python.parent / name)

    def command(self) -> list[str]:
        """Return the training command."""
        return [str(self.python), "train.py", *self.arguments]

    def start(
        self, host: str, command: Sequence[str], log: str, extra: Mapping[str, str] | None = None
    ) -> Process:
        """Run a command on a host, with its output in a file of the logs."""
        return self.hosts.run(host, command, self.logs / log, extra)


@dataclass(frozen=True, slots=True)
class Launcher:
    """One launcher or framework.

    Attributes:
        hosts: Names of its hosts.
        per_host: Ranks on each.
        program: File of `programs/`.
        start: Starts the job; the run is over when all its processes are.
        no_rank: Scenarios whose logs let nobody tell the rank; `no_host` the host.
        limit_s: When the lab ends the run.
        more_leaves: Further right types, by scenario.
        labels: How its lines are labelled, in words.
    """

    name: str
    labels: str
    hosts: tuple[str, ...]
    per_host: int
    program: str
    start: Callable[[Job], list[Process]]
    no_rank: tuple[str, ...] = ()
    no_host: tuple[str, ...] = ()
    limit_s: float = 100
    more_leaves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _torchrun(job: Job, node: int, *more: str) -> list[str]:
    return [
        job.program("torchrun"),
        *(f"--nnodes={len(job.names)}", f"--nproc-per-node={job.per_host}"),
        *(f"--node-rank={node}", f"--master-addr={job.names[0]}", "--master-port=29500"),
        *more,
        "train.py",
        *job.arguments,
    ]


def torchrun(job: Job) -> list[Process]:
    """One torchrun on each host, each with a log file of its own."""
    return [
        job.start(name, _torchrun(job, node), f"{name}.log") for node, name in enumerate(job.names)
    ]


def torchrun_tee(job: Job) -> list[Process]:
    """The same with c10d rendezvous, `--tee 3`, and the output of all hosts in one file."""
    found = []
    for name in job.names:
        command = [
            job.program("torchrun"),
            *(f"--nnodes={len(job.names)}", f"--nproc-per-node={job.per_host}"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={job.names[0]}:29400", "--rdzv-id=8412"),
            *("--local-addr", job.hosts.address[name]),
            *("--log-dir", f"{job.folder}/elastic", "--tee", "3", "train.py", *job.arguments),
        ]
        found.append(job.start(name, command, "train.log"))
    return found


def pdsh(job: Job) -> list[Process]:
    """Torchrun by pdsh, which puts the host in front of every line."""
    launch = " ".join(_torchrun(job, 0)).replace("--node-rank=0", "--node-rank=%n")
    command = [
        *("pdsh", "-R", "ssh", "-S", "-f", "16", "-w", ",".join(job.names)),
        f"cd {job.folder} && {launch}",
    ]
    return [job.start(job.names[0], command, "pdsh.log", {"PDSH_SSH_ARGS_APPEND": "-T"})]


def deepspeed(job: Job) -> list[Process]:
    """DeepSpeed's launcher with a hostfile, over pdsh."""
    hostfile = job.folder / "hostfile"
    hostfile.write_text("".join(f"{name} slots={job.per_host}\n" for name in job.names))
    command = [
        job.program("deepspeed"),
        *("--hostfile", str(hostfile), "--master_addr", job.names[0], "--launcher", "pdsh"),
        *("--no_ssh_check", "--force_multi", "train.py", *job.arguments),
    ]
    extra = {"PDSH_RCMD_TYPE": "ssh", "DS_ACCELERATOR": "cpu"}
    (Path(job.folder) / ".deepspeed_env").write_text("DS_ACCELERATOR=cpu\n")
    return [job.start(job.names[0], command, "launch.log", {**extra, "HOME": str(job.folder)})]


def accelerate(job: Job) -> list[Process]:
    """`accelerate launch` on each host."""
    return [
        job.start(
            name,
            [
                *(job.program("accelerate"), "launch", "--multi_gpu"),
                *("--num_machines", str(len(job.names)), "--machine_rank", str(node)),
                *("--num_processes", str(len(job.names) * job.per_host), "--mixed_precision", "no"),
                *("--main_process_ip", job.head, "--main_process_port", "29500"),
                *("--dynamo_backend", "no", "--num_cpu_threads_per_process", "1"),
                *("train.py", *job.arguments),
            ],
            f"accelerate-{name}.out",
            # accelerate's CPU launch asks for a backend by name.
            {"ACCELERATE_USE_CPU": "true"},
        )
        for node, name in enumerate(job.names)
    ]


def lightning(job: Job) -> list[Process]:
    """Lightning starts the further processes of a host by itself."""
    return [
        job.start(
            name,
            job.command(),
            f"{name}.out",
            {
                "NUM_NODES": str(len(job.names)),
                "DEVICES": str(job.per_host),
                "NODE_RANK": str(node),
                "MASTER_ADDR": job.names[0],
                "MASTER_PORT": "29500",
            },
        )
        for node, name in enumerate(job.names)
    ]


def openmpi(job: Job) -> list[Process]:
    """Open MPI's mpirun with `--tag-output`, over ssh."""
    where = ",".join(f"{name}:{job.per_host}" for name in job.names)
    command = [
        *("mpirun.openmpi", "--allow-run-as-root", "--tag-output", "-np", str(_world(job))),
        *("--host", where, "--map-by", "slot", "--mca", "btl_tcp_if_include", "eth0"),
        *("--mca", "oob_tcp_if_include", "eth0", "--mca", "btl", "self,tcp,vader"),
        *("--mca", "btl_vader_single_copy_mechanism", "none", "--bind-to", "none"),
        *("--timeout", str(STEP_LIMIT_S), "-x", "PATH", "-wd", str(job.folder)),
        *(str(job.python), "-m", "mpi4py", "train.py", *job.arguments),
    ]
    return [
        job.start(job.names[0], command, "mpirun.log", {"OMPI_MCA_orte_base_help_aggregate": "1"})
    ]


def mpich(job: Job) -> list[Process]:
    """MPICH's Hydra with `-prepend-rank`, over ssh."""
    command = [
        *("mpiexec.hydra", "-prepend-rank", "-n", str(_world(job)), "-ppn", str(job.per_host)),
        *("-hosts", ",".join(job.names), "-launcher", "ssh", "-iface", "eth0"),
        *("-wdir", str(job.folder), "-genvall"),
        *(str(job.python), "-m", "mpi4py", "train.py", *job.arguments),
    ]
    # mpi4py asks for the library by the name that MPICH itself gives it; Debian's differs.
    library = job.hosts.folder / "lib"
    library.mkdir()
    (library / "libmpi.so.12").symlink_to("/usr/lib/x86_64-linux-gnu/libmpich.so.12")
    extra = {
        "MPIEXEC_TIMEOUT": str(STEP_LIMIT_S),
        "LD_LIBRARY_PATH": str(library),
        "MPI4PY_MPIABI": "mpich",
        "FI_PROVIDER": "tcp",
    }
    return [job.start(job.names[0], command, "mpiexec.log", extra)]


def jax(job: Job) -> list[Process]:
    """JAX processes, each started over ssh; one file a process."""
    found = []
    for node, name in enumerate(job.names):
        for local in range(job.per_host):
            index = node * job.per_host + local
            extra = {
                "PROCESS_ID": str(index),
                "NUM_PROCESSES": str(_world(job)),
                "COORDINATOR_ADDRESS": f"{job.names[0]}:12355",
                "JAX_PLATFORMS": "cpu",
            }
            found.append(job.start(name, job.command(), f"{name}/process-{index}.log", extra))
    return found


def ray(job: Job) -> list[Process]:
    """Ray Train on a cluster of the hosts; the driver's output is the log."""
    port = "6379"
    common = "--num-cpus 2 --disable-usage-stats --object-store-memory 100000000 --block"
    binary = job.program("ray")
    extra = {
        "RAY_AUTH_MODE": "disabled",
        "RAY_health_check_initial_delay_ms": "3000",
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_timeout_ms": "3000",
        "RAY_health_check_failure_threshold": "3",
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_TMPDIR": str(job.folder.parent / "r"),
    }
    head, *others = job.names
    script = (
        f"{binary} start --head --node-ip-address {job.head} --port {port} --include-dashboard false {common}"
        f" --num-gpus 0 > {job.logs}/../head.out 2>&1 & "
        f"until {binary} status 2>/dev/null | grep -q '/4.0 CPU\\|0.0/{2 * len(job.names)}.0 CPU'; do sleep 1; done; "
        f"exec {' '.join(job.command())}"
    )
    for name in others:
        worker = (
            f"sleep 6; exec {binary} start --address {job.head}:{port}"
            f" --node-ip-address {job.hosts.address[name]} {common}"
        )
        job.hosts.run(name, ["sh", "-c", worker], job.folder / f"{name}.out", extra)
    return [
        job.start(
            head, ["sh", "-c", script], "driver.log", {**extra, "RAY_ADDRESS": f"{job.head}:{port}"}
        )
    ]


def kubectl(job: Job) -> list[Process]:
    """Torchrun in hosts with the names of pods; `kubectl logs --prefix`'s form is put in front."""
    return _prefixed(job, "[pod/{}/pytorch] ", "kubectl.log")


def _prefixed(job: Job, form: str, log: str) -> list[Process]:
    found = []
    for node, name in enumerate(job.names):
        words = " ".join(_torchrun(job, node))
        prefix = form.format(name).replace("/", r"\/")
        found.append(job.start(name, ["sh", "-c", f"{words} 2>&1 | sed -u 's/^/{prefix}/'"], log))
    return found


def _world(job: Job) -> int:
    return len(job.names) * job.per_host


def _no_start(job: Job) -> list[Process]:
    raise RuntimeError("Slurm starts its jobs by itself: rerail.evals.launchers.slurm")


LAUNCHERS = (
    Launcher("torchrun", "none but torch's own; a file a host", ("cn0411", "cn0412"), 2, "train_torch.py", torchrun),
    Launcher("torchrun_tee", "[default1]: of both hosts in one file", ("gpu-a100-07", "gpu-a100-11"), 2,
             "train_torch.py", torchrun_tee),
    Launcher("pdsh", "host: in front of torchrun's lines", ("node17", "node23"), 2, "train_torch.py", pdsh),
    Launcher("deepspeed", "host: by DeepSpeed's launcher over pdsh", ("worker-1", "worker-2"), 2, "train_torch.py",
             deepspeed),
    Launcher("accelerate", "none; a file a host", ("dgx1", "dgx2"), 2, "train_accelerate.py", accelerate),
    Launcher("lightning", "none; a file a host", ("hgx-r3-04", "hgx-r3-09"), 2, "train_lightning.py", lightning,
             limit_s=75),
    Launcher("openmpi", "[1,3]<stderr>:", ("nid001113", "nid001120", "nid001121"), 2, "train_mpi.py", openmpi,
             no_host=("argument",)),
    Launcher("mpich", "[3] in front of a line", ("c17n02", "c17n05", "c17n06"), 2, "train_mpi.py", mpich,
             no_host=("argument",)),
    Launcher("jax", "none; a file a process in a folder a host", ("tpu-vm-0", "tpu-vm-1"), 2, "train_jax.py", jax,
             limit_s=50, more_leaves={"hang": ("job_cancelled_or_hangup",)}),
    Launcher("ray", "(RayTrainWorker pid=7, ip=10.0.0.2)", ("ray-head-0", "ray-worker-1"), 2, "train_ray.py", ray,
             limit_s=140),
    Launcher("kubectl", "[pod/name/container]; the form re-rendered over a real torchrun",
             ("llm-sft-worker-0", "llm-sft-worker-1"), 2, "train_torch.py", kubectl),
    Launcher("srun", "3: by srun -l on a real Slurm", ("tgn1", "tgn2"), 2, "train_torch.py", _no_start),
)  # fmt: skip
BY_NAME = {one.name: one for one in LAUNCHERS}
