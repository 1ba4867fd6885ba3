"""Files in folders that belong to somebody else: no trap leads anywhere, and nothing waits."""

import os
import socket
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rerail.assistant.cli.plot_file import write_plot
from rerail.assistant.watch.evidence import Evidence, _take, allowed_logs, fill
from rerail.assistant.watch.progress import step_of_live_logs
from rerail.domain.job import JobEvent, JobRef
from rerail.errors import RecoveryError
from rerail.log_parsers.sources import discover
from rerail.recovery import spool
from rerail.recovery.checkpoints import find_checkpoints, is_intact
from rerail.recovery.job_file import JobFile
from rerail.recovery.job_file_program import main as job_file_program
from rerail.recovery.mitigation.orders import write_order
from rerail.recovery.restart_file import Restart, order, read_restart
from rerail.recovery.safe_files import write_file
from rerail.tools.clusters.slurm_read import JobFiles

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
NOBODY = 65534


@pytest.fixture
def own(tmp_path):
    """A file of the daemon's that no user may change."""
    path = tmp_path / "approval.key"
    path.write_text("secret")
    path.chmod(0o600)
    return path


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "job"
    made.mkdir()
    return made


def untouched(path):
    return path.read_text() == "secret" and stat.S_IMODE(path.stat().st_mode) == 0o600


ORDERS = {
    "restart.json": lambda path: order(JobFile(path), Restart("c", 1)),
    "micro_batches.json": lambda path: write_order(JobFile(path), [1, 1], "P-1"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_link_planted_under_any_name_leads_to_no_file_of_the_daemon(folder, own, name):
    # The name that was used before: .restart.json.<pid>
    for trap in (f".{name}.{os.getpid()}", f".{name}", f"{name}.tmp"):
        (folder / trap).symlink_to(own)
    ORDERS[name](folder / name)
    assert untouched(own) and (folder / name).is_file() and not (folder / name).is_symlink()


@pytest.mark.parametrize("name", ORDERS)
def test_a_link_in_place_of_the_file_is_not_read_and_not_written_through(folder, own, name):
    (folder / name).symlink_to(own)
    with pytest.raises(RecoveryError, match="is a link"):
        ORDERS[name](folder / name)
    assert untouched(own)


@pytest.mark.parametrize("name", ORDERS)
def test_a_pipe_in_place_of_the_file_keeps_nobody_waiting(folder, name):
    os.mkfifo(folder / name)
    with pytest.raises(RecoveryError, match="pipe"):
        ORDERS[name](folder / name)


@needs_root
@pytest.mark.parametrize("name", ORDERS)
def test_a_folder_that_is_not_the_job_users_is_refused(folder, tmp_path, own, name):
    (folder / "run").symlink_to(tmp_path)  # the user swaps the folder for a link to the daemon's
    with pytest.raises(RecoveryError, match="belongs to root, not to nobody"):
        JobFile(folder / "run" / name, owner=NOBODY).write("{}")
    assert not (tmp_path / name).exists()


@needs_root
def test_what_is_written_lies_in_the_users_own_folder_and_can_be_read_by_the_job(folder):
    os.chown(folder, NOBODY, NOBODY)
    JobFile(folder / "restart.json", owner=NOBODY).write('{"step": 4}')
    assert stat.S_IMODE((folder / "restart.json").stat().st_mode) == 0o644
    assert read_restart(folder / "restart.json").step == 4
    assert [one.name for one in folder.iterdir()] == ["restart.json"]  # nothing is left beside it


@needs_root
def test_a_folder_that_the_daemon_may_not_write_is_said_before_anything_is_done(folder):
    os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o755)
    code = (
        "import os, sys; from pathlib import Path; from rerail.recovery.job_file import JobFile\n"
        "os.setgid(1); os.setuid(1)\n"
        "JobFile(Path(sys.argv[1]), owner=65534).check()"
    )
    for one in (folder, *folder.parents[:-2]):
        one.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "restart.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "Permission denied" in done.stderr and "cannot be written" not in done.stderr:
        pytest.skip("the interpreter of this machine is closed to other accounts")
    assert "cannot be written by daemon" in done.stderr


def test_the_program_that_writes_as_the_user_refuses_what_is_not_the_users(folder, own, capsys):
    path = folder / "restart.json"
    assert job_file_program(["read", str(path)]) == 3
    assert job_file_program(["write", "restart.json"]) == 2  # a place that depends on where it runs
    path.symlink_to(own)
    assert job_file_program(["read", str(path)]) == 1
    assert "secret" not in capsys.readouterr().out


def test_recovery_never_becomes_root_for_a_job(folder):
    file = JobFile(folder / "restart.json", owner=0, as_user=("sudo", "-n", "-u", "root"))
    with pytest.raises(RecoveryError, match="the job is root's"):
        file.write("{}")


@pytest.mark.parametrize("name", ["plot.svg", "plot.png"])
def test_a_plot_replaces_a_link_and_is_not_written_through_it(folder, own, name):
    if name.endswith("png"):
        pytest.importorskip("resvg_py")
    (folder / name).symlink_to(own)
    write_plot(folder / name, '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
    assert untouched(own) and not (folder / name).is_symlink()


def test_a_post_mortem_is_written_through_no_planted_name(folder, own):
    from rerail.recovery.safe_files import write_file

    (folder / f".pm.md.{os.getpid()}").symlink_to(own)
    (folder / "pm.md").symlink_to(own)
    write_file(folder / "pm.md", b"# what happened\n")
    assert untouched(own) and (folder / "pm.md").read_text() == "# what happened\n"


# ---------------------------------------------------------------- what is read


@pytest.fixture
def traps(folder, own):
    """One of each that a user may put where a log is expected."""
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "dead").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder / "loop")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "socket"))
    server.close()
    with (folder / "hole").open("wb") as hole:
        hole.truncate(1 << 40)
    (folder / "zero").symlink_to("/dev/zero")
    return [folder / one for one in ("pipe", "folder", "dead", "loop", "socket", "hole", "zero")]


def test_no_trap_in_place_of_a_log_is_read_or_waited_for(traps, tmp_path):
    into = tmp_path / "evidence"
    into.mkdir()
    found = Evidence()
    for one in traps:
        _take(one, into, os.geteuid(), found)
    assert list(into.iterdir()) == [] and len(found.problems) == len(traps)
    assert step_of_live_logs([one for one in traps if one.name != "hole"], os.geteuid()) is None


@needs_root
def test_a_link_to_another_accounts_file_is_not_read(folder, own, tmp_path):
    (folder / "out").symlink_to(own)
    found = Evidence()
    _take(folder / "out", tmp_path, NOBODY, found)
    assert found.problems == [f"{folder / 'out'} belongs to root, not to nobody; it was not read"]


def test_a_large_log_is_read_as_it_was_opened_whatever_lies_there_later(
    folder, own, tmp_path, monkeypatch
):
    monkeypatch.setattr("rerail.assistant.watch.evidence.MOST_COPIED_BYTES", 10)
    (folder / "out").write_text("step 1 loss 1.0\n" * 4)
    into = tmp_path / "evidence"
    into.mkdir()
    found = Evidence()
    _take(folder / "out", into, os.geteuid(), found)
    (folder / "out").unlink()
    (folder / "out").symlink_to(own)
    assert (into / "out").read_text().startswith("step 1")
    found.close()
    assert list(into.iterdir()) == []


def test_a_pipe_within_a_folder_of_logs_is_passed_over(traps, folder):
    (folder / "train.log").write_text("KeyError: 'x'\n")
    for name in ("hole", "zero"):
        (folder / name).unlink()
    assert [one.name for one in discover([folder]).sources] == ["train.log"]


def test_no_trap_in_place_of_a_checkpoint_is_waited_for_or_unpacked(traps, folder):
    for one in traps:
        assert is_intact(one.rename(folder / f"{one.name}_7.pt")) is False or one.name == "folder"
    with zipfile.ZipFile(folder / "bomb_9.pt", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("archive/data.pkl", bytes(1 << 24))
    assert is_intact(folder / "bomb_9.pt") is False
    os.mkfifo(folder / "step_1.pt.sha256")
    (folder / "step_1.pt").write_bytes(b"x")
    assert is_intact(folder / "step_1.pt") is False
    assert not [one for one in find_checkpoints(str(folder / "*.pt")) if one.intact]


def event(**more):
    return JobEvent(
        job=JobRef(job="7", user=more.pop("user", None)),
        state="FAILED",
        time="2026-01-01T00:00:00Z",
        **{"source": "hook", **more},
    )


def test_the_sender_of_a_webhook_cannot_choose_what_is_read(tmp_path, own):
    inside = tmp_path / "logs"
    inside.mkdir()
    (inside / "link").symlink_to(own)
    for source in ("webhook", "webhook:grafana", "alertmanager"):
        told = event(source=source, logs=(str(own), f"{inside}/../approval.key", f"{inside}/link"))
        assert allowed_logs(told, [])[0] == [] and allowed_logs(told, [str(inside)])[0] == []
        assert len(allowed_logs(told, [str(inside)])[1]) == 3
        good = event(source=source, logs=(str(inside / "train.log"),))
        assert allowed_logs(good, [str(inside)]) == ([inside / "train.log"], [])
    assert allowed_logs(event(logs=(str(own),)), []) == ([own], [])  # an account of this host


def test_a_user_name_out_of_an_event_leads_out_of_no_folder():
    files = JobFiles(None, None, "/data/ann")
    assert fill("/home/{user}/x", event(user="../root"), files) == "/home//x"
    assert fill("/home/{user}/x", event(user="ann"), files) == "/home/ann/x"


# ---------------------------------------------------------------- the spool


def test_the_spool_holds_no_event_but_plain_files_of_those_who_may_leave_them(tmp_path, own):
    good = spool.leave(tmp_path / "spool", b"{}")
    place = tmp_path / "spool"
    os.mkfifo(place / "pipe.json")
    (place / "folder.json").mkdir()
    (place / "link.json").symlink_to(own)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(place / "socket.json"))
    server.close()
    found = spool.waiting(place)
    assert found.files == [Path(good)]
    assert sorted(one.name for one in found.strange) == [
        "folder.json",
        "link.json",
        "pipe.json",
        "socket.json",
    ]
    for one in found.strange:
        spool.set_aside(one)
    assert spool.waiting(place).strange == {} and untouched(own)
    assert len(list((place / spool.REJECTED).iterdir())) == 4


@needs_root
def test_an_event_of_an_account_that_may_leave_none_is_no_event(tmp_path):
    path = Path(spool.leave(tmp_path / "spool", b"{}"))
    os.chown(path, NOBODY, NOBODY)
    assert "belongs to nobody" in spool.waiting(tmp_path / "spool").strange[path]
    with pytest.raises(RecoveryError, match="belongs to nobody"):
        spool.read(path)
    # The spool is shared with a group, and its members may.
    os.chown(tmp_path / "spool", 0, NOBODY)
    (tmp_path / "spool").chmod(0o2770)
    assert spool.waiting(tmp_path / "spool").files == [path]


def test_a_link_in_place_of_the_folder_of_refused_events_moves_nothing_out(tmp_path):
    place = tmp_path / "spool"
    path = Path(spool.leave(place, b"{"))
    (tmp_path / "elsewhere").mkdir()
    (place / spool.REJECTED).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecoveryError, match="link"):
        spool.set_aside(path)
    assert path.exists() and list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_was_asked_for_takes_no_device_s_or_pipe_s_place(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="no plain file"):
        write_file(pipe, b"x")
    assert pipe.is_fifo()
    ours = Path(f"/dev/rerail-test-{os.getpid()}")
    try:
        with pytest.raises(OSError, match="/dev holds what the system needs"):
            write_file(ours, b"x")
    finally:
        ours.unlink(missing_ok=True)
    assert list(tmp_path.iterdir()) == [pipe]
