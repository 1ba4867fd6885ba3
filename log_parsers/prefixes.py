"""What the front of a log line says about its origin: rank, node, process, time, program.

Launchers, schedulers and log collectors each put their own label in front, and they stack:
`3: [rank3]:[E1122 06:40:00.5 ProcessGroupNCCL.cpp:607] ...`. Labels are peeled off one by one; an
inner label knows better than an outer one, so `[rank37]:` behind srun's `4: ` wins.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

from rerail.domain.evidence import LogLine, Stream
from rerail.log_parsers.timestamps import Stamp, find_stamp

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,80}[A-Za-z0-9])?"
# Words that end in a digit or hold a dash and stand before a colon without being a host.
_NOT_HOST = re.compile(
    r"(?i)^(?:epoch|step|iter(?:ation)?|batch|layer|block|stage|fold|round|phase|seed|gpu|cuda|rank|"
    r"local_rank|device|worker|thread|process|proc|pid|task|level|v|version|line|frame|ep|lr|run|trial|test|"
    r"part|chunk|shard|bucket|group|node|host|top|acc|loss|f|h|l|t|p|x|y|q|utf|sha|md|fp|bf|int|float|"
    r"e|hop|block|conv|python|cu|nccl|nvidia|torch|error|exit|code|s5cmd)[-_]?\d*$"
)
# What pdsh and DeepSpeed's hostfile call hosts: gpu003, node12 is a counter, node-12 and node012 are hosts.
_COUNTED_HOST = re.compile(
    r"^(?:gpu(?:\d{3,}|0[1-9])|(?:node|host|worker)(?:-\d{1,4}|\d{3,}|0[1-9]))$"
)
_LABELS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("mpi", re.compile(r"\[(?P<job>\d+),(?P<rank>\d+)\]<(?:stdout|stderr)>:")),
    # Open MPI 5 with the name of the job or of the host; SageMaker; Horovod without MPI.
    (
        "mpi",
        re.compile(
            r"\[(?:[\w.-]{1,80}@)?(?P<job>\d+),(?P<rank>\d+)\](?:\[(?P<node>"
            + _HOST
            + r"):\d{1,8}\])?<(?:stdout|stderr)>:"
        ),
    ),
    (
        "mpi",
        re.compile(r"\[\d+,mpirank:(?P<rank>\d+),(?P<node>" + _HOST + r")\]<(?:stdout|stderr)>:"),
    ),
    ("mpi", re.compile(r"\[(?P<rank>\d{1,6})\]<(?:stdout|stderr)>:")),
    ("rank", re.compile(r"\[[Rr]ank:? ?(?P<rank>\d{1,6})\]:?")),
    ("rank", re.compile(r"\[RANK ?(?P<rank>\d{1,6})\]:?")),
    (
        "rank",
        re.compile(
            r"\[(?:RANK|[Rr]ank)[ :=]? ?(?P<rank>\d{1,6})(?: ?/ ?\d{1,6})?"
            r"(?: ?[|,;@ ] ?(?:(?:on )?(?:node|host)(?:name)?[ =:] ?(?P<node>"
            + _HOST
            + r")|[^\]]{1,40}))?\]:?"
        ),
    ),
    (
        "rank",
        re.compile(
            r"\[(?:node|host)(?:name)?[ =:] ?(?P<node>" + _HOST + r") ?[|,;/ ] ?"
            r"(?:RANK|[Rr]ank)[ :=]? ?(?P<rank>\d{1,6})[^\]]{0,40}\]:?"
        ),
    ),
    ("rank", re.compile(r"(?:RANK|[Rr]ank)[=:] ?(?P<rank>\d{1,6})(?=[\s,|])[,|]?")),
    ("rank", re.compile(r"(?:RANK|[Rr]ank)[ _]?(?P<rank>\d{1,6}) ?[|>](?=\s)")),
    ("rank", re.compile(r"\[r(?P<rank>\d{1,6})\]:?(?=\s)")),
    ("host", re.compile(r"(?:host|node|hostname)=(?P<node>" + _HOST + r")(?=[\s,|])[,|]?")),
    # A level, and a logger's name, in front of a rank.
    (
        "level",
        re.compile(
            r"\[?(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL)\]?(?:[ :|-]{1,3}[\w.]{1,60})?[ :|-]{1,3}"
            r"(?=\[?(?:[Rr]ank|RANK|GPU|gpu)[\[ :=]?\d)"
        ),
    ),
    ("device", re.compile(r"\[(?:GPU|gpu|cuda|CUDA)[ :_-]?(?P<local>\d{1,2})\]:?")),
    ("device", re.compile(r"(?:GPU|gpu) ?\[(?P<local>\d{1,2})\]:?")),
    ("rank", re.compile(r"(?:RANK|[Rr]ank)[ _]?(?P<rank>\d{1,6})(?:\]|:)(?=\s)")),
    ("rank", re.compile(r"\((?:[Rr]ank)[ =:]?(?P<rank>\d{1,6})\):?")),
    # What container runtimes and log exports wrap around a line; Google's comes with the pod.
    (
        "wrapped",
        re.compile(
            r'\{(?:"(?:stream|time|timestamp|ts|level|severity|logtag)": ?"[^"]{0,60}", ?){0,4}'
            r'"(?:log|message|msg|line|textPayload)": ?"'
        ),
    ),
    (
        "wrapped",
        re.compile(
            r'\{"insertId":(?:.{1,1500}?"pod_name": ?"(?P<node>[^"]{1,120})")?.{1,1500}?"textPayload": ?"'
        ),
    ),
    # stern: pod and container. torchx: role and replica, and its process.
    (
        "pod",
        re.compile(
            r"(?=[a-z])(?P<node>(?=[a-z0-9.-]{0,120}\d)[a-z][a-z0-9.]{0,60}-[a-z0-9.-]{1,100}) [a-z][a-z0-9-]{0,60} "
            r"(?=\[(?:[Rr]ank|RANK|default)[ :=]?\d|Traceback \(most|  File \"|[A-Za-z_.]{0,80}(?:Error|Exception): |"
            r"[EWIF]\d{4} \d\d:)"
        ),
    ),
    (
        "level",
        re.compile(
            r"(?=[a-z])[\w.-]{1,60}/\d{1,5} (?:\[\d{1,5}\]:|(?=\[(?:default|[Rr]ank|RANK)[ :=]?\d))"
        ),
    ),
    # A logger's name and level between the time and a rank.
    (
        "level",
        re.compile(
            r"- (?:[\w.]{1,60} - )?(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL) - (?=\[?(?:[Rr]ank|RANK)[\[ :=]?\d)"
        ),
    ),
    ("level", re.compile(r"- (?=\[(?:[Rr]ank|RANK)[ :=]?\d)")),
    # Composer: rank, process, thread. ESPnet: host and rank of all, in front of the time. OLMo: host and local rank.
    ("rank", re.compile(r"(?=[a-z])rank(?P<rank>\d{1,6})\[(?P<pid>\d{1,8})\]\[[\w-]{1,60}\]: ?")),
    (
        "host",
        re.compile(
            r"\[(?!(?i:epoch|step|iter|batch|train|val|eval|test|rank))(?P<node>"
            + _HOST
            + r"):(?P<rank>\d{1,5})/\d{1,5}\](?= \d{4}-\d\d-\d\d[ T])"
        ),
    ),
    (
        "host",
        re.compile(
            r"(?=[a-z])(?P<node>"
            + _HOST
            + r"):(?P<local>\d{1,2})\s{1,8}[\w.]{1,60}:\d{1,5}\s{1,8}(?:INFO|WARNING|ERROR|CRITICAL|DEBUG)\s"
        ),
    ),
    # PALS and Cray's launcher: host and rank. kail: namespace, pod and container. RFC 5424.
    (
        "rank",
        re.compile(
            r"(?=[a-z])(?P<node>(?:x\d{3,5}c\d{1,2}s\d{1,2}b\d{1,2}n\d{1,2}|nid\d{5,6})(?:\.[\w.-]{1,80})?) "
            r"(?P<rank>\d{1,6}): "
        ),
    ),
    (
        "pod",
        re.compile(
            r"(?=[a-z])[a-z0-9-]{1,60}/(?P<node>[a-z0-9][a-z0-9.-]{1,100})\[[a-z0-9-]{1,60}\]: "
        ),
    ),
    (
        "pod",
        re.compile(
            r"<\d{1,3}>1 \d{4}-\d\d-\d\dT[\d:.+Z-]{8,32} (?P<node>"
            + _HOST
            + r") [\w./-]{1,48} (?:-|\d{1,8}) (?:-|\S{1,32}) (?:-|\[[^\]]{1,200}\]) ?"
        ),
    ),
    # What Open MPI puts in front of its own words.
    (
        "ompi",
        re.compile(
            r"\[(?P<node>"
            + _HOST
            + r"):(?P<pid>\d{1,8})\](?= (?:\*\*\* |Signal|Failing at|\[ ?\d|mca_|\d+ more process|Set MCA|"
            r"P(?:MIX|RTE)|ORTE))"
        ),
    ),
    # The number of a line in a viewer, and the service of docker compose, in front of a rank.
    ("level", re.compile(r"\[\d{1,9}\] ?(?=\[(?:[Rr]ank|RANK|default)[ :=]?\d)")),
    (
        "level",
        re.compile(
            r"(?=[a-z])[\w.-]{1,60}+ {1,20}\| (?=\[(?:[Rr]ank|RANK|default)[ :=]?\d|[\w.-]{1,80}:\d{1,8}:\d{1,8} \[-?\d)"
        ),
    ),
    # Cray MPICH: rank, job, date, sometimes an unknown, host.
    (
        "rank",
        re.compile(
            r"MPICH ERROR \[Rank (?P<rank>\d{1,6})\](?: \[[^\]]{1,60}\]){1,3} \[(?P<node>"
            + _HOST
            + r")\] - "
        ),
    ),
    ("local", re.compile(r"\[default(?P<local>\d{1,3})\]:?")),
    ("local", re.compile(r"\[(?:trainer|worker|agent|node)(?P<local>\d{1,3})\]:")),
    # With two numbers: which is the rank depends on the template that a site gives torchrun.
    ("level", re.compile(r"\[(?:default|trainer|worker|agent|node)\d{1,3}\|\d{1,6}\]:")),
    ("ucx", re.compile(r"\[(?P<node>" + _HOST + r"):(?P<pid>\d{1,8}):\d+:\d+\]")),
    ("pod", re.compile(r"\[pod/(?P<node>[^\]/\s]+)(?:/[^\]\s]*)?\]")),
    ("pod", re.compile(r"\[pod\]")),
    # Determined: the short id of the container, the rank, two bars.
    ("pod", re.compile(r"[0-9a-f]{8} (?=(?:\[rank=\d{1,6}\] )?\|\| )")),
    ("pod", re.compile(r"std(?:out|err) [FP] ")),  # the container runtime's log files
    ("host", re.compile(r"\[(?:host|node|pod) (?P<node>" + _HOST + r")\]")),
    (
        "kernelhost",
        re.compile(
            r"\[(?P<node>" + _HOST + r") (?:dmesg|kern(?:el)?|syslog|journal|kmsg|serial|console)\]"
        ),
    ),
    (
        "kernelhost",
        re.compile(
            r"\[(?:dmesg|kern(?:el)?|kmsg|serial|console)[ :](?P<node>(?=[^\]]*\d)[A-Za-z][\w.-]{1,80})\]"
        ),
    ),
    (
        "toolhost",
        re.compile(
            r"\[(?P<node>"
            + _HOST
            + r") (?:dcgm|nvidia-smi|ipmi|bmc|sel|slurmd|kubelet|ibdiag\w*|(?:pro|epi)log|nhc|health-?check)\]"
        ),
    ),
    (
        "host",
        re.compile(
            r"\[(?P<node>[a-z][a-z0-9]*(?:-[a-z0-9]+)+-?\d+[a-z0-9-]*|[a-z]+\d+[a-z]?)\](?=\s|\[[Rr]ank|\[default)"
        ),
    ),
    ("bracket", re.compile(r"\[(?P<node>[a-z]+\d*-\d)\](?=\s|\[[Rr]ank)")),
    # A bare host between the time and the rank; a word that is none is passed over.
    (
        "bare",
        re.compile(
            r"(?=[a-z])(?P<node>(?=[\w.-]{0,80}\d)[a-z][\w.-]{1,80}) {1,4}(?=\[(?:[Rr]ank|RANK)[ :=]?\d{1,6}\])"
        ),
    ),
    ("level", re.compile(r"(?=[a-z])[\w.-]{1,80} {1,4}(?=\[(?:[Rr]ank|RANK)[ :=]?\d{1,6}\]:)")),
    (
        "rank",
        re.compile(
            r"(?:INFO|WARNING|ERROR|CRITICAL|DEBUG)\s{1,8}\[[\w.]{1,60}:\d{1,6}, rank=(?P<rank>\d{1,6})\]"
        ),
    ),
    (
        "ray",
        re.compile(
            r"\((?:(?P<actor>[A-Za-z_][\w.:\[\]-]{0,80}?)(?:, rank=(?P<rank>\d+))?,? )?pid=(?P<pid>\d+)"
            r"(?:, ip=(?P<node>[^,)\s]+))?(?:, [^)]{0,80})?\)"
        ),
    ),
    ("ray", re.compile(r"\(raylet, ip=(?P<node>[^,)\s]+)\)")),
    ("slurm", re.compile(r"slurm(?:stepd|d|ctld)-(?P<node>" + _HOST + r"): ")),
    # Not the hours of a bare clock.
    ("task", re.compile(r"(?P<rank>\d{1,6}):(?!\d\d:\d\d) ?")),
    # Behind it torchrun's table has nothing.
    ("task", re.compile(r"\[(?P<rank>\d{1,6})\]:(?= {0,12}\S)(?! {0,3}https?:)")),
)
# What a logger writes before the rank: brackets, levels, modules and the signs between them.
_LOGGER_HEAD = re.compile(
    r"(?:(?>\[(?!(?:[Rr]ank|RANK|PG))[^\][]{1,70}+(?<!ank)\]|"
    r"(?:TRACE|DEBUG|INFO|SUCCESS|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b|"
    r"[\w<>]{1,60}+(?:[.:][\w<>]{1,60}+){1,6}+|[|:-])\s{0,8}+){1,8}+"
    r"(?=\[(?:[Rr]ank|RANK)[ :=]{0,2}\d{1,6}\]|(?<=[|] )(?:[Rr]ank|RANK)[ _]?\d{1,6} ?[|])"
)
_HEAD_BEGINS = frozenset("[|-TDISWECF")
_RANK_AHEAD = ("[rank", "[Rank", "[RANK", "| rank", "| Rank")


def _begins(pattern: str) -> str:
    """Return the sign, or the small letters, that a label begins with, or "" for anything."""
    if pattern.startswith("(?=[a-z])"):
        return string.ascii_lowercase
    if pattern.startswith(("- ", "MPICH", "<")):
        return pattern[0]
    return pattern[1] if pattern[:2] in (r"\[", r"\(", r"\{") and pattern[2] != "?" else ""


# Most labels begin with a bracket; what does not begin so need not be held against them.
_BY_FIRST = {
    first: [
        label
        for label in _LABELS
        if not (begins := _begins(label[1].pattern)) or (first and first in begins)
    ]
    for first in ("", *"[({-M<", *string.ascii_lowercase)
}
_NCCL = re.compile(
    r"(?P<node>" + _HOST + r"):(?P<pid>\d{1,8}):(?P<tid>\d{1,8}) \[(?P<dev>-?\d{1,3})\] "
)
_NCCL_NODEV = re.compile(
    r"(?P<node>" + _HOST + r"):(?P<pid>\d{1,8}):(?P<tid>\d{1,8}) (?=NCCL |RCCL )"
)
_PDSH = re.compile(
    r"(?P<node>(?=[A-Za-z0-9.-]*[0-9])(?=[A-Za-z0-9.-]*[A-Za-z])[a-z0-9][A-Za-z0-9.-]{1,80}|"
    r"(?:\d{1,3}\.){3}\d{1,3}): "
)
_WORD_IN_FRONT = re.compile(r"(?P<node>[A-Za-z][\w.-]{1,80}): ")
_SYSLOG_HOST = re.compile(
    r"(?P<node>"
    + _HOST
    + r") (?=(?:kernel|systemd|slurmd|slurmctld|slurmstepd|nvidia|nv-|dockerd|containerd|kubelet|sshd|CRON|"
    r"nhc|dcgm|gpud|munged|opensm|rasdaemon|mcelog|fabricmanager)(?:\[\d+\])?: )"
    # A program that is not known must carry its process id, else any two words would be a host.
    r"|(?P<node2>(?=[\w.-]*\d)[a-z][\w.-]{1,80}) [a-z][\w.-]{1,30}\[(?P<pid>\d{1,8})\]: "
)
# RFC 3164: behind its own kind of time stand a host and a program. A logger's asctime may be the same, with a
# model or a checkpoint behind it: the program must be a service (Taskcluster's among them), carry its process id,
# or follow a counted host.
_SYSLOG_TIME = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?Z? ")
_SYSLOG_ANY = re.compile(
    r"(?P<node>(?=[\w.-]*\d)[a-z][\w.-]{1,80}) (?:(?P<service>docker|podman|crio|rsyslogd|chronyd|ntpd|auditd|"
    r"smartd|multipathd|earlyoom|sudo|su|cron|start-worker|generic-worker|systemd-[a-z]{1,20}|nvidia-[a-z-]{1,30})|"
    r"[a-z][\w./-]{1,40})(?:\[(?P<pid>\d{1,8})\])?: "
)
# Devices that kernel messages name where a collector would put a host.
_DEVICE = re.compile(
    r"(?i)^(?:info|warn(?:ing)?|error|debug|critical|fatal|trace|notice|success)$|"
    r"(?i:^(?:nvidia(?:-nvswitch)?|nvswitch|nvme|mlx[45]|eth|ens|enp|eno|ib|bond|md|dm-|sd[a-z]|cpu|irq|"
    r"efa|docker|veth|cali|br|virbr|loop|hfi1_|bnxt_|roce|rdmap)[\w.-]{0,12}$)"
)
_KERNEL = re.compile(
    r"(?:^|[\s\]])(?:kernel: |NVRM: |nvidia-nvswitch\d|mlx5_core |pcieport |NVRM |"
    r"Out of memory: |Memory cgroup out of memory|"
    r"oom-kill:|[\w./:-]+ invoked oom-killer|watchdog: BUG|rcu: INFO|INFO: task |INFO: rcu_|"
    r"Kernel panic|mce: |LustreError: |"
    r"Lustre: |nfs: server|EXT4-fs|XFS \(|Buffer I/O error|nvme nvme|blk_update_request|EDAC |"
    r"\{\d+\}\[Hardware Error\]|GHES|nvidia-peermem)"
)
_SCHEDULER = re.compile(
    r"(?:^|[\s\]:])(?:slurmstepd(?:-[\w.-]+)?: |srun: |sbatch: |salloc: |"
    r"slurmctld(?:-[\w.-]+)?: |slurmd(?:-[\w.-]+)?: |scontrol: |scancel: |"
    r"mpirun |mpiexec |PRTE |=>> PBS)"
)
_AGENT = re.compile(
    r"torch[./]distributed[./](?:elastic|launcher|run|agent)|ChildFailedError|\[launch\.py:\d+|Killing subprocess|"
    r"torchrun|elastic_launch|deepspeed/launcher|Root Cause \(first observed"
)
_CONTAINER = re.compile(
    r"kubelet|kubectl|default-scheduler|BackOff|ImagePull|OOMKilled|nvidia-container-cli|enroot|pyxis|docker: |"
    r"Evicted|NodeNotReady|TaintManager|pytorchjob|PyTorchJob|BackoffLimitExceeded|apptainer|singularity|FailedScheduling"
)
_FABRIC = re.compile(r"NVSwitch|[Ff]abric ?[Mm]anager|nv-fabricmanager")


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of a file before its lines are read: from its path or its content."""

    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    pid: int | None = None
    stream: Stream | None = None
    attempt: int | None = None
    hosts: frozenset[str] = frozenset()
    """Words that a launcher puts in front of the lines of this file, and that are hosts by the file's own account."""


DEVICE = "g"
"""How a label begins that names a device and no local rank of a launcher."""
_COLLECTOR = frozenset({"pod", "host", "bracket", "bare"})
NOWHERE = Origin()
"""The origin of lines of which only the text is known."""


def parse_line(
    file: str, number: int, text: str, *, origin: Origin = NOWHERE, year: int
) -> LogLine:
    """Return `text`, already cleaned and redacted, as a LogLine with its origin and time."""
    rank, local, node, pid = origin.rank, origin.local_rank, origin.node, origin.pid
    label: list[str] = []
    at = 0
    stamp = find_stamp(text, year=year)
    kernel_label, outermost = False, True
    if origin.hosts and (word := _WORD_IN_FRONT.match(text)) and word["node"] in origin.hosts:
        node, at, outermost = word["node"], word.end(), False
        label.append(node)
    for _ in range(8):
        while at < len(text) and text[at] == " ":
            at += 1
        # A bracket or a level's letter may stand before the time; srun's `1: ` may not be lost with it.
        if stamp is not None and at <= stamp.start <= at + 3 and ":" not in text[at : stamp.start]:
            at = _behind_stamp(text, stamp.end)
            continue
        found = _peel(text, at, outermost, stamp)
        if found is None:
            break
        kind, match = found
        groups = match.groupdict()
        if groups.get("rank") is not None:
            rank = int(groups["rank"])
            label.append(f"r{rank}")
        if groups.get("local") is not None:
            local = int(groups["local"])
            label.append(f"{DEVICE if kind == 'device' else 'l'}{local}")
        if groups.get("node") or groups.get("node2"):
            node = groups.get("node") or groups["node2"]
            label.append(node)
        if groups.get("pid"):
            pid = int(groups["pid"])
            label.append(f"p{pid}")
        if kind == "ray" and groups.get("actor") and groups.get("rank") is None:
            inner = re.search(r"(?:Worker|rank|Rank|TP|DP)[_-]?(?:TP|DP|R)?(\d+)$", groups["actor"])
            if inner:
                rank = int(inner[1])
        # What a log collector puts in front says nothing of the program's own labels.
        outermost = outermost and kind in _COLLECTOR
        kernel_label = kernel_label or kind == "kernelhost"
        at = match.end()
    message = text[at:]
    stream = origin.stream or _stream(text, kernel_label)
    return LogLine(
        file=file,
        number=number,
        text=text,
        message=message,
        rank=rank,
        local_rank=local,
        node=node,
        pid=pid,
        time=stamp.seconds if stamp else None,
        clock=stamp.clock if stamp else None,
        stream=stream,
        label="/".join(label),
    )


def is_no_host(word: str) -> bool:
    """Tell whether a word in front of a colon is a counter, a level or a device, and no host."""
    return bool(_NOT_HOST.match(word) or _DEVICE.match(word))


def _behind_stamp(text: str, end: int) -> int:
    while end < len(text) and text[end] in "]:) ":
        end += 1
    return end


def _peel(
    text: str, at: int, outermost: bool, stamp: Stamp | None
) -> tuple[str, re.Match[str]] | None:
    """Match one label at an offset; srun's bare number counts only as the `outermost` label."""
    first = text[at : at + 1]
    if not first:
        return None
    for kind, pattern in _BY_FIRST.get(first, _BY_FIRST[""]):
        match = pattern.match(text, at)
        if not match or (kind == "task" and not outermost):
            continue
        if (
            kind == "bracket"
            and _NOT_HOST.match(match["node"])
            and not match["node"].startswith(("node-", "host-"))
        ):
            continue
        if (
            kind == "bare"
            and _NOT_HOST.match(match["node"])
            and not _COUNTED_HOST.match(match["node"])
        ):
            continue
        return kind, match
    for kind, pattern in (("nccl", _NCCL), ("nccl", _NCCL_NODEV)):
        match = pattern.match(text, at)
        if match:
            return kind, match
    if first in _HEAD_BEGINS and (match := _logger_head(text, at)):
        return "level", match
    match = _PDSH.match(text, at)
    if match and not _DEVICE.match(match["node"]):
        counted = at == 0 and _COUNTED_HOST.match(match["node"])
        if counted or not _NOT_HOST.match(match["node"]):
            return "pdsh", match
    match = _SYSLOG_HOST.match(text, at)
    if match is None or at == 0 or _DEVICE.match(match["node"] or match["node2"]):
        match = _behind_syslog(text, stamp.start, at) if stamp is not None else None
    return ("syslog", match) if match else None


def _behind_syslog(text: str, stamp: int, at: int) -> re.Match[str] | None:
    front = _SYSLOG_TIME.match(text, stamp)
    match = _SYSLOG_ANY.match(text, at) if front and front.end() == at else None
    if match is None:
        return None
    told, word = match["service"] or match["pid"], match["node"]
    if _COUNTED_HOST.match(word):
        # A worker may as well be a thread that logs.
        return match if told or not word.startswith("worker") else None
    return match if told and not is_no_host(word) else None


def _logger_head(text: str, at: int) -> re.Match[str] | None:
    head = text[at : at + 200]
    if not any(tag in head for tag in _RANK_AHEAD):
        return None
    match = _LOGGER_HEAD.match(text, at)
    # torch's own lines give the rank within a group there.
    return match if match and ".cpp:" not in match[0] else None


def _stream(text: str, kernel_label: bool) -> Stream:
    if kernel_label or _KERNEL.search(text):
        return Stream.KERNEL
    if _SCHEDULER.search(text):
        return Stream.SCHEDULER
    if _AGENT.search(text):
        return Stream.AGENT
    if _CONTAINER.search(text):
        return Stream.CONTAINER
    if _FABRIC.search(text):
        return Stream.FABRIC
    return Stream.TRAIN
