"""What would have told more, and how to get it: the half of an answer that saves the next night."""

from __future__ import annotations

from rerail.domain.diagnosis import Outcome, Status
from rerail.domain.evidence import Role, Stream
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.end_of_log import stop
from rerail.knowledge_base.causality.progress import LastStep
from rerail.knowledge_base.causality.several_jobs import jobs_in
from rerail.knowledge_base.causality.verdict import Verdict
from rerail.knowledge_base.taxonomy import leaves
from rerail.knowledge_base.waiting.engine import How, Waiting
from rerail.late_dataclass import dataclass
from rerail.log_parsers.sources import Problem

_LIBRARIES = {"NCCL": (b"NCCL",), "gloo": (b"gloo", b"Gloo"), "JAX": (b"jax", b"xla/")}
_HARDWARE = frozenset({"hardware_gpu", "gpu_memory_ecc", "nvlink_nvswitch"})
_LEAST_STEPS = 20
"""Step lines from which on something can be said of a course that was not judged."""
_AS_COLUMNS = "rerail detect FILE.csv, a table with the columns"


@dataclass(frozen=True, slots=True)
class Lack:
    """One piece of evidence that is not there."""

    what: str
    how_to_get: str


def missing(case: Case, verdict: Verdict) -> list[Lack]:
    """Return what is missing for a firmer verdict, most useful first."""
    found = [Lack(f"{p.subject}: {p.why}", p.hint or _by_hand(p)) for p in case.problems]
    found += _which_job(case)
    if verdict.waiting is None and any("ras_mismatch" in o.marks for o in case.observations):
        what = "whether the ranks that NCCL's report shows behind catch up"
        found.append(Lack(what, "ncclras -v >> FILE twice, ten seconds apart, and diagnose FILE"))
    if verdict.moving and verdict.last is not None:
        return [*found, *_what_became(verdict.last, verdict.late), *_not_judged(case)]
    if verdict.outcome is Outcome.NO_FAILURE:
        return found + _not_judged(case)
    leaf = leaves().get(verdict.leaf or "")
    kernel = any(o.line.stream is Stream.KERNEL for o in case.observations) or any(
        v.origin.stream is Stream.KERNEL for v in case.views
    )
    if verdict.dumps is not None:
        for unknown in verdict.dumps.unknown_ranks[:8]:
            what = f"the flight-recorder dump of rank {unknown.rank}: {unknown.why}"
            found.append(Lack(what, "copy the dump again, or ask that rank's node for its file"))
    elif verdict.waiting is not None and verdict.status is not Status.ESTABLISHED:
        silent = verdict.waiting.by(How.ABSENT)
        ranks = verdict.ranks or (silent.ranks if silent is not None else ())
        who = f"of rank {ranks[0]}" if ranks else "of every rank"
        found += _calls_of_each_rank(case) + _ranks_of_lines(verdict.waiting)
        found.append(
            Lack(f"the stack {who} while it hangs", "py-spy dump --native --pid PID on its node")
        )
    device = leaf is not None and (
        leaf.category in _HARDWARE or leaf.id.startswith(("cuda_", "nccl_"))
    )
    if not kernel and (
        device or verdict.leaf in ("process_killed_unexplained", "process_segfault", "node_crash")
    ):
        if verdict.nodes:
            node = verdict.nodes[0]
            found.append(
                Lack(
                    f"the kernel log of {node}",
                    f"ssh {node} dmesg -T, or journalctl -k, around the failure",
                )
            )
        else:
            who = (
                f"the node of rank {verdict.ranks[0]}" if verdict.ranks else "every node of the job"
            )
            found.append(
                Lack(f"the kernel log of {who}", "dmesg -T, or journalctl -k, around the failure")
            )
    if verdict.status is Status.HYPOTHESIS and any("stack" in o.marks for o in case.observations):
        how = "take the stacks of all ranks again, ten seconds later, behind the first ones"
        found.append(Lack("whether anything moves: one look does not tell a hang", how))
    if verdict.leaf == "process_exit_unexplained":
        found.append(
            Lack(
                "standard error of the process that exited",
                "torchrun --log-dir DIR --redirects 3, or srun -e",
            )
        )
    if verdict.outcome is Outcome.INCONCLUSIVE:
        found += _inconclusive(case, verdict)
    return found


def _not_judged(case: Case) -> list[Lack]:
    """Say of which step lines not all could be judged, for no word names their loss or nothing tells their time."""
    unnamed, untimed = [], []
    for view in case.views:
        rows = [*view.survey.steps, *view.survey.counted]
        if len(rows) < _LEAST_STEPS:
            continue
        if any(row.value is not None for row in rows) and all(row.loss is None for row in rows):
            unnamed.append(view.name)
        if not any(row.step_time or row.throughput or row.time for row in rows) and not any(
            view.wall_time(row.line) for row in rows[:_LEAST_STEPS]
        ):
            untimed.append(view.name)
    found = []
    if unnamed:
        why = "no word tells which number it is, only values that are not finite were looked for"
        found.append(
            Lack(f"the loss in {_first_of(unnamed)}: {why}", f"{_AS_COLUMNS} step and loss")
        )
    if untimed:
        what = f"how long the steps in {_first_of(untimed)} took: whether they became slower was not judged"
        found.append(Lack(what, f"{_AS_COLUMNS} step and step_time_s"))
    return found


def _first_of(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more files"


def _by_hand(problem: Problem) -> str:
    return "copy the file again" if problem.cut else f"look for {problem.subject} by hand"


def _which_job(case: Case) -> list[Lack]:
    jobs = jobs_in(case)
    if not jobs:
        return []
    named = ", ".join(jobs[:4]) + (", ..." if len(jobs) > 4 else "")
    what = f"which job is meant: the files are of {len(jobs)} ({named})"
    return [Lack(what, "diagnose the files of each job apart")]


def _what_became(last: LastStep, late: dict[int, int]) -> list[Lack]:
    """Say how to tell a run that goes on from one that hangs."""
    who = f"rank {min(late)} first" if late else "every rank"
    return [
        Lack(
            f"whether the run went on after {stop(last)}",
            "sacct -j JOB if it has ended, rerail diagnose --follow while it runs; if it hangs: "
            f"py-spy dump --native --pid PID of {who} into a folder, diagnose that, and the kernel logs",
        )
    ]


def _ranks_of_lines(waiting: Waiting) -> list[Lack]:
    """Say how the next run tells who gave up, where more lines say so than were kept and no label tells their ranks."""
    what = "which ranks gave up: no label tells it, and not all of their lines were kept, so nobody is named for his absence"
    how = "have the launcher label lines with their rank: torchrun --tee 3, srun --label"
    return [Lack(what, how)] if waiting.some_unknown else []


def _calls_of_each_rank(case: Case) -> list[Lack]:
    """Say how the next run tells which rank is missing where; it depends on the library."""
    libraries = {
        library
        for view in case.views
        for raw in view.survey.kept.values()
        for library, names in _LIBRARIES.items()
        if any(name in raw for name in names)
    }
    if "gloo" in libraries and "NCCL" not in libraries:
        how = "call torch.distributed.monitored_barrier() in front of it in the next run"
        return [Lack("which rank does not reach the collective", how)]
    if "JAX" in libraries and "NCCL" not in libraries:
        return [Lack("the logs of all tasks", "name the folder with the output of every process")]
    how = "set TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1, then pass the dump folder"
    return [Lack("NCCL flight-recorder dumps", how)]


def _inconclusive(case: Case, verdict: Verdict) -> list[Lack]:
    found = []
    if not case.with_role(Role.SUCCESS):
        found.append(
            Lack("how the job ended", "sacct -j JOB -o JobID,State,ExitCode,Reason,NodeList,End")
        )
    if verdict.last is not None:
        file, number = verdict.last.line.lies
        found.append(
            Lack(
                f"anything after step {verdict.last.step} (line {number} of {file})",
                "standard error of all ranks, the node's kernel log, py-spy dump of every rank if it still runs",
            )
        )
    else:
        found.append(
            Lack("output of the training program", "name the job's standard output and error files")
        )
    return found
