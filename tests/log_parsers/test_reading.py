"""Reading: line numbers as grep has them, every compression, damage reported and the rest kept."""

import bz2
import gzip
import io
import lzma
import random
import subprocess
from pathlib import Path

import pytest
import zstandard

from rerail.errors import EvidenceError
from rerail.log_parsers.collect import ScanPlan, collect
from rerail.log_parsers.file_names import origin_of
from rerail.log_parsers.prefixes import parse_line
from rerail.log_parsers.redaction import redact
from rerail.log_parsers.room import HEAD_LINES
from rerail.log_parsers.scan import Signature, make_scanner
from rerail.log_parsers.sources import Source, discover, iter_chunks
from rerail.log_parsers.survey import survey, survey_bytes
from rerail.log_parsers.text import clean
from rerail.log_parsers.timestamps import find_stamp
from rerail.log_parsers.zstd_stream import ZstdStream

SIGNATURES = (
    Signature("CUDA out of memory", True),
    Signature(r"Xid \(PCI:[0-9a-f:]+\): (\d+)"),
    Signature(r"code [1-7]\s*$"),
)
NASTY = (
    b"plain CUDA out of memory\n\x1b[31mCUDA\x1b[0m out of mem\x1b[1mory\x1b[0m\r\n10%|#  |\r20%|## | CUDA out of memory\r30%\n"
    b"\xff\xfe\x80 CUDA out of memory \xc3\n\x00C\x00UDA out of memory\n\n\nexit code 3\nexit code 3 of 9\r\nNVRM: Xid (PCI:0000:3b:00): 79, x\nlast CUDA out of memory"
)


def plan():
    return ScanPlan(SIGNATURES)


def hits(data, engine="hyperscan", chunk=1 << 20, tmp=None):
    scanner = make_scanner(SIGNATURES, cache=None, engine=engine)
    if tmp is None:
        return [
            (h.line, h.signature)
            for h in survey_bytes(Source(None, "x"), data, SIGNATURES, scanner).hits
        ]
    tmp.write_bytes(data)
    return [
        (h.line, h.signature)
        for h in survey(Source(tmp, "x"), SIGNATURES, scanner, chunk_size=chunk).hits
    ]


@pytest.mark.parametrize("engine", ["hyperscan", "re2", "re"])
def test_engines_agree_on_nasty_text(engine):
    if engine != "re":
        pytest.importorskip(engine)
    assert hits(NASTY, engine) == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (8, 2), (10, 1), (11, 0)]


@pytest.mark.parametrize("chunk", [7, 64, 1000, 1 << 20])
def test_hits_do_not_depend_on_chunks_and_agree_with_grep(tmp_path, chunk):
    rng = random.Random(5)
    lines = [
        b"noise %d" % rng.getrandbits(40)
        if rng.random() < 0.97
        else b"rank 3: CUDA out of memory now"
        for _ in range(4000)
    ]
    file = tmp_path / "a.log"
    found = hits(b"\n".join(lines), chunk=chunk, tmp=file)
    out = subprocess.run(
        ["grep", "-n", "CUDA out of memory", str(file)], capture_output=True, text=True, check=True
    ).stdout
    assert [line for line, _ in found] == [int(x.split(":")[0]) for x in out.splitlines()]


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.ZstdCompressor().compress]
)
def test_compression_is_known_by_content(tmp_path, pack):
    (tmp_path / "run.log").write_bytes(pack(NASTY))
    collection = collect([tmp_path / "run.log"], plan())
    assert len(collection.views[0].survey.hits) == 8 and not collection.problems


@pytest.mark.parametrize("name", ["gz", "zst", "xz", "bz2"])
def test_a_torn_file_gives_what_it_holds_and_says_so(tmp_path, name):
    rng = random.Random(1)
    data = b"".join(
        b"line %d CUDA out of memory %d\n" % (i, rng.getrandbits(60)) for i in range(5000)
    )
    data *= 12  # several blocks of each format
    pack = {
        "gz": gzip.compress, "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
        "xz": lambda raw: lzma.compress(raw, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 4096}]),
        "bz2": bz2.compress,
    }[name]  # fmt: skip
    packed = pack(data)
    (tmp_path / f"t.{name}").write_bytes(packed[: len(packed) * 3 // 4])
    collection = collect([tmp_path], plan())
    assert 1000 < collection.views[0].survey.lines < 60_000
    assert "reading stopped" in collection.problems[0].why


def test_every_cut_of_a_zstd_stream_is_noticed():
    packer = zstandard.ZstdCompressor(write_checksum=True)
    skipped = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    one, text = packer.compress(b"a line\n" * 900), b"a line\n" * 900
    whole = one + skipped + one
    ends = {len(one), len(one + skipped), len(whole)}
    for cut in range(1, len(whole) + 1):
        stream, got = ZstdStream(io.BytesIO(whole[:cut])), b""
        try:
            while block := stream.read(1000):
                got += block
            assert cut in ends
        except EOFError:
            assert cut not in ends
        assert (text * 2).startswith(got) and (got == text * 2 or cut < len(whole))


def test_what_cannot_be_read_is_a_problem_and_the_rest_is_read(tmp_path):
    (tmp_path / "ok.log").write_text("CUDA out of memory\n")
    (tmp_path / "gone.log").symlink_to(tmp_path / "nowhere")
    collection = collect([tmp_path], plan())
    assert [p.subject for p in collection.problems] == ["gone.log"] and len(collection.views) == 1


@pytest.mark.parametrize("argument", ["", "nosuch.log", "no*.log"])
def test_a_wrong_path_is_one_clear_error(tmp_path, monkeypatch, argument):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EvidenceError) as caught:
        discover([argument])
    assert caught.value.exit_code == 11 and caught.value.hint


def test_a_huge_line_is_split_by_force_and_numbers_stay_right(tmp_path):
    data = b"a\n" + b"z" * (20 << 20) + b"\nCUDA out of memory\n"
    assert hits(data, tmp=tmp_path / "h.log") == [(3, 0)]


def test_chunks_rejoin_to_the_file(tmp_path):
    import io

    for size in (1, 3, 10, 1000):
        pieces = list(iter_chunks(io.BytesIO(NASTY), size))
        assert b"".join(pieces) == NASTY.replace(b"\0", b"")
        assert all(piece.endswith(b"\n") for piece in pieces[:-1])


def test_a_big_file_is_not_kept_whole(tmp_path):
    data = b"".join(
        b"step %d loss 2.0 and some more words to fill the line\n" % i for i in range(120_000)
    )
    data = data[: len(data) // 2] + b"rank 1: CUDA out of memory\n" + data[len(data) // 2 :]
    file = tmp_path / "big.log"
    file.write_bytes(data)
    scanner = make_scanner(SIGNATURES, cache=None)
    result = survey(Source(file, "big.log"), SIGNATURES, scanner)
    assert not result.whole and HEAD_LINES <= len(result.kept) < 1200
    assert any(b"CUDA out of memory" in raw for raw in result.kept.values())


def test_a_torn_cache_is_rebuilt(tmp_path):
    make_scanner(SIGNATURES, cache=tmp_path)
    (file,) = tmp_path.glob("*.hsdb")
    good = file.read_bytes()
    file.write_bytes(good[:50])
    assert make_scanner(SIGNATURES, cache=tmp_path).candidates(b"CUDA out of memory\n")
    assert file.read_bytes() == good


@pytest.mark.parametrize(
    ("name", "rank", "local", "node", "attempt"),
    [
        ("run/abc/attempt_2/5/stderr.log", None, 5, None, 2),
        ("logs/rank_17.log", 17, None, None, None),
        ("dmesg-gpu-7.log", None, None, "gpu-7", None),
        ("gpu-7.dmesg", None, None, "gpu-7", None),
        ("nccl_debug.hx3.4411", None, None, "hx3", None),
        ("log/workerlog.3", None, 3, None, None),
        ("gpu-12/log/workerlog.0", None, 0, "gpu-12", None),
        ("user_logs/std_log_process_03.txt", 3, None, None, None),
        ("train.log", None, None, None, None),
    ],
)
def test_what_a_path_tells(name, rank, local, node, attempt):
    origin = origin_of(name)
    assert (origin.rank, origin.local_rank, origin.node, origin.attempt) == (
        rank,
        local,
        node,
        attempt,
    )


@pytest.mark.parametrize(
    ("text", "rank", "local", "node"),
    [
        ("[rank3]: boom", 3, None, None),
        ("[default3]:boom", None, 3, None),
        ("  12: [rank97]: boom", 97, None, None),
        ("12: boom", 12, None, None),
        ("gpu-1:3468:3905 [4] NCCL WARN x", None, None, "gpu-1"),
        ("[1,12]<stderr>:boom", 12, None, None),
        ("(RayTrainWorker pid=9, ip=10.0.0.7) boom", None, None, "10.0.0.7"),
        ("[pod/llm-worker-3/pytorch] boom", None, None, "llm-worker-3"),
        ("n30039: boom", None, None, "n30039"),
        ("Nov 22 06:00:01 hx-3 kernel: boom", None, None, "hx-3"),
        ("RuntimeError: boom", None, None, None),
        ("step10: boom", None, None, None),
        ("1: Extension modules: numpy", 1, None, None),
        ("[default1]:2026-11-21 01:58:29,515 [rank1] INFO host up", 1, 1, None),
        ("slurmstepd-n2: error: x", None, None, "n2"),
    ],
)
def test_prefixes(text, rank, local, node):
    line = parse_line("f", 1, text, year=2024)
    assert (line.rank, line.local_rank, line.node) == (rank, local, node)


@pytest.mark.parametrize(
    ("text", "seconds", "clock"),
    [
        ("2024-11-22T06:40:00.5Z x", 1732257600.5, "wall"),
        ("2024-11-22 06:40:00,500 x", 1732257600.5, "wall"),
        ("2024-11-22T08:40:00+02:00 x", 1732257600.0, "wall"),
        ("[rank3]:[E1122 06:40:00.500000000 a.cpp:1]", 1732257600.5, "wall"),
        ("[W105 06:40:00.5 a.cpp:1]", 1704436800.5, "wall"),
        ("Nov 22 06:40:00 host x", 1732257600.0, "wall"),
        ("[Fri Nov 22 06:40:00 2024] x", 1732257600.0, "wall"),
        ("[2841774.102316] x", 2841774.102316, "boot"),
        ('{"time_ms": 1732257600500, "k": 1}', 1732257600.5, "wall"),
        ("11/22/2024 06:40:00 - INFO", 1732257600.0, "wall"),
    ],
)
def test_stamps(text, seconds, clock):
    stamp = find_stamp(text, year=2024)
    assert stamp is not None and abs(stamp.seconds - seconds) < 1e-3 and stamp.clock == clock


def test_no_stamp():
    assert find_stamp("loss 2.0 step 1200 ratio 3:4", year=2024) is None


@pytest.mark.parametrize(
    "secret",
    ["AKIAABCDEFGHIJKLMNOP", "hf_abcdefghijklmnopqrstuvwxyz", "sk-abcdefghijklmnop1234", "ghp_abcdefghijklmnopqrst1234",
     "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_123"],
)  # fmt: skip
def test_secrets_of_public_form_are_masked(secret):
    assert secret not in redact(f"using key {secret} now")


def test_secrets_by_name_and_numbers_that_are_none():
    assert "hunter22x" not in redact("WANDB_PASSWORD=hunter22x")
    assert "s3cr3tpw" not in redact("postgres://bob:s3cr3tpw@db.example/x")
    assert "abcDEF123456" not in redact("export AWS_SECRET_ACCESS_KEY='abcDEF123456'")
    assert "tok123abc456" not in redact("Authorization: Bearer tok123abc456")
    harmless = "consumed tokens: 26022182912 | max_token: 4096 | KeyError: 'text' | token=True"
    assert redact(harmless) == harmless


def test_control_and_bidi_characters_are_removed():
    text = clean("a\x1b]0;evil\x07b\x1b[2Jc\u202ed\u200be\x9bf\x00g\r\n".encode())
    assert text == "abcdefg"


def test_origin_of_a_folder_argument_is_relative(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.log").write_text("hello\n")
    assert [s.name for s in discover([tmp_path]).sources] == [str(Path("sub") / "x.log")]


def test_a_small_log_on_a_new_machine_waits_for_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr("rerail.log_parsers.scan.SMALL", 1_000)
    monkeypatch.setattr("rerail.log_parsers.collect.SMALL", 1_000)
    cache = tmp_path / "cache"
    cache.mkdir()
    job = ScanPlan(SIGNATURES, cache)
    small, large = tmp_path / "small.log", tmp_path / "large.log"
    small.write_text("step 1\nCUDA out of memory\n")
    large.write_text("step 1\n" * 500 + "CUDA out of memory\n")

    def lines(path):
        return [hit.line for hit in collect([path], job).views[0].survey.hits]

    assert lines(small) == [2]
    assert {path.name.partition("-")[0] for path in cache.iterdir()} == {"index"}
    assert lines(large) == [501]
    assert {path.suffix for path in cache.iterdir()} == {".hsdb", ".json", ".lock"}
    assert lines(small) == [2]
