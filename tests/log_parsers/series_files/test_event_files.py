"""Event files give the steps that were trained, and survive what killed jobs and strangers do to them."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.step_logs import read_step_log
from rerail.log_parsers.collect import ScanPlan, collect
from rerail.log_parsers.series_files.read import read_series_files
from rerail.log_parsers.series_files.recognise import kind_of
from rerail.log_parsers.series_files.records import masked_crc, records
from rerail.log_parsers.sources import discover
from rerail.log_parsers.survey import FileSurvey

REAL = Path("tests/data/loss/lightning")


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return (
        length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))
    )


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def part(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(step: int, tag: str = "loss", value: float = 1.0, time: float = 1e9) -> bytes:
    scalar = part(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    return framed(
        b"\x09" + struct.pack("<d", time + step) + b"\x10" + varint(step) + part(5, part(1, scalar))
    )


def restart(step: int) -> bytes:
    return framed(b"\x09" + struct.pack("<d", 2e9) + b"\x10" + varint(step) + part(7, b"\x08\x01"))


def read(folder: Path) -> list[FileSurvey]:
    pairs = [(source, kind_of(source)) for source in discover([folder]).sources]
    return read_series_files([(source, kind) for source, kind in pairs if kind])


def write(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"events.out.tfevents.{name}").write_bytes(data)


def test_a_real_lightning_run_is_read() -> None:
    (one,) = read(REAL)
    assert [row.step for row in one.steps[:3]] == [49, 99, 149]
    assert len(one.steps) == 41 and one.steps[-1].step == 2049
    assert one.steps[-1].loss == 2.84375 and one.steps[-1].learning_rate == pytest.approx(1e-4)
    assert one.problems == [] and "record 979" in one.kept[one.steps[-1].line].decode()


@pytest.mark.torch
def test_the_same_run_gives_the_same_verdict_as_text_and_as_event_file(trained: Path) -> None:
    verdicts = []
    for kind in ("train.log", "tb", "tensors"):
        found = diagnose_paths([trained / kind]).diagnosis
        assert found.first_fault is not None
        verdicts.append((found.outcome, found.status, found.failure_type, found.recovery.action))
    assert verdicts[0] == verdicts[1] == verdicts[2]
    assert verdicts[0][2] == "loss_nan"
    series = [read_step_log(trained / kind)[0] for kind in ("train.log", "tb", "tensors")]
    for one in series[1:]:
        assert one.step.tolist() == series[0].step.tolist()
        assert one.loss == pytest.approx(series[0].loss, abs=1e-5, nan_ok=True)
        assert one.learning_rate == pytest.approx(series[0].learning_rate, rel=1e-6)


def test_a_cut_last_record_is_no_problem(tmp_path: Path) -> None:
    whole = b"".join(event(step) for step in range(1, 11))
    for cut in (1, 5, 13, 30):
        write(tmp_path / str(cut), "1.a", whole[:-cut])
        (one,) = read(tmp_path / str(cut))
        assert [row.step for row in one.steps] == list(range(1, 10)) and one.problems == []


def test_a_cut_between_two_names_of_a_step_leaves_nothing_that_is_no_number(tmp_path: Path) -> None:
    """A killed job wrote the loss of its last step and not the gradient norm: that is missing, and not NaN."""
    whole = b"".join(
        event(step, "train/loss", 2 - step / 100)
        + event(step, "train/grad_norm", 1 + step % 3 / 10)
        for step in range(1, 41)
    )
    write(tmp_path, "events.out.tfevents.1.a", whole + event(41, "train/loss", 1.59))
    found = diagnose_paths([tmp_path]).diagnosis
    assert found.outcome.value == "no_failure", found.summary
    bad = b"".join(event(step, "train/loss", math.nan) for step in (41, 42, 43))
    write(tmp_path, "events.out.tfevents.1.a", whole + bad)
    assert diagnose_paths([tmp_path]).diagnosis.failure_type == "loss_nan"


def test_a_flipped_bit_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    parts = [event(step) for step in range(1, 11)]
    bad = bytearray(parts[4])
    bad[-6] ^= 1
    write(tmp_path, "1.a", b"".join([*parts[:4], bytes(bad), *parts[5:]]))
    (one,) = read(tmp_path)
    assert [row.step for row in one.steps] == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert "record 5 (byte" in one.problems[0].why and "checksum" in one.problems[0].why


def test_a_damaged_length_ends_the_reading_and_is_told(tmp_path: Path) -> None:
    parts = [event(step) for step in range(1, 11)]
    write(tmp_path, "1.a", b"".join(parts[:6]) + b"\xff" * 12 + b"".join(parts[6:]))
    (one,) = read(tmp_path)
    assert len(one.steps) == 6 and "length of record 7" in one.problems[0].why


def test_a_restart_overwrites_the_steps_that_it_repeats(tmp_path: Path) -> None:
    write(tmp_path, "1000000000.a", b"".join(event(step, value=9.0) for step in range(1, 9)))
    later = restart(5) + b"".join(event(step, value=1.0, time=2e9) for step in range(5, 11))
    write(tmp_path, "2000000000.a", later)
    (one,) = read(tmp_path)
    assert [row.step for row in one.steps] == list(range(1, 11))
    assert [row.loss for row in one.steps] == [9.0] * 4 + [1.0] * 6
    assert one.source.name == "events.out.tfevents.*"
    assert (
        one.kept[one.steps[-1].line]
        .decode()
        .startswith("events.out.tfevents.2000000000.a, record 7: 2033-05-18T03:33:30Z step 10")
    )


def test_a_restart_that_says_nothing_stays_in_the_order_of_time(tmp_path: Path) -> None:
    write(tmp_path, "1000000000.a", b"".join(event(step) for step in range(1, 9)))
    write(tmp_path, "2000000000.a", b"".join(event(step, time=2e9) for step in range(5, 11)))
    (one,) = read(tmp_path)
    assert [row.step for row in one.steps] == [*range(1, 9), *range(5, 11)]


def test_ranks_that_write_side_by_side_stay_apart_and_other_names_join(tmp_path: Path) -> None:
    write(tmp_path, "1000000000.a", b"".join(event(step) for step in range(1, 9)))
    write(tmp_path, "1000000001.b", b"".join(event(step) for step in range(1, 9)))
    write(
        tmp_path, "1000000002.c", b"".join(event(step, tag="lr", value=0.5) for step in range(1, 9))
    )
    found = read(tmp_path)
    assert sorted(len(one.steps) for one in found) == [8, 8]
    assert any(one.steps[0].learning_rate == 0.5 for one in found)


def test_tensors_of_one_number_are_read_in_every_type(tmp_path: Path) -> None:
    kinds = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
    out = b""
    for step, (kind, form) in enumerate(kinds.items(), 1):
        tensor = b"\x08" + varint(kind) + part(4, struct.pack(form, 3))
        out += framed(b"\x10" + varint(step) + part(5, part(1, part(1, b"loss") + part(8, tensor))))
    out += framed(
        b"\x10\x06"
        + part(5, part(1, part(1, b"loss") + part(8, b"\x08\x0e" + part(4, b"\x40\x40"))))
    )
    out += framed(
        b"\x10\x07"
        + part(5, part(1, part(1, b"loss") + part(8, b"\x08\x01" + part(5, struct.pack("<f", 3)))))
    )
    out += framed(
        b"\x10\x08"
        + part(5, part(1, part(1, b"loss") + part(8, b"\x08\x01" + part(4, b"\0" * 12))))
    )
    write(tmp_path, "1.a", out)
    assert [row.loss for row in read(tmp_path)[0].steps] == [3.0] * 7


def test_a_length_that_lies_takes_no_memory(tmp_path: Path) -> None:
    length = struct.pack("<Q", 1 << 40)
    write(tmp_path, "1.a", event(1) + length + struct.pack("<I", masked_crc(length)) + b"x" * 100)
    (one,) = read(tmp_path)
    assert [row.step for row in one.steps] == [1]


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_no_damage_raises(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = bytearray(b"".join(event(step) for step in range(1, 9)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(13, len(whole)))
    folder = tmp_path_factory.mktemp("damaged")
    write(folder, "1.a", bytes(whole[:cut]))
    for one in read(folder):
        assert all(row.step is not None for row in one.steps)


def test_a_whole_record_is_what_the_framing_says() -> None:
    import io

    (one,) = records(io.BytesIO(framed(b"abc")))
    assert one.data == b"abc" and one.is_whole() and one.offset == 0
    assert (
        masked_crc(b"123456789")
        == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    )


def test_an_event_file_that_is_none_is_left_to_the_other_readers(tmp_path: Path) -> None:
    write(tmp_path, "1.a", b"step 1 loss 2.0\nstep 2 loss 1.9\n")
    collection = collect([tmp_path], ScanPlan(()))
    assert [row.step for row in collection.views[0].survey.steps] == [1, 2]


def test_a_file_without_a_known_name_says_so(tmp_path: Path) -> None:
    write(tmp_path, "1.a", event(1, tag="val/accuracy"))
    (one,) = read(tmp_path)
    assert "no loss, step time or throughput" in one.problems[0].why
    assert math.isfinite(one.size)


def test_training_that_an_event_file_shows_went_on_behind_a_failed_start(tmp_path: Path) -> None:
    failed = (
        "[2026-02-25 06:00:00,000][train][INFO] - Starting training!\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 110, in train\n'
        "RuntimeError: Distributed package doesn't have NCCL built in\n"
        "[2026-02-25 06:00:01,000][train][INFO] - Output dir: results\n"
    )
    (tmp_path / "train.log").write_text(failed)
    alone = diagnose_paths([tmp_path]).diagnosis
    assert alone.failure_type == "package_version_conflict"
    rows = b"".join(event(step, value=2.0, time=1.772e9 + 60 * step) for step in range(1, 90))
    write(tmp_path, "1772000000.a", rows)
    assert diagnose_paths([tmp_path]).diagnosis.failure_type == "no_failure"
