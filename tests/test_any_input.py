"""Whatever the bytes: no crash, a valid answer, and the same answer whatever the order or workers."""

import random
from functools import lru_cache

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rerail.assistant.pipeline import diagnose_collection, diagnose_paths, rules, scan_plan
from rerail.domain.diagnosis import Diagnosis
from rerail.log_parsers import collect as collecting
from rerail.log_parsers.collect import assemble
from rerail.log_parsers.scan import Scanner, make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import survey_bytes

WORDS = [
    "[rank3]: ", "12: ", "Traceback (most recent call last):", "RuntimeError: CUDA error", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1",
    "iteration 5/ 10 | lm loss: NaN |", "srun: error: n1: task 1: Killed", "\x1b[31m", "\r", "[E1122 06:40:00.5 x.cpp:1]", "exitcode  : -9 (pid: 4)",
    "WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1)", "Watchdog caught collective operation timeout: ", "rank 0 nranks 2 cudaDev 0 busId 3b000",
    '{"key": "eval_accuracy", "value": 1.0}', "During handling of the above exception, another exception occurred:", "step 99999999999999999999 loss 1e999",
]  # fmt: skip
LINES = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.lists(st.sampled_from(WORDS), max_size=3).map(lambda w: "".join(w).encode()),
    ),
    max_size=40,
)


@lru_cache(maxsize=1)
def scanner() -> Scanner:
    plan = scan_plan()
    return make_scanner(plan.signatures, cache=plan.cache, engine=plan.engine)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LINES)
def test_any_bytes_give_a_valid_diagnosis(lines):
    one = survey_bytes(Source(None, "x.log"), b"\n".join(lines), rules().signatures, scanner())
    diagnosis = diagnose_collection(assemble([one])).diagnosis
    assert Diagnosis.model_validate_json(diagnosis.model_dump_json()) == diagnosis


def stripped(diagnosis):
    return diagnosis.model_dump(exclude={"elapsed_s"})


def test_order_and_workers_do_not_matter(tmp_path, monkeypatch):
    rng = random.Random(3)
    for rank in range(6):
        lines = [
            f"2024-11-22 06:{i // 60:02d}:{i % 60:02d},000 [rank{rank}] step {i} loss {3 - i / 100:.3f}"
            for i in range(200)
        ]
        if rank == 4:
            lines += [
                "[rank4]: Traceback (most recent call last):",
                '[rank4]:   File "/j/t.py", line 1, in f',
                "[rank4]: ZeroDivisionError: division by zero",
            ]
        else:
            lines.append(
                f"[rank{rank}]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.4]:4286"
            )
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")
    paths = sorted(tmp_path.iterdir())
    first = diagnose_paths(paths).diagnosis
    assert (first.failure_type, first.suspects.ranks) == ("python_exception", [4])
    rng.shuffle(paths)
    again = diagnose_paths(paths).diagnosis
    assert (again.first_fault, again.failure_type, again.suspects) == (
        first.first_fault,
        first.failure_type,
        first.suspects,
    )
    monkeypatch.setattr(collecting, "PARALLEL_FROM", 0)
    parallel = collecting.collect(sorted(paths), scan_plan(), workers=2)
    assert stripped(diagnose_collection(parallel).diagnosis) == stripped(first)
