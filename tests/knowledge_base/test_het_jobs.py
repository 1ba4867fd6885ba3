"""Tasks of a heterogeneous job are counted in each of its parts, and are no ranks."""

from __future__ import annotations

EXIT = "srun: error: gn-04: task 0: Exited with exit code 1\n"


def test_a_task_of_a_part_is_no_rank(diagnose):
    whole = diagnose({"job.out": EXIT, "sacct.txt": "11|train|FAILED|1:0|gn-04\n"})
    parts = diagnose(
        {
            "job.out": EXIT,
            "sacct.txt": "11+0|train|COMPLETED|0:0|gn-03\n11+1|train|FAILED|1:0|gn-04\n",
        }
    )
    assert (whole.suspects.ranks, whole.suspects.nodes) == ([0], ["gn-04"])
    assert (parts.suspects.ranks, parts.suspects.nodes) == ([], ["gn-04"])
