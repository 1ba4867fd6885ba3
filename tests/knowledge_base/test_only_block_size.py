"""How many ranks a host holds is told by the ranks that are known of several hosts, where one size alone fits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str], Diagnosis]

LOST = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
KILLED = "[ERROR] failed (exitcode: -9) local_rank: 1 (pid: 9921) of binary: /opt/conda/bin/python"


def log(ranks: dict[str, tuple[int, ...]]) -> str:
    return "".join(
        f"{host}: [rank{rank}]: {text}\n"
        for host, there in ranks.items()
        for rank in there
        for text in ("step 40 loss 2.1", LOST)
    )


@pytest.mark.parametrize(
    ("ranks", "rank"),
    [
        ({"gn-11": (0, 3), "gn-12": (4, 6, 7)}, 5),
        ({"gn-11": (1, 2, 6), "gn-12": (8, 10, 15)}, 9),
        ({"gn-11": (0, 1), "gn-12": (8, 10)}, None),
        ({"gn-11": (0, 2, 4), "gn-12": (1, 3, 5)}, None),
        ({"gn-11": (0,), "gn-12": (8,)}, None),
    ],
    ids=["blocks of four", "of eight", "several sizes fit", "dealt in turn", "one of each"],
)
def test_a_killed_local_rank_is_a_rank_of_the_job(
    ranks: dict[str, tuple[int, ...]], rank: int | None, diagnose: Run
) -> None:
    kernel = "gn-12 kernel: Out of memory: Killed process 9921 (python) total-vm:301221120kB, anon-rss:188311020kB"
    found = diagnose(
        f"{log(ranks)}gn-12: [2026-01-08 03:20:19,311] torch.distributed.elastic.multiprocessing.api: {KILLED}\n"
        f"Jan 08 03:20:10 {kernel}\n"
    )
    assert found.first_fault is not None
    assert (found.first_fault.rank, found.first_fault.node) == (rank, "gn-12")
