"""What was asked for is found and opened; what cannot be read is a problem, never a crash."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rerail.domain.evidence import Stream
from rerail.errors import EvidenceError
from rerail.log_parsers.file_names import origin_of
from rerail.log_parsers.opening import open_source
from rerail.log_parsers.sources import (
    STDIN,
    Source,
    discover,
    iter_chunks,
)

TEXT = b"".join(b"iteration %d/ 900 | lm loss: 2.5E+00 |\n" % i for i in range(900))
AS_ROOT = os.geteuid() == 0


def names(path: Path | str) -> list[str]:
    return [source.name for source in discover([path]).sources]


def test_a_file_keeps_the_name_it_was_given(job: Callable[..., Path]) -> None:
    path = job("hello\n") / "train.log"
    assert names(path) == [str(path)]


def test_files_of_a_folder_are_named_relative_to_it_and_in_natural_order(
    job: Callable[..., Path],
) -> None:
    folder = job({f"logs/rank_{r}.log": "x\n" for r in (10, 9, 2, 100)} | {"a.out": "x\n"})
    assert names(folder) == [
        "a.out",
        "logs/rank_2.log",
        "logs/rank_9.log",
        "logs/rank_10.log",
        "logs/rank_100.log",
    ]


def test_a_glob_and_a_file_named_twice_are_read_once(job: Callable[..., Path]) -> None:
    folder = job({"a.log": "x\n", "b.log": "x\n", "c.txt": "x\n"})
    (folder / "again.log").symlink_to(folder / "a.log")
    found = discover([f"{folder}/*.log", folder / "b.log"])
    assert sorted(Path(s.name).name for s in found.sources) == ["a.log", "b.log"]
    assert not found.problems


def test_what_a_job_folder_holds_besides_logs_is_left_aside(job: Callable[..., Path]) -> None:
    folder = job(
        {
            "train.log": "x\n",
            "ckpt/model.safetensors": "x",
            "ckpt/iter_5.pt": "x",
            ".git/config": "x",
            "__pycache__/a.log": "x",
            "empty.log": "",
        }
    )
    found = discover([folder])
    assert [s.name for s in found.sources] == ["train.log"]
    assert not found.problems


@pytest.mark.parametrize("missing", ["nowhere.log", "nowhere/*.log", "", "  "])
def test_an_argument_that_names_nothing_is_one_clear_error(missing: str, tmp_path: Path) -> None:
    argument = f"{tmp_path}/{missing}" if missing.strip() else missing
    with pytest.raises(EvidenceError) as caught:
        discover([argument])
    assert caught.value.exit_code == 11
    assert caught.value.hint


def test_an_empty_file_and_a_dangling_link_are_problems(job: Callable[..., Path]) -> None:
    folder = job({"good.log": "x\n", "empty.log": ""})
    (folder / "gone.log").symlink_to(folder / "rotated-away.log")
    found = discover([folder / "empty.log", folder])
    assert [s.name for s in found.sources] == ["good.log"]
    told = {Path(p.subject).name: p.why for p in found.problems}
    assert told.keys() == {"empty.log", "gone.log"}
    assert "empty" in told["empty.log"]
    assert "No such file" in told["gone.log"]


def test_a_folder_loop_ends(job: Callable[..., Path]) -> None:
    folder = job({"sub/a.log": "x\n"})
    (folder / "sub" / "up").symlink_to(folder)
    assert names(folder) == ["sub/a.log"]


@pytest.mark.skipif(not AS_ROOT, reason="only root makes links of another account")
def test_a_link_of_one_account_to_a_file_of_another_is_not_followed(
    job: Callable[..., Path], tmp_path: Path
) -> None:
    folder = job({"train.log": "x\n", "own/theirs.log": "theirs\n"})
    (tmp_path / "secret").write_text("of root\n")
    os.chown(folder / "own" / "theirs.log", 4321, 4321)
    for name, target in (("stolen.log", tmp_path / "secret"), ("same.log", folder / "own" / "theirs.log")):  # fmt: skip
        (folder / name).symlink_to(target)
        os.lchown(folder / name, 4321, 4321)
    found = discover([folder])
    assert {s.path.resolve().name for s in found.sources if s.path} == {"train.log", "theirs.log"}
    assert [p.subject for p in found.problems] == ["stolen.log"]
    assert "of another is not followed" in found.problems[0].why


@pytest.mark.skipif(AS_ROOT, reason="root reads everything")
def test_a_folder_without_permission_is_a_problem(job: Callable[..., Path]) -> None:
    folder = job({"good.log": "x\n", "closed/a.log": "x\n"})
    (folder / "closed").chmod(0)
    try:
        found = discover([folder])
    finally:
        (folder / "closed").chmod(0o755)
    assert [s.name for s in found.sources] == ["good.log"]
    assert "Permission denied" in found.problems[0].why


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Piped:
        buffer = io.BytesIO(b"from a pipe\n")

    monkeypatch.setattr(sys, "stdin", Piped)
    found = discover(["-"])
    assert [s.name for s in found.sources] == [STDIN]
    assert open_source(found.sources[0]).read() == b"from a pipe\n"


def test_a_torchrun_tree(job: Callable[..., Path]) -> None:
    tree = {
        f"none_x7/attempt_{a}/{r}/{name}": "x\n"
        for a in (0, 1)
        for r in (0, 1)
        for name in ("stdout.log", "stderr.log", "error.json")
    }
    found = discover([job(tree)])
    assert len(found.sources) == 8, "error.json repeats what stderr.log holds in full"
    assert {(s.origin.attempt, s.origin.local_rank) for s in found.sources} == {
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    }


def test_an_error_file_alone_is_read(job: Callable[..., Path]) -> None:
    folder = job({"run/attempt_0/3/error.json": "{}\n"})
    (source,) = discover([folder]).sources
    assert (source.origin.attempt, source.origin.local_rank) == (0, 3)


@pytest.mark.parametrize(
    ("name", "rank", "node", "pid", "stream"),
    [
        ("logs/rank_17.log", 17, None, None, None),
        ("rank-3.err", 3, None, None, None),
        ("global_rank12/out.log", 12, None, None, None),
        ("worker-4.log", 4, None, None, None),
        ("node-17/rank_3.log", 3, "node-17", None, None),
        ("gpu017/stdout.log", None, "gpu017", None, None),
        ("nccl.node-3.4411.log", None, "node-3", 4411, None),
        ("nccl_debug.dgx7.99", None, "dgx7", 99, None),
        ("dmesg-node17.txt", None, "node17", None, Stream.KERNEL),
        ("node17.dmesg", None, "node17", None, Stream.KERNEL),
        ("node-17/dmesg.txt", None, "node-17", None, Stream.KERNEL),
        ("job12.dmesg.txt", None, None, None, Stream.KERNEL),
        ("a2_hung_job_dmesg.log", None, None, None, Stream.KERNEL),
        ("kern.log", None, None, None, Stream.KERNEL),
        ("slurmctld.log", None, None, None, Stream.SCHEDULER),
        ("slurm-918234.out", None, None, None, None),
        ("step-12/train.log", None, None, None, None),
        ("home/user7/exp3/node-17/train.log", None, "node-17", None, None),
        ("home/user7/exp3/train.log", None, None, None, None),
        ("out/train.node-17.log", None, "node-17", None, None),
        ("out/job_9912.dgx03.err", None, "dgx03", None, None),
        ("out/notes.txt", None, None, None, None),
        ("dgx-b11_dmesg_T.txt", None, "dgx-b11", None, Stream.KERNEL),
        ("dgx-b11_vmcore-dmesg.txt", None, "dgx-b11", None, Stream.KERNEL),
        ("CloudWatch/ft-0911/algo-3-1746781922", None, "algo-3", None, None),
        ("out/kubectl_logs_llm-7b-f3k2-1.txt", None, "llm-7b-f3k2-1", None, None),
        ("tiger-gpu-3/out.txt", None, "tiger-gpu-3", None, None),
    ],
)
def test_what_a_path_tells(
    name: str, rank: int | None, node: str | None, pid: int | None, stream: Stream | None
) -> None:
    origin = origin_of(name)
    assert (origin.rank, origin.node, origin.pid, origin.stream) == (rank, node, pid, stream)


@pytest.mark.parametrize(
    ("files", "nodes"),
    [
        (["hx-01/out.log", "hx-02/out.log"], ["hx-01", "hx-02"]),
        (["hx-01/out.log"], [None]),
        (["hx-01/dmesg.txt", "hx-01/out.log"], ["hx-01", "hx-01"]),
        (["inc42/dmesg.txt", "inc42/out.log"], [None, None]),
        (["big7/out.log", "small3/out.log"], [None, None]),
        (["exp1/out.log", "exp2/out.log"], [None, None]),
        (["h100-1/rank0.log", "h100-2/rank8.log"], ["h100-1", "h100-2"]),
        (["run-7/n3/out.log", "run-7/n4/out.log"], ["n3", "n4"]),
    ],
)
def test_a_folder_is_a_node_in_company(
    files: list[str], nodes: list[str | None], job: Callable[..., Path]
) -> None:
    folder = job(dict.fromkeys(files, "x\n"))
    assert [source.origin.node for source in discover([folder]).sources] == nodes
    one_by_one = [folder / name for name in files]
    found = {s.path: s.origin.node for s in discover(one_by_one).sources}
    assert [found[path] for path in one_by_one] == nodes


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gz": gzip.compress,
    "gz in two members": lambda data: gzip.compress(data[:777]) + gzip.compress(data[777:]),
    "gz padded": lambda data: gzip.compress(data) + b"\0" * 512,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
    "zst in two frames": lambda data: b"".join(
        zstandard.ZstdCompressor().compress(part) for part in (data[:777], data[777:])
    ),
    "xz": lzma.compress,
    "bz2": bz2.compress,
}


@pytest.mark.parametrize("kind", PACKERS)
def test_compression_is_known_by_content_not_by_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "misleading.log"
    path.write_bytes(PACKERS[kind](TEXT))
    with open_source(Source(path, "x")) as stream:
        assert b"".join(iter_chunks(stream, 4096)) == TEXT


def _checked(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


@pytest.mark.parametrize(
    ("pack", "lines"),
    [(gzip.compress, 12_000), (_checked, 12_000), (lzma.compress, 12_000), (gzip.compress, 120)],
)
@pytest.mark.parametrize("piped", [False, True])
def test_what_stands_before_damaged_bytes_is_read(
    pack: Callable[[bytes], bytes], piped: bool, lines: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    chance = random.Random(4)
    text = b"".join(b"%d %s\n" % (n, chance.randbytes(30).hex().encode()) for n in range(lines))
    damaged = bytearray(pack(text))
    at = len(damaged) * 9 // 10
    damaged[at : at + 8] = b"\xff" * 8
    path = tmp_path / "log"
    path.write_bytes(damaged)
    if piped:
        stream = io.BufferedReader(_Piped(bytes(damaged)))
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    found = bytearray()
    with open_source(Source(None if piped else path, "log")) as opened:
        with pytest.raises(Exception, match=r"(?i)corrupt|damaged|checksum"):
            list(iter(lambda: _added(found, opened.read(1 << 20)), b""))
    whole = 0.8 * len(text)
    assert found[: int(whole)] == text[: int(whole)]


def _added(found: bytearray, block: bytes) -> bytes:
    found += block
    return block


class _Piped(io.RawIOBase):
    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(buffer)


def test_a_torn_gzip_file_gives_out_all_it_holds_and_then_fails(tmp_path: Path) -> None:
    path = tmp_path / "torn.gz"
    whole = gzip.compress(os.urandom(300_000))
    path.write_bytes(whole[: len(whole) // 2])
    stream = open_source(Source(path, "x"))
    held = 0
    with stream, contextlib.suppress(EOFError):
        while piece := stream.read(65_536):
            held += len(piece)
    assert held > 140_000
    with open_source(Source(path, "x")) as again, pytest.raises(EOFError):
        list(iter_chunks(again))


def test_a_gzip_bomb_is_given_out_in_bounded_pieces(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\0" * (64 << 20)))
    total = 0
    with open_source(Source(path, "x")) as stream:
        while piece := stream.read(1 << 20):
            assert len(piece) <= 1 << 20
            total += len(piece)
    assert total == 64 << 20


@given(
    st.lists(st.sampled_from([b"\n", b"ab", b"\r", b"", b"xyz\n"]), max_size=60), st.integers(1, 40)
)
def test_pieces_are_the_stream_again_and_end_at_a_newline(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    pieces = list(iter_chunks(io.BytesIO(data), size))
    assert b"".join(pieces) == data
    assert all(piece.endswith(b"\n") for piece in pieces[:-1])


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("gn-07:/var/log/train.log", "gn-07"),
        ("gn-07:_var_log_train.log", "gn-07"),
        ("s3://bucket-1/train.log", None),
        ("epoch3:/train.log", None),
    ],
)
def test_a_file_called_as_scp_writes_it_is_of_that_host(name: str, node: str | None) -> None:
    assert origin_of(name).node == node
