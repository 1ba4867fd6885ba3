"""Process managers, parallel shells and stampers of the third lot: who starts the ranks, who labels their lines."""

from __future__ import annotations

import shutil

from rerail.errors import UsageError
from rerail.evals.launchers.collectors import host_script
from rerail.evals.launchers.hosts import PATH
from rerail.evals.launchers.job import Job, Process, torchrun_command

SUPERVISORD = """[unix_http_server]
file={folder}/{host}.sock
[supervisord]
nodaemon=true
user=root
logfile={logs}/supervisord.log
pidfile={folder}/{host}.pid
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{folder}/{host}.sock
[program:train]
command={command}
directory={folder}
process_name=%(program_name)s_%(process_num)02d
numprocs={count}
numprocs_start={first}
environment=RANK="%(process_num)d"
startsecs=1
autorestart=false
stdout_logfile={logs}/%(program_name)s_%(process_num)02d.out.log
stderr_logfile={logs}/%(program_name)s_%(process_num)02d.err.log
"""
CIRCUS = """[circus]
check_delay = 1
endpoint = tcp://127.0.0.1:5555
pubsub_endpoint = tcp://127.0.0.1:5556
logoutput = {logs}/circus.log
loglevel = info
"""
WATCHER = """[watcher:rank{rank}]
cmd = {command}
working_dir = {folder}
copy_env = True
respawn = False
stdout_stream.class = FileStream
stdout_stream.filename = {logs}/rank{rank}.log
stderr_stream.class = FileStream
stderr_stream.filename = {logs}/rank{rank}.log
stderr_stream.time_format = %Y-%m-%d %H:%M:%S
[env:rank{rank}]
RANK = {rank}
"""
# A person looks whether anything still runs, and stops the manager.
UNTIL = (
    "{start} & own=$!; sleep 4; while {status} 2>/dev/null | grep -qE '{busy}'; do sleep 1; done; "
    "{stop} >/dev/null; wait $own"
)
FABFILE = """from fabric.api import parallel, run, task


@task
@parallel
def train():
    run("{script}")
"""
SYSLOG_NG = """@version: 3.38
source s_net {{ network(transport("udp") port(514) flags(syslog-protocol) keep-hostname(yes)); }};
template t_site {{ template("${{HOST}} ${{PROGRAM}}[${{PID}}] ${{ISODATE}} ${{LEVEL}}: ${{MSG}}\\n"); }};
destination d_all {{ file("{log}" template(t_site)); }};
options {{ keep-hostname(yes); use-dns(no); flush-lines(1); }};
log {{ source(s_net); destination(d_all); }};
"""
DASK = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "15 s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "15 s",
}
SPARK = (
    "spark.executor.memory=512m",
    "spark.driver.memory=512m",
    "spark.network.timeout=12s",
    "spark.network.timeoutInterval=4s",
    "spark.executor.heartbeatInterval=3s",
    "spark.ui.enabled=false",
    "spark.task.maxFailures=1",
    "spark.stage.maxConsecutiveAttempts=1",
    "spark.cores.max=4",
)


def supervisor(job: Job) -> list[Process]:
    """Supervisord on each host: its own log, and a file for each stream of each of its processes."""
    found = []
    for node, name in enumerate(job.names):
        settings = job.folder / f"{name}.conf"
        text = SUPERVISORD.format(
            folder=job.folder,
            host=name,
            logs=job.logs / name,
            command=" ".join(job.command()),
            count=job.per_host,
            first=node * job.per_host,
        )
        settings.write_text(text)
        control = f"{job.program('supervisorctl')} -c {settings}"
        script = UNTIL.format(
            start=f"{job.program('supervisord')} -c {settings}",
            status=f"{control} status",
            busy="RUNNING|STARTING|STOPPING",
            stop=f"{control} shutdown",
        )
        found.append(job.start(name, ["sh", "-c", script], "../supervisor.out", _group(job)))
    return found


def circus(job: Job) -> list[Process]:
    """Circusd on each host: its own log, and a file for each rank with time and process id."""
    found = []
    for node, name in enumerate(job.names):
        settings, logs = job.folder / f"{name}.ini", job.logs / name
        command = " ".join(job.command())
        watchers = [
            WATCHER.format(rank=rank, command=command, folder=job.folder, logs=logs)
            for rank in range(node * job.per_host, (node + 1) * job.per_host)
        ]
        settings.write_text(CIRCUS.format(logs=logs) + "".join(watchers))
        script = UNTIL.format(
            start=f"{job.program('circusd')} {settings}",
            status=f"{job.program('circusctl')} status",
            busy="active",
            stop=f"{job.program('circusctl')} quit",
        )
        found.append(job.start(name, ["sh", "-c", script], "../circus.out", _group(job)))
    return found


def taktuk(job: Job) -> list[Process]:
    """Torchrun by TakTuk: host, number, process, command and stream in front of each line."""
    hosts = [word for name in job.names for word in ("-m", name)]
    command = ["taktuk", *hosts, "broadcast", "exec", "[", str(host_script(job)), "]"]
    return [job.start(job.names[0], command, "taktuk.log")]


def dsh(job: Job) -> list[Process]:
    """Torchrun by dancer's shell with `-M`, which puts the host in front of every line."""
    hosts = [word for name in job.names for word in ("-m", name)]
    command = ["dsh", "-M", "-c", "-r", "ssh", *hosts, "--", str(host_script(job))]
    return [job.start(job.names[0], command, "dsh.log")]


def fabric(job: Job) -> list[Process]:
    """Torchrun by the classic Fabric in parallel: `[host] out: ` in front of every line."""
    fabfile = job.folder / "fabfile.py"
    fabfile.write_text(FABFILE.format(script=host_script(job)))
    command = [
        *(job.program("fab"), "-f", str(fabfile), "-D", "-u", "root"),
        *("-i", str(job.hosts.folder / "id"), "-H", ",".join(job.names), "train"),
    ]
    return [job.start(job.names[0], command, "fab.log")]


def svlogd(job: Job) -> list[Process]:
    """Torchrun into runit's svlogd with `-tt`: a time in front of each line, `current` in a folder a host."""
    return [
        job.start(name, ["sh", "-c", f"{words} 2>&1 | svlogd -tt {job.logs / name}"], "../sv.out")
        for name, words in _torchruns(job)
    ]


def multilog(job: Job) -> list[Process]:
    """Each rank into a multilog of daemontools: TAI64N in front of each line, `current` of each service."""
    found = []
    for node, name in enumerate(job.names):
        for local in range(job.per_host):
            rank = node * job.per_host + local
            words = f"{' '.join(job.command())} 2>&1 | multilog t {job.logs}/{name}/rank{rank}"
            extra = {**_group(job), "RANK": str(rank)}
            found.append(job.start(name, ["sh", "-c", words], "../multilog.out", extra))
    return found


def syslog_ng(job: Job) -> list[Process]:
    """Torchrun into logger(1) on each host, and syslog-ng with a template that begins with host and program."""
    if shutil.which("syslog-ng", path=PATH) is None:
        raise UsageError(
            "not installed: syslog-ng",
            subject="syslog_ng",
            hint="apt-get install syslog-ng-core, which takes rsyslog away; rsyslog again afterwards",
        )
    folder = job.folder.parent
    settings = folder / "syslog-ng.conf"
    settings.write_text(SYSLOG_NG.format(log=job.logs / "cluster.log"))
    own = [f"--{key}={folder}/syslog-ng.{key}" for key in ("persist-file", "pidfile", "control")]
    job.hosts.run(
        job.names[0],
        ["syslog-ng", "-F", "--no-caps", "-f", str(settings), *own],
        folder / "syslog-ng.out",
    )
    found = []
    for name, words in _torchruns(job):
        send = f"{words} 2>&1 | logger -d -n {job.head} -P 514 --rfc5424 --id -t torchrun; sleep 1"
        found.append(job.start(name, ["sh", "-c", f"sleep 2; {send}"], "../logger.out"))
    return found


def absl(job: Job) -> list[Process]:
    """Torchrun with absl's log files: rank, host, user, level, time and process in the name of each."""
    return _with_logs_of_their_own(job, "LOG_DIR", {"USER": "root"})


def hydra(job: Job) -> list[Process]:
    """Torchrun, and the log of Hydra in a folder of each rank, a folder a host."""
    return _with_logs_of_their_own(job, "HYDRA_DIR", {})


def _with_logs_of_their_own(job: Job, setting: str, extra: dict[str, str]) -> list[Process]:
    """Torchrun on each host, whose program writes logs into the host's folder, which the setting names."""
    return [
        job.start(
            name,
            torchrun_command(job, node),
            f"{name}/torchrun.log",
            {setting: str(job.logs / name), **extra},
        )
        for node, name in enumerate(job.names)
    ]


def typescript(job: Job) -> list[Process]:
    """Torchrun under script(1) on each host: what a terminal showed, with its line ends and a heading."""
    found = []
    for name, words in _torchruns(job):
        command = ["script", "-q", "-f", "-c", words, f"{job.logs}/{name}.typescript"]
        found.append(job.start(name, command, "../script.out"))
    return found


def parallel_results(job: Job) -> list[Process]:
    """Torchrun by GNU parallel with `--results` and ssh: a folder for each host, a file for each stream."""
    command = [
        *("parallel", "--will-cite", "--results", f"{job.logs}/out", "-j0"),
        *("ssh", "{}", str(host_script(job)), ":::", *job.names),
    ]
    return [job.start(job.names[0], command, "../parallel.out", {"SHELL": "/bin/sh"})]


def one_file(job: Job) -> list[Process]:
    """Torchrun on each host, all into one file."""
    return [
        job.start(name, torchrun_command(job, node), "train.log")
        for node, name in enumerate(job.names)
    ]


def dask(job: Job) -> list[Process]:
    """A scheduler on the first host, workers of Dask on each; the driver gives each worker a rank."""
    binary, folder = job.program("dask"), job.folder.parent
    scheduler = [binary, "scheduler", "--host", job.head, "--port", "8786", "--no-dashboard"]
    job.start(job.names[0], scheduler, "scheduler.log")
    for name in job.names:
        worker = [
            *(binary, "worker", f"tcp://{job.head}:8786", "--host", job.hosts.address[name]),
            *("--nworkers", str(job.per_host), "--nthreads", "1", "--name", name),
            *(
                "--no-dashboard",
                "--memory-limit",
                "0",
                "--local-directory",
                f"{folder}/dask-{name}",
            ),
        ]
        job.start(name, worker, f"worker-{name}.log", DASK)
    extra = {**DASK, "SCHEDULER": f"tcp://{job.head}:8786", "MASTER_ADDR": job.head}
    return [job.start(job.names[0], job.command(), "driver.log", extra)]


def spark(job: Job) -> list[Process]:
    """TorchDistributor on a standalone cluster: the driver's log, and the streams of each executor."""
    extra = {
        "SPARK_HOME": str(next(job.python.parent.parent.glob("lib/python*/site-packages/pyspark"))),
        "PYSPARK_PYTHON": str(job.python),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    binary = f"{extra['SPARK_HOME']}/bin"
    master = f"spark://{job.head}:7077"
    started = [f"{binary}/spark-class", "org.apache.spark.deploy.master.Master"]
    started += ["--host", job.head, "--port", "7077", "--webui-port", "8080"]
    job.hosts.run(job.names[0], started, job.folder.parent / "master.out", extra)
    for name in job.names:
        work = f"{job.logs}/{name}"
        worker = [
            *(f"{binary}/spark-class", "org.apache.spark.deploy.worker.Worker"),
            *("--host", job.hosts.address[name], "--cores", str(job.per_host), "--memory", "700M"),
            *("--work-dir", work, master),
        ]
        own = {**extra, "SPARK_LOCAL_IP": job.hosts.address[name]}
        job.hosts.run(name, worker, job.folder.parent / f"worker-{name}.out", own)
    settings = [word for line in SPARK for word in ("--conf", line)]
    driver = [f"{binary}/spark-submit", "--master", master, *settings, "train.py", *job.arguments]
    own = {**extra, "SPARK_LOCAL_IP": job.head}
    return [
        job.start(
            job.names[0], ["sh", "-c", f"sleep 6; exec {' '.join(driver)}"], "driver.log", own
        )
    ]


def _torchruns(job: Job) -> list[tuple[str, str]]:
    return [(name, " ".join(torchrun_command(job, node))) for node, name in enumerate(job.names)]


def _group(job: Job) -> dict[str, str]:
    return {"WORLD_SIZE": str(job.world), "MASTER_ADDR": job.head, "MASTER_PORT": "29500"}
