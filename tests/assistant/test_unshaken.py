"""Files and streams that are not as they should be: each has its word and its exit code, and what is there is read."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from rerail import cached_yaml
from rerail.assistant import pipeline
from rerail.assistant.cli.edge import run_guarded
from rerail.assistant.pipeline import diagnose_paths
from rerail.cached_yaml import cache_folder
from rerail.domain.diagnosis import Outcome
from rerail.errors import EvidenceError
from rerail.knowledge_base.rules import usable_rules
from rerail.log_parsers import opening, scan
from rerail.settings import load_settings

XID = b"[Wed Mar  4 02:00:00 2026] NVRM: Xid (PCI:0000:4e:00): 79, pid=2290, GPU has fallen off the bus.\n"
STEPS = b"".join(b"[rank0]: iteration %8d/ 500 | lm loss: 2.0E+00 |\n" % step for step in range(50))
ERROR = b"[rank0]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
CALL = [
    sys.executable,
    "-c",
    "from rerail.assistant.entry import main; main()",
    "diagnose",
    "--no-store",
]


def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [*CALL, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_bytes(STEPS + ERROR)
    return path


@pytest.mark.parametrize(
    "pack", [gzip.compress, lzma.compress, bz2.compress, zstandard.compress, bytes],
    ids=["gz", "xz", "bz2", "zst", "plain"],
)  # fmt: skip
def test_what_is_piped_in_is_unpacked(pack: Callable[[bytes], bytes]) -> None:
    done = run("-q", "-", input=pack(STEPS + ERROR))
    assert done.returncode == 0 and b"gpu_ecc_uncorrectable <stdin>:51" in done.stdout


@pytest.mark.parametrize(
    "pack", [gzip.compress, lzma.compress, zstandard.compress], ids=["gz", "xz", "zst"]
)
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_what_is_piped_in_torn_says_so(pack: Callable[[bytes], bytes], share: float) -> None:
    """Of the text what can be unpacked is read; that the rest is missing is told in any case."""
    numbers = b"".join(b"[rank0]: seen %d\n" % (step * 7_919 % 10_007) for step in range(20_000))
    packed = pack(ERROR + numbers)
    done = run("-", input=packed[: int(len(packed) * share)])
    assert done.returncode in (0, 10, 11), done.stderr
    assert b"reading stopped behind line" in done.stdout + done.stderr


@pytest.mark.parametrize("hole", [4_096, 5_000, 3 << 20])
def test_a_hole_does_not_hide_what_stands_behind_it(hole: int, tmp_path: Path) -> None:
    path = tmp_path / "dmesg.log"
    path.write_bytes(b"\0" * hole + XID + b"\0" * hole + b"more\n")
    found = diagnose_paths([path]).diagnosis
    assert found.failure_type == "gpu_fallen_off_bus" and found.first_fault is not None
    assert found.first_fault.line == 1 and "Xid" in found.first_fault.text


def test_a_pipe_that_nobody_writes_into_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "WRITER_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EvidenceError, match="nobody wrote into it") as raised:
        diagnose_paths([tmp_path / "pipe"])
    assert raised.value.hint == "write into it; `rerail diagnose -` reads what is piped into it"


def test_a_pipe_with_a_writer_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(STEPS + ERROR),))
    writer.start()
    found = diagnose_paths([pipe]).diagnosis
    writer.join()
    assert found.failure_type == "gpu_ecc_uncorrectable"


def test_a_file_that_is_truncated_while_it_is_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(STEPS * 1_000)
    whole = opening.open_source

    def opened(source: object) -> object:
        stream = whole(source)  # type: ignore[arg-type]
        os.truncate(path, 100_000)
        return stream

    monkeypatch.setattr("rerail.log_parsers.survey.open_source", opened)
    found = diagnose_paths([path]).diagnosis
    missing = [lack.what for lack in found.missing]
    assert found.outcome is Outcome.INCONCLUSIVE
    assert any("truncated while it was read" in what for what in missing), missing


def test_a_finding_inside_an_endless_line_is_found_and_the_cut_is_told(tmp_path: Path) -> None:
    path = tmp_path / "dmesg.log"
    blank = b"padding without any end " * 400_000
    path.write_bytes(b"begin\n" + blank + XID[:-1] + blank + b"\nend\n")
    found = diagnose_paths([path]).diagnosis
    assert found.failure_type == "gpu_fallen_off_bus" and found.first_fault is not None
    assert found.first_fault.line == 2
    assert "NVRM: Xid" in found.first_fault.text[:180]
    assert any("longer than" in lack.what for lack in found.missing)


def test_output_on_a_full_disk(log: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*CALL, "-q", str(log)], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 74
    assert (
        b"standard output cannot be written: No space left" in done.stderr
        and b"bug" not in done.stderr
    )


@pytest.mark.parametrize(
    ("closing", "arguments", "code", "word"),
    [
        (">&-", "-q {log}", 74, b"standard output cannot be written: it is closed"),
        ("<&-", "-", 11, b"standard input is closed"),
        ("<&-", "-q {log}", 0, b""),
        ("2>&-", "-q {log}", 0, b""),
        ("</dev/null", "-", 11, b"the input is empty"),
    ],
)
def test_closed_streams(closing: str, arguments: str, code: int, word: bytes, log: Path) -> None:
    words = " ".join(f"'{part}'" for part in CALL)
    done = subprocess.run(
        ["bash", "-c", f"{words} {arguments.format(log=log)} {closing}"],
        capture_output=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert word in done.stderr and b"bug" not in done.stderr
    assert not word or done.stderr.count(word) == 1


@pytest.mark.parametrize(
    ("closing", "code", "word"),
    [
        ("<&-", 11, b"standard input is closed"),
        ("</dev/null", 3, b""),
        ("<{log} >&-", 74, b"standard output cannot be written: it is closed"),
        ("<{log}", 0, b""),
    ],
)
def test_a_line_to_explain_from_a_stream(
    closing: str, code: int, word: bytes, tmp_path: Path
) -> None:
    line = tmp_path / "line"
    line.write_bytes(b"\xff " + XID)
    call = f"'{CALL[0]}' -c '{CALL[2]}' kb explain - {closing.format(log=line)}"
    done = subprocess.run(["bash", "-c", call], capture_output=True, check=False)
    assert done.returncode == code, done.stderr
    assert word in done.stderr and b"bug" not in done.stderr


def test_a_reader_that_has_gone(log: Path) -> None:
    with subprocess.Popen(
        [*CALL, str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.wait() == 141
        assert process.stderr.read() == b""


@pytest.mark.parametrize(("arguments", "code"), [(["nowhere.log"], 11), (["--nonsense", "x"], 2)])
def test_a_standard_error_that_cannot_be_written_changes_no_code(
    arguments: list[str], code: int, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "wb") as full, open(writer, "wb") as gone:
        for where in (full, gone):
            done = subprocess.run([*CALL, *arguments], stderr=where, cwd=tmp_path, check=False)
            assert done.returncode == code


def test_too_little_memory_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    def call() -> None:
        raise MemoryError

    with pytest.raises(SystemExit) as ended:
        run_guarded(call)
    said = capsys.readouterr().err
    assert ended.value.code == 11 and "not enough memory" in said and "bug" not in said


def test_folders_of_another_account_are_done_without(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root reads everything, so the file system's answer is made up."""
    closed, stat, listdir = "/closed/by/another", os.stat, os.listdir

    def refused(call: Callable[..., object]) -> Callable[..., object]:
        def ask(path: object = ".", *how: object, **more: object) -> object:
            if str(path).startswith(closed):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *how, **more)

        return ask

    monkeypatch.setenv("RERAIL_DATA_DIR", f"{closed}/data")
    monkeypatch.setenv("RERAIL_CACHE_DIR", f"{closed}/cache")
    monkeypatch.setattr(os, "stat", refused(stat))
    monkeypatch.setattr(os, "listdir", refused(listdir))
    for held in (load_settings, usable_rules, pipeline.rules):
        held.cache_clear()
    try:
        assert not scan.compiled_at_hand(pipeline.rules().signatures, cache_folder())
        found = diagnose_paths([log]).diagnosis
    finally:
        monkeypatch.undo()
        for held in (load_settings, usable_rules, pipeline.rules):
            held.cache_clear()
    assert found.failure_type == "gpu_ecc_uncorrectable"
    assert f"{closed}/data/rules: Permission denied" in found.missing[0].what


def test_an_account_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RERAIL_DATA_DIR", "RERAIL_CACHE_DIR"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    load_settings.cache_clear()
    try:
        folders = load_settings().data_dir, cache_folder()
    finally:
        load_settings.cache_clear()
    for folder in folders:
        with pytest.raises(OSError, match="Not a directory"):
            folder.mkdir(parents=True)


def test_a_rule_file_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_bytes(b"rules: [\xff]\n")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "x.log").write_bytes(STEPS + ERROR)
    done = run(tmp_path / "x.log", env={**os.environ, "RERAIL_RULES_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert b"odd.yaml" in done.stdout and b"folder.yaml" in done.stdout


@pytest.mark.parametrize(
    ("module", "options"),
    [("typer", ["--rank", "3"]), ("typing", []), ("dataclasses", []), ("hashlib", ["-q"])],
)
def test_ctrl_c_while_it_starts_prints_no_traceback(
    tmp_path: Path, module: str, options: list[str]
) -> None:
    """A module that the command line imports, or a diagnosis that is read without it, stands for any of them."""
    (tmp_path / f"{module}.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(60)\n"
    )
    done = run(*options, "x", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 130 and b"Traceback" not in done.stderr


def test_ctrl_c_that_a_library_tells_as_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "hashlib.py").write_text(
        "try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt as error:\n"
        "    raise RuntimeError('Error calling __set_name__') from error\n"
    )
    done = run("-q", "x", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 130 and done.stderr == b""


def test_ctrl_c_while_it_reads(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen([*CALL, "-q", str(pipe)], stderr=subprocess.PIPE) as process:
        with pipe.open("wb", buffering=0) as writer:  # opens when the program reads
            writer.write(STEPS)
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
        assert process.stderr is not None and b"Traceback" not in process.stderr.read()


def test_a_model_without_its_extra_is_named_for_what_it_lacks(tmp_path: Path, log: Path) -> None:
    """A site-customising file hides the library, as an installation without the extra does."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nold = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'langchain' else old(name, *a)\n"
    )
    env = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "RERAIL_MODEL": "m",
        "RERAIL_MODEL_URL": "http://127.0.0.1:9/v1",
    }
    done = run(log, env=env)
    assert done.returncode == 0
    assert b"langchain is not installed (pip install 'rerail[agent]')" in done.stderr


@pytest.mark.parametrize(
    "names",
    [
        ("train.log.1", "train.log"),
        ("train.log.2.gz", "train.log.1"),
        ("train.log.0", "train.log"),
        ("train.log.old", "train.log"),
        ("train.log-20260101", "train.log"),
        ("train.log-2026010123.gz", "train.log-20260102"),
        ("train.log.2026-01-01_04", "train.log.2026-01-01_05"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_rotated_logs_are_read_in_their_order(
    names: tuple[str, str], turned: bool, tmp_path: Path
) -> None:
    """The older part holds an error that training outlived; the verdict is that of one file."""
    older = (
        STEPS[: len(STEPS) // 2]
        + b"[rank0]: ConnectionResetError: [Errno 104] Connection reset by peer\n"
    )
    newer = STEPS[len(STEPS) // 2 :] + ERROR
    for name, text in zip(names, (older, newer), strict=True):
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    order = [tmp_path / name for name in names]
    found = diagnose_paths(order[::-1] if turned else order).diagnosis
    assert found.failure_type == "gpu_ecc_uncorrectable" and found.first_fault is not None
    assert found.first_fault.file.endswith(names[1])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(gzip.compress(STEPS)), "packed twice, by gzip inside"),
        (gzip.compress(bz2.compress(STEPS)), "packed twice, by bzip2 inside"),
        (b"PK\x03\x04" + STEPS, "a zip archive"),
        (b"\x04\x22\x4d\x18" + STEPS, "packed by lz4"),
    ],
)
def test_what_is_packed_in_a_way_that_is_not_read_is_said(
    content: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(content)
    missing = diagnose_paths([path]).diagnosis.missing
    assert next(one.how_to_get for one in missing if said in one.what).startswith("unpack it")
    assert run("-q", path).returncode == 11
    (tmp_path / "other.log").write_bytes(STEPS)
    assert run("-q", tmp_path).returncode != 11


def test_a_good_beginning_does_not_hide_that_the_end_was_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(STEPS * 50)[:-40])
    done = run("-q", path)
    assert done.returncode == 10
    assert b"train.log.gz: reading stopped behind line" in done.stderr


def test_of_a_rotated_log_the_older_part_was_first_also_without_a_clock(tmp_path: Path) -> None:
    lost = "NVRM: Xid (PCI:0000:{bus}:00): 79, pid=1, GPU has fallen off the bus.\n"
    (tmp_path / "train.log.1").write_text(lost.format(bus="3b"))
    (tmp_path / "train.log").write_text(lost.format(bus="1b"))
    first = diagnose_paths([tmp_path]).diagnosis.first_fault
    assert first is not None
    assert (first.file, first.line) == ("train.log.1", 1)


def test_what_the_newer_part_of_a_rotated_log_trains_on_from_was_survived(tmp_path: Path) -> None:
    lost = "[rank{rank}]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"
    steps = [f"[rank0]: step {n} loss 2.{n}\n" for n in range(40)]
    (tmp_path / "train.log.1").write_text("".join(steps[:20]) + lost.format(rank=3))
    (tmp_path / "train.log").write_text("".join(steps[20:]) + lost.format(rank=5))
    first = diagnose_paths([tmp_path]).diagnosis.first_fault
    assert first is not None
    assert (first.file, first.rank) == ("train.log", 5)


def test_a_full_disk_leaves_nothing_of_a_rule_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    kept = tmp_path / "rules.yaml"
    kept.write_text("a: 1\n")
    monkeypatch.setattr(cached_yaml, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(Path, "write_bytes", full)
    assert cached_yaml.load_cached(kept) == {"a": 1}
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [bytes(5_000), bytes(range(32)) * 80, random.Random(1).randbytes(20_000)],
    ids=["hole", "controls", "noise"],
)
def test_a_file_that_holds_no_text_is_told_as_such(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(data)
    done = run(tmp_path / "x.log")
    assert done.returncode != 0
    assert b"not a text file" in done.stdout + done.stderr
    assert b"name the job's log" in done.stdout + done.stderr


def test_a_pipe_in_a_folder_is_told_as_one(tmp_path: Path, log: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    done = run(tmp_path)
    assert b"a pipe, which a folder's logs are not read from" in done.stdout
    assert b"rerail diagnose" in done.stdout and b"copy the file again" not in done.stdout
    assert b"`rerail diagnose -`" in done.stdout


def test_a_socket_and_a_device_are_told_apart(tmp_path: Path, log: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.log"))
        assert b"a socket, and no file" in run(tmp_path).stdout
        alone = run(tmp_path / "s.log")
    assert b"a socket, and no file" in alone.stderr and alone.returncode == 11
    alone = run("/dev/null")
    assert b"a character device, and no file" in alone.stderr and alone.returncode == 11


def test_doctor_says_what_a_configured_model_lacks() -> None:
    away = (
        "import importlib.util as u; real = u.find_spec; "
        "u.find_spec = lambda name, *a: None if name == 'langchain_openai' else real(name, *a); "
        "from rerail.assistant.entry import main; main()"
    )
    settings = {"RERAIL_MODEL_URL": "http://127.0.0.1:9/v1", "RERAIL_MODEL": "m"}
    done = subprocess.run(
        [sys.executable, "-c", away, "doctor"],
        capture_output=True, check=False, env={**os.environ, **settings},
    )  # fmt: skip
    assert b"m, but langchain-openai is missing: pip install 'rerail[agent]'" in done.stdout


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 25, "1" + "0" * 5000])
def test_a_number_that_no_counter_reaches_is_no_step_and_no_crash(
    tmp_path: Path, digits: str
) -> None:
    path = tmp_path / "train.log"
    rows = [f"[rank{n % 4}]: step {digits[:-2]}{n} loss 2.{n}\n" for n in range(10, 70)]
    path.write_text("".join(rows) + "[rank2]: RuntimeError: boom\n")
    found = diagnose_paths([path]).diagnosis
    assert found.first_fault is not None
    assert (found.first_fault.line, found.suspects.ranks) == (61, [2])
    assert b"internal error" not in run("detect", path).stderr
