"""`rerail diagnose 4711 --follow`: new ranks' files appear, attempts and rotations are chapters, the end is told."""

import json
import os
import time
from types import SimpleNamespace

import pytest

from rerail.assistant import follow
from rerail.assistant.locate import live as live_module
from rerail.assistant.locate.job_name import job_name
from rerail.assistant.locate.live import LiveJob
from rerail.errors import ClusterError, EvidenceError

START = 1_700_000_000
STEPS = "".join(f"step {i} loss {2.0 - i / 1000:.3f}\n" for i in range(1, 30))
FAULT = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.fixture
def watch(asked, monkeypatch, capsys):
    """Follow job 7; between two looks the next of the given changes is made. Returns exit code and updates."""
    asked()

    def run(*changes, between=1, paths=(), **how):
        todo = iter(changes)
        monkeypatch.setattr(live_module, "LOOKS_BETWEEN", between)
        # The name in that module alone: a process that is waited for sleeps by the same clock.
        clock = SimpleNamespace(**{**vars(time), "sleep": lambda _: next(todo, lambda: None)()})
        monkeypatch.setattr(follow, "time", clock)
        with LiveJob(job_name("7"), 20.0, **how) as job:
            code = follow.follow_command(
                list(paths), json_output=True, quiet=False, polls=len(changes) + 3, job=job
            )
        told = capsys.readouterr()
        found, out = [], told.out
        while out.strip():
            body, end = json.JSONDecoder().raw_decode(out)
            found.append(body)
            out = out[end:].lstrip()
        return code, found, told.err

    return run


def write(slurm, name, text, mode="a"):
    def change():
        with (slurm.folder / name).open(mode) as out:
            out.write(text)

    return change


def changed(update):
    return " | ".join(update["update"]["changed"])


def test_the_file_of_a_rank_that_begins_later_is_found_and_its_fault_told(slurm, watch):
    code, found, _ = watch(write(slurm, "task-1.log", FAULT))
    assert [one["outcome"] for one in found] == ["no_failure", "failure"]
    assert found[1]["first_fault"]["file"] == str(slurm.folder / "task-1.log")
    assert "task-1.log +" in changed(found[1])
    assert found[1]["update"]["time"].endswith("Z")
    assert (found[1]["update"]["job"], found[1]["update"]["state"]) == ("7", "RUNNING")
    assert code == 0


def test_only_what_is_new_is_read_although_the_job_is_looked_for_again(slurm, watch, monkeypatch):
    from rerail.log_parsers import following

    taken, whole = [], following.FollowedFile._take
    monkeypatch.setattr(
        following.FollowedFile,
        "_take",
        lambda self, block: (taken.append(block), whole(self, block)),
    )
    watch(write(slurm, "task-0.log", "step 30 loss 1.9\n"), lambda: None)
    assert [block.decode() for block in taken if b"step" in block] == [STEPS, "step 30 loss 1.9\n"]


def test_the_end_of_the_job_is_told_and_what_it_wrote_last_is_read(slurm, watch):
    def ends():
        slurm.states[-1] = "FAILED"

    # Written when the scheduler has said so already, as a shared file system shows it.
    code, found, _ = watch(ends, write(slurm, "task-1.log", FAULT))
    assert "job 7 has ended: FAILED" in changed(found[-1])
    assert found[-1]["failure_type"] == "cuda_oom"
    assert "was RUNNING" in " ".join(map(changed, found))
    assert code == 0


def test_a_job_that_has_ended_is_told_at_once(slurm, watch):
    slurm.states = ["COMPLETED"]
    _, found, _ = watch()
    assert len(found) == 1
    assert "job 7 has ended: COMPLETED" in changed(found[0])


def test_a_requeued_job_is_followed_into_its_next_attempt(slurm, watch):
    write(slurm, "task-1.log", FAULT)()

    def fails():
        slurm.states = ["NODE_FAIL", "PENDING"]

    def again():
        slurm.states = ["NODE_FAIL", "RUNNING"]
        for name in ("task-0.log", "slurm-7.out"):
            write(slurm, name, STEPS, mode="w")()
        os.utime(slurm.folder / "task-1.log", (START + 400, START + 400))

    code, found, _ = watch(fails, again, lambda: None)
    told = " | ".join(map(changed, found))
    assert "has ended" not in told
    assert "attempt 1 of job 7 began: a new chapter" in told
    assert (found[0]["outcome"], found[-1]["outcome"]) == ("failure", "no_failure")
    assert found[-1]["update"]["attempt"] == 1
    assert code == 3


def test_a_log_that_is_truncated_or_rotated_begins_a_new_chapter(slurm, watch):
    write(slurm, "task-0.log", FAULT)()

    def rotate():
        (slurm.folder / "task-0.log").rename(slurm.folder / "task-0.log.1")
        write(slurm, "task-0.log", STEPS)()

    _, found, err = watch(rotate)
    assert [one["outcome"] for one in found] == ["failure", "no_failure"]
    assert "task-0.log was rotated" in err
    write(slurm, "task-0.log", FAULT)()
    _, found, err = watch(write(slurm, "task-0.log", STEPS[:200], mode="w"), between=9)
    assert [one["outcome"] for one in found] == ["failure", "no_failure"]
    assert "task-0.log was truncated" in err


def test_a_scheduler_that_is_away_for_a_while_does_not_end_the_watch(slurm, watch):
    def away():
        slurm.broken = ClusterError("Unable to contact slurm controller", recoverable=True)

    _, found, err = watch(away, write(slurm, "task-0.log", FAULT))
    assert "Unable to contact slurm controller; what was found is followed on" in err
    assert err.count("Unable to contact") == 1
    assert found[-1]["failure_type"] == "cuda_oom"


def test_a_job_that_waits_is_waited_for_and_an_unknown_one_is_not(slurm, watch):
    slurm.states = ["PENDING"]

    def starts():
        slurm.states = ["RUNNING"]

    _, found, err = watch(starts)
    assert "waits and has not started" in err
    assert found[0]["update"]["state"] == "RUNNING"
    slurm.broken = ClusterError("Invalid job id specified")
    with pytest.raises((EvidenceError, ClusterError)):
        watch()


def test_the_numbers_of_a_live_job_are_judged_as_they_come(slurm, watch):
    steps = "".join(f"step {i} loss {2 - i / 100:.3f} step_time 0.5\n" for i in range(1, 60))
    nan = "".join(f"step {i} loss nan step_time 0.5\n" for i in range(60, 80))
    write(slurm, "task-0.log", steps, mode="w")()
    _, found, _ = watch(write(slurm, "task-0.log", nan))
    assert [one["failure_type"] for one in found] == ["no_failure", "loss_nan"]


def test_further_files_are_followed_beside_the_job(slurm, watch, tmp_path_factory):
    kernel = tmp_path_factory.mktemp("k") / "dmesg-n1.txt"
    kernel.write_text("[   10.0] booted\n")
    xid = "[ 9000.0] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.\n"
    _, found, _ = watch(lambda: kernel.write_text(kernel.read_text() + xid), paths=[str(kernel)])
    assert found[-1]["failure_type"] == "gpu_fallen_off_bus"


def test_nothing_stays_behind(slurm, watch, monkeypatch, tmp_path_factory):
    place = tmp_path_factory.mktemp("tmp")
    monkeypatch.setattr("tempfile.tempdir", str(place))
    before = len(os.listdir("/proc/self/fd"))
    watch(lambda: None, lambda: None, lambda: None)
    assert list(place.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) <= before
