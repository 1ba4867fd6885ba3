"""Writers that introduce themselves by nothing but their ranks, and what speaks against believing them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str | dict[str, str]], Diagnosis]
FAULT = "OSError: [Errno 28] No space left on device: '/scratch/a.pt'\n"
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n'


def place(found: Diagnosis) -> tuple[int | None, str | None]:
    assert found.first_fault is not None
    return found.first_fault.rank, found.first_fault.node


def raised_by(front: str) -> str:
    return "".join(f"{front}{line}\n" for line in (TRACE + FAULT).rstrip().split("\n"))


def test_hosts_that_say_which_rank_they_are(diagnose: Run) -> None:
    said = "".join(f"a40-{n}: rank {n - 1} local 0\n" for n in (1, 2, 3))
    assert place(diagnose(said + raised_by("a40-3: "))) == (2, "a40-3")


def test_processes_of_ray_by_their_ids(diagnose: Run) -> None:
    said = "".join(
        f"(TrainerActor pid={pid}, ip=10.7.34.{host}) actor rank={rank} world_size=16\n"
        for pid, host, rank in ((5226, 138, 11), (5227, 138, 12), (3001, 101, 0))
    )
    assert place(diagnose(said + raised_by("(TrainerActor pid=5227, ip=10.7.34.138) "))) == (
        12,
        "10.7.34.138",
    )


def test_files_of_processes(diagnose: Run) -> None:
    logs = {
        f"{name}.log": f"RANK={rank} WORLD_SIZE=3\nstep 5 ok\n"
        for rank, name in enumerate(("genf", "bern", "zug"))
    }
    logs["zug.log"] += TRACE + FAULT
    assert place(diagnose(logs))[0] == 2


@pytest.mark.parametrize(
    "said",
    [
        "a40-3: rank 2 local 0\n",
        "a40-1: rank 0 up\na40-1: rank 1 up\na40-3: rank 2 up\n",
        "a40-1: rank 0 up\na40-3: rank 0 up\n",
        "a40-1: rank 3 up\na40-3: rank 9 up\n",
        "a40-1: waiting for rank 0\na40-3: waiting for rank 1\n",
    ],
    ids=["one alone", "two of one host", "one rank twice", "with a gap", "of others"],
)
def test_what_proves_no_rank(diagnose: Run, said: str) -> None:
    assert place(diagnose(said + raised_by("a40-3: ")))[0] is None
