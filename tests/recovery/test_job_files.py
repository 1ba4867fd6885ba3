"""What recovery reads and writes beside a job: checkpoints and the restart file."""

import zipfile

import pytest

from rerail.errors import RecoveryError
from rerail.recovery.checkpoints import find_checkpoints, is_intact
from rerail.recovery.job_file import JobFile
from rerail.recovery.restart_file import Restart, order, read_restart


def checkpoint(path):
    with zipfile.ZipFile(path, "w") as archive:  # the container of torch.save
        archive.writestr("archive/data.pkl", b"x" * 4000)
    return path


def test_damage_of_any_kind_is_seen_without_loading(tmp_path):
    whole = checkpoint(tmp_path / "step_10.pt")
    assert is_intact(whole) is True
    body = whole.read_bytes()
    for name, damaged in {
        "cut.pt": body[: len(body) // 2],
        "zeroed.pt": bytes(len(body)),
        "flipped.pt": body[:300] + bytes([body[300] ^ 1]) + body[301:],
        "empty.pt": b"",
    }.items():
        (tmp_path / name).write_bytes(damaged)
        assert is_intact(tmp_path / name) is False, name
    (tmp_path / "weights.safetensors").write_bytes(b"w" * 500)
    assert is_intact(tmp_path / "weights.safetensors") is None


def test_a_digest_beside_it_decides(tmp_path):
    path = checkpoint(tmp_path / "step_10.pt")
    (tmp_path / "step_10.pt.sha256").write_text("0" * 64)
    assert is_intact(path) is False


def test_checkpoints_come_newest_first(tmp_path):
    for number in (5, 40, 100):
        checkpoint(tmp_path / f"step_{number}.pt")
    found = find_checkpoints(str(tmp_path / "step_*.pt"))
    assert [(one.step, one.intact) for one in found] == [(100, True), (40, True), (5, True)]


def test_restart_orders_add_up_and_are_read_back(tmp_path):
    path = tmp_path / "restart.json"
    assert read_restart(path) == Restart()
    order(JobFile(path), Restart("c10", 10, ((26, 26),), "P-1"))
    order(JobFile(path), Restart("c30", 30, ((41, 43),), "P-2"))
    now = read_restart(path)
    assert (now.checkpoint, now.plan) == ("c30", "P-2")
    assert [n for n in range(50) if now.skips(n)] == [26, 41, 42, 43]


def test_a_damaged_restart_file_stops_the_job_instead_of_training_on(tmp_path):
    path = tmp_path / "restart.json"
    path.write_text("{")
    with pytest.raises(RecoveryError):
        read_restart(path)
