"""The evidence of a Slurm job, found by its number: only its user's plain files, one attempt apart from the others."""

import os
import threading
import time

import pytest

from rerail.assistant.locate import slurm as slurm_module
from rerail.assistant.locate.budget import Budget, TimeIsUp, mount_of
from rerail.assistant.locate.gather import gather
from rerail.assistant.locate.job_name import job_name
from rerail.assistant.locate.slurm import SlurmLocator
from rerail.assistant.pipeline import diagnose_paths
from rerail.errors import ClusterError, EvidenceError, UsageError
from rerail.recovery.site_policy import JobLayout, SitePolicy
from rerail.tools.clusters.slurm_outputs import SEPARATOR
from rerail.tools.clusters.slurm_read import SlurmReader

START = 1_700_000_000
FAULT = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
FELL = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4242, name=python, GPU has fallen off the bus."


class Recorded(SlurmReader):
    """Answers as Slurm 22.05 did for a job of two nodes, in the folder of a test."""

    def __init__(self, folder, attempts=1, ids=(), uid=None):
        super().__init__()
        self.folder, self.count, self.ids = folder, attempts, ids or [("7", "7", "FAILED")]
        self.uid = os.geteuid() if uid is None else uid
        self.wait = lambda argv: None

    def rows(self):
        for number in range(self.count):
            state = "FAILED" if number == self.count - 1 else "NODE_FAIL"
            start = START + 1000 * number
            yield f"7|{state}|1:0|n[1-2]|{start}|{start + 500}|{self.uid}"
            yield f"7.0|FAILED|1:0|n[1-2]|{start}|{start + 500}|{self.uid}"

    def _run(self, *argv):
        self.wait(argv)
        if argv[:2] == ("scontrol", "show") and argv[2] == "job":
            return f"JobId=7 JobName=x\n   WorkDir={self.folder}\n   StdOut={self.folder}/slurm-7.out\n"
        if argv[0] == "sacct" and "-X" in argv:
            return "".join("|".join(one) + "\n" for one in self.ids)
        if argv[0] == "sacct" and any("StdOut" in one for one in argv):
            raise ClusterError("Invalid field requested")
        if argv[0] == "sacct" and any("SubmitLine" in one for one in argv):
            row = f"7.0|7.0|n[1-2]|2||python||srun -o {self.folder}/task-%t.log --log-dir x python"
            return row.replace("|", SEPARATOR) + "\n"
        if argv[0] == "sacct":
            return "\n".join(self.rows()) + "\n"
        if argv[0] == "sinfo":
            return f"n1|idle|{START}|none\nn2|down*|{START + 501}|Not responding\n"
        return ""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "slurm-7.out").write_text("step 1 loss 2.0\n")
    (tmp_path / "task-0.log").write_text("step 1 loss 2.0\n")
    (tmp_path / "task-1.log").write_text(FAULT)
    for path in tmp_path.iterdir():
        os.utime(path, (START + 400, START + 400))
    return tmp_path


def look(folder, attempt=None, layout=None, seconds=20.0, **how):
    reader = how.pop("reader", None) or Recorded(folder, **how)
    policy = SitePolicy(jobs=layout or JobLayout())
    locator = SlurmLocator(reader, policy)
    slurm_module_locators = [("slurm", lambda: locator)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rerail.assistant.locate.locator.BUILT_IN", tuple(slurm_module_locators))
        return gather(job_name("7"), seconds, attempt)


def names(found):
    return [one.name for one in found.evidence.sources]


def why(found, word):
    return " ".join(f"{p.subject} {p.why}" for p in found.evidence.problems if word in p.subject)


def test_a_located_job_is_diagnosed_as_its_files_are_by_hand(job):
    with look(job) as found:
        located = diagnose_paths([], located=found.evidence).diagnosis
    by_hand = diagnose_paths(
        [job / "slurm-7.out", job / "task-0.log", job / "task-1.log"]
    ).diagnosis
    assert located.failure_type == by_hand.failure_type == "cuda_oom"
    assert located.first_fault.file == by_hand.first_fault.file == str(job / "task-1.log")
    assert located.first_fault.line == 1
    assert found.job == "7" and found.attempt == 0


def test_what_is_not_there_is_said_with_where_it_was_looked_for(job):
    (job / "task-0.log").unlink()
    with look(job) as found:
        pass
    assert "1 of 2 files are not there" in why(found, "output of step 0")
    assert str(job) in why(found, "flight-recorder dumps")
    assert "jobs.kernel_logs" in why(found, "kernel logs of n1, n2")


def test_places_of_libraries_are_looked_at(job):
    made = {
        "x/4_ab/attempt_0/1/stderr.log": FAULT,
        "nccl_trace_rank_1": "{}",
        "debug/stacks_20261120_234544.txt": "=== Rank 0: http://h:1/handler/dump_traceback? ===\n",
        "nccl-inspector-7/n1-pid3.log": "{}\n",
    }
    for name, text in made.items():
        (job / name).parent.mkdir(parents=True, exist_ok=True)
        (job / name).write_text(text)
    with look(job) as found:
        assert {str(job / name) for name in made} <= set(names(found))


def test_links_to_other_users_files_pipes_and_devices_are_not_read(job, tmp_path):
    (job / "task-1.log").unlink()
    (job / "task-1.log").symlink_to("/dev/zero")
    (job / "task-0.log").unlink()
    os.mkfifo(job / "task-0.log")
    with look(job) as found:
        assert not {str(job / "task-0.log"), str(job / "task-1.log")} & set(names(found))
    assert "a pipe" in why(found, "task-0.log")
    assert "a device" in why(found, "task-1.log")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_not_read_whoever_asks(job):
    secret = job / "secret"
    secret.write_text("root's own\n")
    (job / "task-1.log").unlink()
    (job / "task-1.log").symlink_to(secret)
    for name in ("slurm-7.out", "task-0.log"):
        os.chown(job / name, 12345, -1)
    with look(job, uid=12345) as found:
        assert str(job / "task-1.log") not in names(found)
        assert str(job / "task-0.log") in names(found)
    assert "belongs to" in why(found, "task-1.log")


def test_what_was_judged_is_what_is_read_although_the_name_is_swapped(job, tmp_path):
    with look(job) as found:
        (job / "task-1.log").unlink()
        (job / "task-1.log").write_text("something else\n")
        located = diagnose_paths([], located=found.evidence).diagnosis
    assert located.failure_type == "cuda_oom"


def test_attempts_of_a_requeued_job_are_kept_apart(job):
    os.utime(job / "task-1.log", (START + 1400, START + 1400))
    with look(job, attempts=2) as last:
        assert last.attempt == 1
        assert str(job / "task-1.log") in names(last)
        assert str(job / "task-0.log") not in names(last)
    assert "before attempt 1 began" in why(last, "task-0.log")
    assert "attempt 0 NODE_FAIL" in last.told[0]
    with look(job, attempt=0, attempts=2) as first:
        assert str(job / "task-0.log") in names(first)
        assert str(job / "task-1.log") not in names(first)
        said = diagnose_paths([], located=first.evidence).diagnosis
    assert "written again by attempt 1" in why(first, "task-1.log")
    assert said.failure_type == "node_fail_scheduler"
    with pytest.raises(UsageError, match="no attempt 5"):
        look(job, attempt=5, attempts=2)


def test_the_fuller_table_of_accounting_is_read_where_it_keeps_one(job):
    class Fuller(Recorded):
        def _run(self, *argv):
            if argv[0] == "sacct" and "-n" not in argv:
                rows = (
                    f"7|{state}|0:0|0:{n}\n7.0|{state}|1:0|\n"
                    for n, state in enumerate(("NODE_FAIL", "FAILED"))
                )
                return "JobIDRaw|State|ExitCode|DerivedExitCode\n" + "".join(rows)
            return super()._run(*argv)

    with look(job, attempt=1, reader=Fuller(job, attempts=2)) as found:
        (table,) = [
            one.path.read_text() for one in found.evidence.sources if "sacct -D" in one.name
        ]
    assert table == "JobIDRaw|State|ExitCode|DerivedExitCode\n7|FAILED|0:0|0:1\n7.0|FAILED|1:0|\n"


def test_an_array_and_a_heterogeneous_job_are_not_taken_for_one_job(job):
    array = [("7_1", "8", "COMPLETED"), ("7_2", "9", "FAILED"), ("7_3", "7", "FAILED")]
    with pytest.raises(UsageError, match="array of 3 tasks; 2 ended badly: 7_2, 7_3") as error:
        look(job, ids=array)
    assert error.value.hint == "rerail diagnose 7_2"
    with look(job, ids=[("7+0", "7", "FAILED"), ("7+1", "8", "CANCELLED")]) as found:
        assert "CANCELLED" in why(found, "job 7+1")


def test_kernel_lines_of_the_attempt_keep_their_numbers_and_others_are_left_out(job):
    at = time.strftime("%b %e %H:%M:%S", time.localtime(START + 300))
    before = time.strftime("%b %e %H:%M:%S", time.localtime(START - 90_000))
    log = job / "n2.kern"
    log.write_text(f"{before} n2 kernel: {FELL}\n{at} n2 kernel: {FELL}\n{at} n9 kernel: {FELL}\n")
    layout = JobLayout(kernel_logs=(str(job / "{node}.kern"),))
    with look(job, layout=layout, uid=4_000_000 if os.geteuid() == 0 else None) as found:
        pass
    if os.geteuid() != 0:
        assert "is no witness" in why(found, "n2.kern")
        return
    (kept,) = [one for one in found.evidence.sources if one.name == str(log)]
    assert (kept.origin.node, kept.size) == ("n2", len(f"\n{at} n2 kernel: {FELL}\n\n"))
    assert "is not there" in why(found, "kernel log of n1")


def test_a_file_system_that_hangs_costs_a_share_and_is_not_asked_again(job, monkeypatch):
    hung, asked, real = threading.Event(), [], os.stat

    def stat(path, *rest, **how):
        if threading.current_thread().name.startswith("locate") and "task-" in str(path):
            asked.append(path)
            hung.wait(300)
        return real(path, *rest, **how)

    monkeypatch.setattr(slurm_module.os, "stat", stat)
    monkeypatch.setattr("rerail.assistant.locate.budget.mount_of", lambda path: str(path)[-10:-5])
    began = time.monotonic()
    with look(job, seconds=4.0) as found:
        assert str(job / "slurm-7.out") in names(found)
    hung.set()
    assert time.monotonic() - began < 100
    assert len(asked) == 1
    assert "no answer within" in why(found, "task-0.log")
    assert "does not answer" in why(found, "task-1.log")


def test_a_scheduler_that_hangs_ends_the_search_and_says_so(job):
    reader, hung = Recorded(job), threading.Event()
    reader.wait = lambda argv: hung.wait(300)
    with pytest.raises(TimeIsUp, match=r"sacct -j 7: no answer within 0\.25 s"):
        look(job, reader=reader, seconds=1.0)
    hung.set()


def test_an_unknown_job_and_one_that_waits_are_missing_evidence(job):
    class Unknown(Recorded):
        def _run(self, *argv):
            return ""

    with pytest.raises(EvidenceError, match="Slurm knows no job 7"):
        look(job, reader=Unknown(job))

    class Waits(Recorded):
        def rows(self):
            yield f"7|PENDING|0:0|None assigned|Unknown|Unknown|{self.uid}"

    with pytest.raises(EvidenceError, match="has not started"):
        look(job, reader=Waits(job))


def test_a_budget_gives_nothing_once_it_is_used_up():
    now = [0.0]
    budget = Budget(10.0, clock=lambda: now[0])
    now[0] = 60.0  # what is loaded before the first question
    assert budget.call(lambda: 5, "x") == 5
    assert budget.share_s == 2.5
    now[0] = 71.0
    with pytest.raises(TimeIsUp, match="not asked"):
        budget.call(lambda: 5, "x")


def test_the_mount_of_a_path_is_found_without_asking_it():
    assert mount_of("/proc/self/anything") == "/proc"
    assert mount_of("/nowhere/at/all") == "/"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("4711", ("slurm", "4711")),
        ("4711_3", ("slurm", "4711_3")),
        ("4711+1", ("slurm", "4711+1")),
        ("slurm://4711", ("slurm", "4711")),
        ("k8s://ml/llm-ft", ("k8s", "ml/llm-ft")),
    ],
)
def test_names_of_jobs(text, known):
    name = job_name(text)
    assert (name.scheme, name.job) == known


@pytest.mark.parametrize("text", ["logs/", "4711.out", "./4711", "C:\\x", "a*b", "-", "47-11"])
def test_names_of_files(text):
    assert job_name(text) is None


def test_accounting_that_answers_with_something_else_does_not_answer(tmp_path):
    reader = Recorded(tmp_path, ids=[("<html>502 Bad Gateway", "ϡ\ufffd", "x")])
    with pytest.raises(ClusterError, match="no list of jobs") as refused:
        reader.shown_ids("4711")
    assert refused.value.exit_code == 75


class NoAccounting(Recorded):
    """accounting refuses or is away; the controller still knows the job, unless `queue` is empty."""

    def __init__(self, folder, said, *, away=False, queue="7|7|RUNNING\n"):
        super().__init__(folder)
        self.said, self.away, self.queue = said, away, queue

    def _run(self, *argv):
        if argv[0] == "sacct":
            raise ClusterError(f"sacct: error: {self.said}", recoverable=self.away)
        if argv[0] == "squeue" and "%i|%A|%T" in argv:
            return self.queue
        if argv[0] == "squeue" and "-O" in argv:
            return "0"
        if argv[0] == "squeue":
            return f"7|RUNNING|{self.uid}|n[1-2]\n" if self.queue else ""
        return super()._run(*argv)


@pytest.mark.parametrize(
    ("said", "away"),
    [
        ("Problem talking to the database: Access/permission denied", False),
        ("Problem talking to the database: Connection refused", True),
    ],
)
def test_where_accounting_refuses_the_controller_s_word_is_read_and_that_is_said(job, said, away):
    with look(job, reader=NoAccounting(job, said, away=away)) as found:
        assert str(job / "slurm-7.out") in names(found)
        told = [one for one in found.evidence.problems if one.subject == "accounting"]
    assert [said in one.why and "earlier starts" in one.why for one in told] == [True]


def test_who_is_known_to_nobody_is_told_by_accounting_s_own_refusal(job):
    with pytest.raises(EvidenceError, match="permission denied"):
        look(job, reader=NoAccounting(job, "Access/permission denied", queue=""))


def test_an_array_is_not_taken_for_its_last_task_where_accounting_refuses(job):
    queue = "7_0|8|RUNNING\n7_1|7|RUNNING\n"
    with pytest.raises(UsageError, match="array of 2 tasks"):
        look(job, reader=NoAccounting(job, "Access/permission denied", queue=queue))
