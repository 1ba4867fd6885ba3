"""Lines of time-outs that were counted and not kept, of ranks that no label tells: nobody is named for his absence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str], Diagnosis]
RECORDED = Path(__file__).parents[1] / "data" / "launchers"

SILENT, EACH = 43, 8
AT = "2026-03-01 02"


def log(ranks: int) -> str:
    """A host in front of lines whose rank only PyTorch's own words tell, which are kept of some."""
    told = [
        f"gn-{rank // EACH:03d}: {AT}:00:{step:02d} step {step}/900 loss 3.{step:02d}"
        for step in range(1, 41)
        for rank in range(ranks)
    ]
    call = "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000)"
    told += [
        f"gn-{rank // EACH:03d}: {AT}:11:07 [E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: {call} ran for 600012 milliseconds before timing out."
        for rank in range(ranks)
        if rank != SILENT
    ]
    return "\n".join([*told, ""])


@pytest.mark.parametrize("ranks", [64, 512])
def test_nobody_is_named_where_more_gave_up_than_are_known(ranks: int, diagnose: Run) -> None:
    found = diagnose(log(ranks))
    assert found.suspects.ranks in ([], [SILENT])
    told = any("which ranks gave up" in one.what for one in found.missing)
    assert told == (ranks == 512)


@pytest.mark.parametrize("launcher", ["dask", "mindspore", "paddle"])
def test_what_a_launcher_prints_again_without_a_rank_hides_nobody(launcher: str) -> None:
    found = diagnose_paths([RECORDED / launcher / "hang"]).diagnosis
    assert found.suspects.ranks == [3]
