"""Builds dumps of jobs that never ran: ranks enter operations in program order."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rerail.knowledge_base.waiting.dumps.judge import judge
from rerail.knowledge_base.waiting.dumps.verdict import DumpVerdict
from rerail.log_parsers.flight_recorder.model import Dump, DumpProblem, dump_from_plain
from rerail.log_parsers.flight_recorder.worker import reduce_dump

LIMITS = {"nodes": 10**6, "entries": 20_000}
SECOND = 10**9


@dataclass
class SyntheticJob:
    """A job whose ranks enter collectives; each rank counts for itself, so a skip shifts it."""

    world: int = 4
    groups: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    backend: str = "nccl"

    def __post_init__(self) -> None:
        self.groups = {"0": ("default_pg", list(range(self.world))), **self.groups}
        self.entries: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        self.seq: defaultdict[tuple[int, str], int] = defaultdict(int)
        self.p2p: defaultdict[tuple[int, str], int] = defaultdict(int)
        self.clock = 1_700_000_000 * SECOND

    def members(self, group: str) -> list[int]:
        return self.groups[group][1]

    def collective(
        self,
        op: str = "all_reduce",
        group: str = "0",
        *,
        ranks: list[int] | None = None,
        done: bool | list[int] = True,
        sizes: list[list[int]] | None = None,
        dtype: str = "Float",
        state: str = "scheduled",
    ) -> None:
        """Let `ranks` (all members if None) enter; `done` says which of them finish."""
        self.clock += SECOND // 1000
        for rank in self.members(group) if ranks is None else ranks:
            self.seq[rank, group] += 1
            finished = done if isinstance(done, bool) else rank in done
            self._add(rank, group, f"{self.backend}:{op}", finished, sizes or [[8]], dtype, state)

    def send(self, src: int, dst: int, group: str = "0", *, sent: bool, received: bool) -> None:
        """Let both sides enter unless they never do: `sent` and `received` say who did, unfinished."""
        self.clock += SECOND // 1000
        ranks = self.members(group)
        a, b = ranks.index(src), ranks.index(dst)
        for rank, name, there in ((src, f"send {a}->{b}", sent), (dst, f"recv {b}<-{a}", received)):
            if there:
                self.p2p[rank, group] += 1
                self._add(rank, group, f"{self.backend}:{name}", False, [[8]], "Float", p2p=True)

    def _add(
        self,
        rank: int,
        group: str,
        name: str,
        done: bool,
        sizes: list[list[int]],
        dtype: str,
        state: str = "scheduled",
        p2p: bool = False,
    ) -> None:
        gloo = self.backend == "gloo"
        self.entries[rank].append(
            {
                "record_id": len(self.entries[rank]),
                "pg_id": sorted(self.groups).index(group),
                "process_group": (group, self.groups[group][0]),
                "collective_seq_id": self.seq[rank, group],
                "p2p_seq_id": self.p2p[rank, group],
                "op_id": self.seq[rank, group] + self.p2p[rank, group],
                "profiling_name": name,
                "time_created_ns": self.clock + rank,
                "input_sizes": sizes,
                "input_dtypes": [dtype] * len(sizes),
                "output_sizes": sizes,
                "output_dtypes": [dtype] * len(sizes),
                "state": "completed" if done and not gloo else state,
                "time_discovered_started_ns": self.clock if state == "started" else None,
                "time_discovered_completed_ns": self.clock if done and not gloo else None,
                "retired": done,
                "timeout_ms": 600_000,
                "is_p2p": p2p,
            }
        )

    def raw(
        self, rank: int, *, last: int | None = None, active_only: bool = False
    ) -> dict[str, Any]:
        """Return a rank's dump as PyTorch would write it; `last` is the size of the ring buffer."""
        entries = self.entries[rank]
        status: dict[str, dict[str, int]] = {}
        for entry in entries:
            key = str(entry["pg_id"])
            old = status.get(key, {"last_completed_collective": -1})
            number = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
            done = number if entry["retired"] else old["last_completed_collective"]
            status[key] = {
                "last_enqueued_collective": number,
                "last_started_collective": -1,
                "last_completed_collective": done,
            }
        if active_only:
            entries = [e for e in entries if not e["retired"]]
        config: dict[str, Any] = {
            name: {"name": name, "desc": desc, "ranks": str(ranks)}
            for name, (desc, ranks) in self.groups.items()
            if rank in ranks
        }
        if self.backend == "gloo":
            config = {"": {"name": "", "desc": "", "ranks": "[]"}}
        return {
            "version": "2.10",
            "comm_lib_version": "2.27.3",
            "pg_config": config,
            "pg_status": status,
            "entries": entries[-last:] if last else entries,
        }

    def dump(self, rank: int, **how: Any) -> Dump:
        plain = json.loads(json.dumps(reduce_dump(self.raw(rank, **how), LIMITS)))
        dump = dump_from_plain(f"_dump_{rank}", plain, rank)
        assert isinstance(dump, Dump)
        return dump

    def verdict(
        self, *, without: tuple[int, ...] = (), truncated: tuple[int, ...] = (), **how: Any
    ) -> DumpVerdict:
        """Judge the job with some dumps absent and some cut short."""
        left = [r for r in range(self.world) if r not in without and r not in truncated]
        problems = [DumpProblem(f"_dump_{r}", r, "truncated", "ends early") for r in truncated]
        return judge([self.dump(rank, **how) for rank in left], problems)

    def write(self, folder: Path, rank: int, *, as_json: bool = False) -> Path:
        path = folder / (f"node_rank_{rank}.json" if as_json else f"nccl_trace_rank_{rank}")
        raw = self.raw(rank)
        path.write_bytes(json.dumps(raw).encode() if as_json else pickle.dumps(raw, 2))
        return path


@pytest.fixture
def synthetic() -> type[SyntheticJob]:
    return SyntheticJob
