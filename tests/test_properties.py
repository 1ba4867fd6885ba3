"""The verdict is a function of the evidence: not of the order, the pieces or the processes it is read in."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rerail.assistant.pipeline import diagnose_collection, diagnose_paths, rules, scan_plan
from rerail.assistant.verdict_out import exit_code
from rerail.domain.diagnosis import Diagnosis, Outcome, Status
from rerail.errors import EvidenceError
from rerail.knowledge_base.taxonomy import NO_FAILURE, leaves
from rerail.log_parsers import collect as collecting
from rerail.log_parsers import survey as surveying
from rerail.log_parsers.collect import assemble, collect
from rerail.log_parsers.scan import make_scanner
from rerail.log_parsers.sources import Source, discover
from rerail.settings import load_settings

LINES = [
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "/job/train.py", line 88, in <module>',
    "[rank1]: KeyError: 'lr'",
    "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:41772",
    "[Sun Mar  1 02:29:58 2026] NVRM: Xid (PCI:0000:9b:00): 79, pid=4404, GPU has fallen off the bus.",
    "slurmstepd: error: *** STEP 918234.0 ON hx-01 CANCELLED AT 2026-03-01T02:13:05 DUE TO TIME LIMIT ***",
    "srun: error: hx-01: task 4: Killed",
    "Training completed.",
    "iteration 12/ 500 | lm loss: 2.5E+00 |",
    "iteration 13/ 500 | lm loss: nan |",
    "2026-03-01 02:14:07 [rank2]: step 14 loss 2.0",
    "[rank2]:[E301 02:40:07.5 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
    "  exitcode  : -9 (pid: 4404)",
    "",
]  # fmt: skip
PIECES = st.one_of(
    st.binary(max_size=80),
    st.sampled_from([line.encode() for line in LINES]),
    st.sampled_from(LINES).flatmap(
        lambda line: st.integers(0, len(line)).map(lambda cut: line[cut:].encode() + b"\x1b[0m\r")
    ),
)
PACKS = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
CONTENT = st.lists(PIECES, max_size=25).map(b"\n".join)


@contextmanager
def folder_of(files: dict[str, bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        for file, content in files.items():
            (Path(name) / file).write_bytes(content)
        yield Path(name)


def plain(diagnosis: Diagnosis) -> dict[str, object]:
    return diagnosis.model_dump(exclude={"elapsed_s"})


def check(diagnosis: Diagnosis, files: dict[str, bytes]) -> None:
    """Whatever the verdict is, its parts must agree with each other and with the files."""
    again = Diagnosis.model_validate_json(diagnosis.model_dump_json())
    assert again == diagnosis
    assert exit_code(diagnosis) in (0, 3, 10)
    if diagnosis.outcome is Outcome.FAILURE:
        assert diagnosis.failure_type in leaves()
        assert diagnosis.first_fault is not None
    if diagnosis.outcome is Outcome.INCONCLUSIVE:
        assert diagnosis.status in (Status.UNKNOWN, Status.HYPOTHESIS)
        assert diagnosis.suspects.nodes == []
    if diagnosis.failure_type == NO_FAILURE:
        assert diagnosis.first_fault is None
    cited = [(e.file, e.line) for e in diagnosis.evidence]
    if diagnosis.first_fault is not None:
        cited.append((diagnosis.first_fault.file, diagnosis.first_fault.line))
    for file, line in cited:
        assert line <= files[file].count(b"\n") + 1
    names = {e.id for e in diagnosis.evidence}
    assert all(set(item.evidence) <= names for item in diagnosis.ruled_out)


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["a.log", "rank_3.log", "dmesg.txt", "x.gz"]), CONTENT, min_size=1
    )
)
def test_any_files_give_a_verdict_that_agrees_with_itself(files: dict[str, bytes]) -> None:
    if not any(files.values()):
        return
    with folder_of(files) as folder:
        # Of nothing but torn packs there is no verdict.
        torn = all(not content or content.startswith(PACKS) for content in files.values())
        with suppress(EvidenceError) if torn else nullcontext():
            check(diagnose_paths([folder]).diagnosis, files)


@settings(max_examples=25)
@given(CONTENT.filter(bool), st.integers(1, 400))
def test_the_verdict_does_not_depend_on_the_size_of_a_chunk(content: bytes, size: int) -> None:
    plan = scan_plan()
    scanner = make_scanner(plan.signatures, cache=plan.cache)
    # Whether a file is text at all is told by its first 4 kB, so those are given.
    with folder_of({"a.log": b"all is well in this healthy job\n" * 130 + content}) as folder:
        sources = discover([folder]).sources
        found = [
            plain(
                diagnose_collection(
                    assemble(
                        [
                            surveying.survey(s, plan.signatures, scanner, chunk_size=chunk)
                            for s in sources
                        ]
                    )
                ).diagnosis
            )
            for chunk in (size, 1 << 20)
        ]
    assert found[0] == found[1]


@settings(max_examples=25)
@given(CONTENT)
@example(b"train.sh: line 3\nKilled\n")
def test_engines_come_to_the_same_verdict(content: bytes) -> None:
    signatures = rules().signatures
    found = []
    for engine in ("hyperscan", "re2"):
        scanner = _scanner(engine)
        one = surveying.survey_bytes(Source(None, "a.log"), content, signatures, scanner)
        found.append(plain(diagnose_collection(assemble([one])).diagnosis))
    assert found[0] == found[1]


_SCANNERS: dict[str, object] = {}


def _scanner(engine: str) -> object:
    if engine not in _SCANNERS:
        _SCANNERS[engine] = make_scanner(
            rules().signatures, cache=load_settings().cache_dir, engine=engine
        )
    return _SCANNERS[engine]


def stamped(rank: int, last: str, second: int) -> bytes:
    rows = [
        f"2026-03-01 02:{i // 60:02d}:{i % 60:02d} [rank{rank}] step {i} loss 2.5"
        for i in range(1, 100)
    ]
    rows += [f"2026-03-01 02:03:{second:02d} [rank{rank}]: {row}" for row in last.split("\n")]
    return "\n".join(rows).encode() + b"\n"


CRASH = 'Traceback (most recent call last):\n  File "/job/train.py", line 8, in f\nZeroDivisionError: division by zero'
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:41772"
JOB = {
    "rank_0.log": stamped(0, LOST, 20),
    "rank_1.log": stamped(1, LOST, 21),
    "rank_2.log": stamped(2, CRASH, 19),
    "dmesg.txt": b"[Sun Mar  1 01:00:00 2026] systemd[1]: Started\n",
}


def gist(diagnosis: Diagnosis) -> tuple[object, ...]:
    first = diagnosis.first_fault
    assert first is not None
    consequences = sorted((c.failure_type, c.count, tuple(c.ranks)) for c in diagnosis.consequences)
    return (
        diagnosis.failure_type,
        diagnosis.status,
        first.model_dump_json(),
        diagnosis.suspects,
        consequences,
    )


def test_the_verdict_does_not_depend_on_the_order_of_files() -> None:
    with folder_of(JOB) as folder:
        paths = [folder / name for name in JOB]
        found = {
            str(gist(diagnose_paths(order).diagnosis)) for order in itertools.permutations(paths)
        }
    assert len(found) == 1
    assert "rank_2.log" in found.pop()


def test_the_verdict_does_not_depend_on_the_number_of_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with folder_of(JOB) as folder:
        alone = plain(diagnose_collection(collect([folder], scan_plan(), workers=1)).diagnosis)
        monkeypatch.setattr(collecting, "PARALLEL_FROM", 0)
        shared = plain(diagnose_collection(collect([folder], scan_plan(), workers=2)).diagnosis)
    assert alone == shared
    assert alone["failure_type"] == "python_exception"


def test_the_verdict_does_not_depend_on_whether_a_file_was_kept_whole(
    monkeypatch: pytest.MonkeyPatch, diagnose: Callable[..., Diagnosis]
) -> None:
    source = random.Random(11)
    rows = [f"[rank{i % 4}]: fetched shard {source.randrange(10**6)}" for i in range(6_000)]
    rows[3_000:3_000] = [f"[rank2]: {row}" for row in CRASH.split("\n")]
    rows += [f"[rank{r}]: {LOST}" for r in (0, 1, 3)]
    whole = diagnose("\n".join(rows) + "\n")
    monkeypatch.setattr(surveying, "WHOLE_FILE", 4_096)
    thinned = diagnose("\n".join(rows) + "\n")
    assert gist(whole) == gist(thinned)
    assert whole.suspects.ranks == [2]
