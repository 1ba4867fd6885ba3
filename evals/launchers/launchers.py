"""The launchers: how each starts the same job on the hosts, and where its output goes."""

from __future__ import annotations

from pathlib import Path

from rerail.evals.launchers import collectors, managers
from rerail.evals.launchers.job import STEP_LIMIT_S, Job, Launcher, Process, torchrun_command


def torchrun(job: Job) -> list[Process]:
    """One torchrun on each host, each with a log file of its own."""
    return [
        job.start(name, torchrun_command(job, node), f"{name}.log")
        for node, name in enumerate(job.names)
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
    launch = " ".join(torchrun_command(job, 0)).replace("--node-rank=0", "--node-rank=%n")
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
    return _openmpi(job, "--tag-output")


def openmpi_stamps(job: Job) -> list[Process]:
    """Open MPI's mpirun with `--tag-output --timestamp-output`: the time stands in front of the label."""
    return _openmpi(job, "--tag-output", "--timestamp-output")


def openmpi_folders(job: Job) -> list[Process]:
    """Open MPI's mpirun with `--output-filename`: a folder for each rank, a file for each stream."""
    return _openmpi(job, "--output-filename", f"{job.logs}/out")


def _openmpi(job: Job, *form: str) -> list[Process]:
    where = ",".join(f"{name}:{job.per_host}" for name in job.names)
    command = [
        *("mpirun.openmpi", "--allow-run-as-root", *form, "-np", str(job.world)),
        *("--host", where, "--map-by", "slot", "--mca", "btl_tcp_if_include", "eth0"),
        *("--mca", "oob_tcp_if_include", "eth0", "--mca", "btl", "self,tcp,vader"),
        *("--mca", "btl_vader_single_copy_mechanism", "none", "--bind-to", "none"),
        *("--timeout", str(STEP_LIMIT_S), "-x", "PATH", "-wd", str(job.folder)),
        *(str(job.python), "-m", "mpi4py", "train.py", *job.arguments),
    ]
    return [
        job.start(job.names[0], command, "mpirun.log", {"OMPI_MCA_orte_base_help_aggregate": "1"})
    ]


def openmpi5(job: Job) -> list[Process]:
    """Open MPI 5: prterun with `--output tag`, over ssh."""
    where = ",".join(f"{name}:{job.per_host}" for name in job.names)
    command = [
        *(job.program("mpirun"), "--allow-run-as-root", "--output", "tag", "-np", str(job.world)),
        *("--host", where, "--bind-to", "none", "--prtemca", "prte_if_include", "eth0"),
        *("--mca", "btl_tcp_if_include", "eth0", "--mca", "pml", "ob1", "--mca", "btl", "self,tcp"),
        *("--timeout", str(STEP_LIMIT_S), "-x", "PATH", "--wdir", str(job.folder)),
        *(str(job.python), "-m", "mpi4py", "train.py", *job.arguments),
    ]
    return [job.start(job.names[0], command, "mpirun.log")]


def intelmpi(job: Job) -> list[Process]:
    """Intel MPI's Hydra with `-l`, over ssh."""
    command = [
        *(job.program("mpiexec.hydra"), "-l", "-n", str(job.world), "-ppn", str(job.per_host)),
        *("-hosts", ",".join(job.names), "-bootstrap", "ssh", "-iface", "eth0"),
        *("-wdir", str(job.folder), "-genvall"),
        *(str(job.python), "-m", "mpi4py", "train.py", *job.arguments),
    ]
    extra = {"I_MPI_FABRICS": "ofi", "FI_PROVIDER": "tcp", "MPIEXEC_TIMEOUT": str(STEP_LIMIT_S)}
    return [job.start(job.names[0], command, "mpiexec.log", extra)]


def mpich(job: Job) -> list[Process]:
    """MPICH's Hydra with `-prepend-rank`, over ssh."""
    return _mpich(job, "-prepend-rank")


def mpich_files(job: Job) -> list[Process]:
    """MPICH's Hydra with a file for each stream of each rank, host and rank in its name."""
    name = f"{job.logs}/train.%h.%r"
    return _mpich(job, "-outfile-pattern", f"{name}.out", "-errfile-pattern", f"{name}.err")


def _mpich(job: Job, *form: str) -> list[Process]:
    command = [
        *("mpiexec.hydra", *form, "-n", str(job.world), "-ppn", str(job.per_host)),
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
                "NUM_PROCESSES": str(job.world),
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
        words = " ".join(torchrun_command(job, node))
        prefix = form.format(name).replace("/", r"\/")
        found.append(job.start(name, ["sh", "-c", f"{words} 2>&1 | sed -u 's/^/{prefix}/'"], log))
    return found


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
    Launcher("openmpi5", "[1,3]<stderr>: of prterun", ("x1000c0s2b0n0", "x1000c0s2b0n1", "x1000c0s3b0n0"), 2,
             "train_mpi.py", openmpi5, environment="openmpi5"),
    Launcher("intelmpi", "[3] in front of a line", ("ice-n014", "ice-n015", "ice-n022"), 2, "train_mpi.py", intelmpi,
             environment="intelmpi"),
    Launcher("clush", "host: in front of torchrun's lines", ("tcn31", "tcn32"), 2, "train_torch.py", collectors.clush),
    Launcher("parallel_ssh", "a heading in front of each host's output", ("lambda-01", "lambda-02"), 2, "train_torch.py",
             collectors.parallel_ssh),
    Launcher("gnu_parallel", "host and a tab in front of torchrun's lines", ("ml5", "ml6"), 2, "train_torch.py",
             collectors.gnu_parallel),
    Launcher("ansible", "a heading in front of each host's output", ("aws-p5-3", "aws-p5-8"), 2, "train_torch.py",
             collectors.ansible, limit_s=60),
    Launcher("syslog", "time host torchrun[pid]: of rsyslog", ("a3mega-0", "a3mega-1"), 2, "train_torch.py",
             collectors.syslog),
    Launcher("honcho", "time rank3.1 | of honcho; a file a host", ("desk-a", "desk-b"), 2, "train_torch.py",
             collectors.honcho),
    Launcher("log_folders", "none; a file a stream of each local rank", ("gh200-1", "gh200-2"), 2, "train_torch.py",
             collectors.log_folders),
    Launcher("hf_trainer", "none; transformers' explicit form, a file a host", ("bnode07", "bnode08"), 2, "train_hf.py",
             torchrun),
    Launcher("structlog", "JSON of structlog, a file a host", ("ip-10-4-1-17", "ip-10-4-1-90"), 2, "train_structlog.py",
             torchrun),
    Launcher("loguru", "r3 within loguru's own form, a file a host", ("compute-0-3", "compute-0-4"), 2,
             "train_loguru.py", torchrun),
    Launcher("tensorflow", "none; a file a worker", ("tfh1", "tfh2"), 2, "train_tensorflow.py", collectors.tensorflow,
             environment="tensorflow", no_host=("argument",)),
    Launcher("paddle", "none; workerlog.N in a folder a host", ("yq01-a100-11", "yq01-a100-12"), 2, "train_paddle.py",
             collectors.paddle, environment="paddle"),
    Launcher("mindspore", "[WARNING] DISTRIBUTED(pid,...); worker_N.log in a folder a host", ("ascend-1", "ascend-2"), 2,
             "train_mindspore.py", collectors.mindspore, environment="mindspore"),
    Launcher("submitit", "none; submitit's own lines, %j_%t_log.err", ("jzl1", "jzl2"), 2, "train_submitit.py",
             _no_start, limit_s=70, environment="processes"),
    Launcher("srun_files", "none; job, node and task in the name of each file", ("bgn1", "bgn2"), 2, "train_torch.py",
             _no_start, limit_s=70, environment="processes"),
    Launcher("job_array", "none; a job array with a rank a task, a file each", ("vsc1", "vsc2"), 2, "train_torch.py",
             _no_start, limit_s=70, environment="processes"),
    Launcher("openmpi_stamps", "time[1,3]<stderr>:", ("lrz-i01", "lrz-i02", "lrz-i05"), 2, "train_mpi.py",
             openmpi_stamps, no_host=("argument",), environment="processes"),
    Launcher("openmpi_folders", "none; rank.3/stderr", ("hk-a", "hk-b", "hk-c"), 2, "train_mpi.py", openmpi_folders,
             no_host=("argument",), environment="processes"),
    Launcher("mpich_files", "none; host and rank in the name of each file", ("th1-cn4", "th1-cn5", "th1-cn8"), 2,
             "train_mpi.py", mpich_files, environment="processes"),
    Launcher("supervisor", "none; supervisord's log, a file a stream of each process", ("edge-1", "edge-2"), 2,
             "train_torch.py", managers.supervisor, limit_s=60, environment="processes"),
    Launcher("circus", "time [pid] |; circusd's log, a file a rank", ("farm01", "farm02"), 2, "train_torch.py",
             managers.circus, limit_s=60, environment="processes"),
    Launcher("taktuk", "host-1: pid (command): error > in front of torchrun's lines", ("grisou-4", "grisou-9"), 2,
             "train_torch.py", managers.taktuk, environment="processes"),
    Launcher("dsh", "host: in front of torchrun's lines", ("oak", "elm"), 2, "train_torch.py", managers.dsh,
             environment="processes"),
    Launcher("fabric", "[host] out: in front of torchrun's lines", ("vm-7f3a", "vm-91c2"), 2, "train_torch.py",
             managers.fabric, environment="processes"),
    Launcher("svlogd", "time of svlogd -tt; current in a folder a host", ("rack2u14", "rack2u15"), 2, "train_torch.py",
             managers.svlogd, environment="processes"),
    Launcher("multilog", "TAI64N; current in a folder a rank of each host", ("zeus", "hera"), 2, "train_torch.py",
             managers.multilog, environment="processes"),
    Launcher("syslog_ng", "host torchrun[pid] time level: of a template", ("dc1-gpu-31", "dc1-gpu-32"), 2,
             "train_torch.py", managers.syslog_ng, environment="processes"),
    Launcher("json_logger", "JSON with rank and node, both hosts in one file", ("sagittarius", "aquila"), 2,
             "train_json_logger.py", managers.one_file, environment="processes"),
    Launcher("logfmt", "logfmt with rank, a file a host", ("eu-west-1a-0", "eu-west-1b-0"), 2, "train_logfmt.py",
             torchrun, environment="processes"),
    Launcher("absl", "absl's prefix; rank, host and process in the name of each file", ("t1v-n-0", "t1v-n-1"), 2,
             "train_absl.py", managers.absl, environment="processes"),
    Launcher("dask", "none; dask's own lines, the workers of a host in one file", ("dsk-sched", "dsk-w1"), 2,
             "train_dask.py", managers.dask, limit_s=80, environment="dask"),
    Launcher("rich", "none; rich's columns and boxed tracebacks, a file a host", ("sirius-1", "sirius-2"), 2,
             "train_rich.py", torchrun, environment="programs"),
    Launcher("hydra", "none; Hydra's form, train.log in rank_3 of a folder a host", ("nv-a01", "nv-a02"), 2,
             "train_hydra.py", managers.hydra, environment="programs"),
    Launcher("structlog_console", "rank=3 host=name at the end, in colours, both hosts in one file",
             ("maple-4", "maple-5"), 2, "train_structlog_console.py", managers.one_file, environment="programs"),
    Launcher("coloredlogs", "time host name[pid] LEVEL, both hosts in one file", ("ws-17", "ws-23"), 2,
             "train_coloredlogs.py", managers.one_file, environment="programs"),
    Launcher("typescript", "none; script(1), carriage returns before line ends, a file a host", ("b200-x1", "b200-x2"), 2,
             "train_torch.py", managers.typescript, environment="programs"),
    Launcher("parallel_results", "none; stdout and stderr in a folder called after the host", ("icl05", "icl06"), 2,
             "train_torch.py", managers.parallel_results, environment="programs"),
    Launcher("spark", "none; Spark's own lines, the driver's log and each executor's streams", ("emr-m1", "emr-c1"), 2,
             "train_spark.py", managers.spark, limit_s=200, environment="spark", only_named=True),
    Launcher("srun", "3: by srun -l on a real Slurm", ("tgn1", "tgn2"), 2, "train_torch.py", _no_start),
)  # fmt: skip
BY_NAME = {one.name: one for one in LAUNCHERS}
