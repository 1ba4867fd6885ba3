"""Draw many steps of a program at once: one array operation per op, samples as the array axis.

Durations are drawn by sixteen random bits from tables of equally likely values, which costs less
than a normal number and serves any distribution. Blocks of samples run on two threads; a block's
numbers depend on its own number only, so that any count of threads gives the same result.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray
from rerail.tools.forecast.durations import Duration
from rerail.tools.forecast.program import Program

BLOCK = 10_000
_ROWS = 64
Float32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Draw:
    """How one op's duration is drawn: shift + scale * value of the table, in seconds.

    `shift` and `scale` are numbers or arrays over samples (persistent effects).
    """

    duration: Duration
    shift: float | FloatArray = 0.0
    scale: float | FloatArray = 1.0


def simulate(
    program: Program, draws: Sequence[Draw], samples: int, seed: int = 0, threads: int | None = None
) -> FloatArray:
    """Return the time at which the last op ends [samples], in seconds.

    `draws` has one entry per op; the same seed gives the same random bits to the same ops, so that
    two what-ifs differ by what was changed and not by luck.
    """
    plan = _Plan(program, draws)
    blocks = [(i, min(BLOCK, samples - i)) for i in range(0, samples, BLOCK)]

    def one(block: tuple[int, int]) -> FloatArray:
        return plan.run(block[0], block[1], seed)

    workers = threads or min(4, os.cpu_count() or 1)
    if len(blocks) == 1 or workers == 1:
        return np.concatenate([one(block) for block in blocks])
    with ThreadPoolExecutor(workers) as pool:
        return np.concatenate(list(pool.map(one, blocks)))


def ends_of_all(program: Program, draws: Sequence[Draw], samples: int, seed: int = 0) -> Float32:
    """Return the end of every op [ops, samples], in seconds; at most 10,000 samples."""
    plan = _Plan(program, draws)
    return plan.all_ends(min(samples, BLOCK), seed)


def deterministic(program: Program, seconds: Sequence[FloatArray | float]) -> FloatArray:
    """Return the end of the last op for given durations, each a number or an array of one shape."""
    end: list[FloatArray | float] = []
    for v, node in enumerate(program.nodes):
        start: FloatArray | float = 0.0
        for u in node.before:
            start = np.maximum(start, end[u])
        end.append(start + seconds[v])
    latest: FloatArray | float = 0.0
    for v in program.sinks:
        latest = np.maximum(latest, end[v])
    return np.asarray(latest, dtype=np.float64)


class _Plan:
    """A program with its tables in single precision and the row of random bits of each op."""

    def __init__(self, program: Program, draws: Sequence[Draw]) -> None:
        self.program = program
        self.draws = draws
        tables: dict[int, Float32] = {}
        self.table: list[Float32 | None] = []
        self.fixed: list[float] = []
        for draw in draws:
            one = draw.duration
            if one.sd == 0.0:
                self.table.append(None)
                self.fixed.append(one.mean)
                continue
            if id(one) not in tables:
                tables[id(one)] = one.table.astype(np.float32)
            self.table.append(tables[id(one)])
            self.fixed.append(0.0)
        self.row: list[int] = []
        rows = 0
        for table in self.table:
            self.row.append(rows)
            rows += table is not None
        release: list[list[int]] = [[] for _ in program.nodes]
        for u, v in enumerate(program.last_use):
            if v < len(program.nodes):
                release[v].append(u)
        self.release = release
        self.sinks = set(program.sinks)

    def run(self, first: int, count: int, seed: int) -> FloatArray:
        latest: Float32 | None = None
        ends: list[Float32 | None] = [None] * len(self.program.nodes)
        bits = _Bits(seed, first, count)
        buffer = np.empty(count, dtype=np.float32)
        for v in range(len(self.program.nodes)):
            end = self._end(v, ends, bits, buffer, first, count)
            for u in self.release[v]:
                ends[u] = None
            if v in self.sinks:
                latest = end if latest is None else np.maximum(latest, end)
            else:
                ends[v] = end
        assert latest is not None
        return latest.astype(np.float64)

    def all_ends(self, count: int, seed: int) -> Float32:
        ends: list[Float32 | None] = [None] * len(self.program.nodes)
        bits = _Bits(seed, 0, count)
        buffer = np.empty(count, dtype=np.float32)
        for v in range(len(self.program.nodes)):
            ends[v] = self._end(v, ends, bits, buffer, 0, count)
        return np.stack([end for end in ends if end is not None])

    def _end(
        self, v: int, ends: list[Float32 | None], bits: _Bits, buffer: Float32, first: int,
        count: int,
    ) -> Float32:  # fmt: skip
        draw = self.draws[v]
        table = self.table[v]
        work: Float32
        if table is None:
            work = np.full(count, self.fixed[v], dtype=np.float32)
        else:
            work = np.take(table, bits.row(self.row[v]), out=buffer, mode="clip")
        if isinstance(draw.scale, np.ndarray):
            work = work * draw.scale[first : first + count].astype(np.float32)
        elif draw.scale != 1.0:
            work = work * np.float32(draw.scale)
        if isinstance(draw.shift, np.ndarray):
            work = work + draw.shift[first : first + count].astype(np.float32)
        elif draw.shift != 0.0:
            work = work + np.float32(draw.shift)
        before = self.program.nodes[v].before
        if not before:
            return work.copy()
        start = ends[before[0]]
        assert start is not None
        if len(before) == 1:
            return start + work
        end: Float32 = start
        for u in before[1:]:
            other = ends[u]
            assert other is not None
            end = np.maximum(end, other)
        end += work
        return end


class _Bits:
    """Random indices into a table, 64 ops at a time: rows are taken in rising order."""

    def __init__(self, seed: int, first: int, count: int) -> None:
        self.count = count
        self.padded = -(-count // 4)
        self.source = np.random.SFC64(np.random.SeedSequence([seed, first]))
        self.first_row = 0
        self.rows = self._more()

    def _more(self) -> NDArray[np.uint16]:
        raw = self.source.random_raw(self.padded * _ROWS)
        return raw.view(np.uint16).reshape(_ROWS, self.padded * 4)

    def row(self, number: int) -> NDArray[np.uint16]:
        while number >= self.first_row + _ROWS:
            self.first_row += _ROWS
            self.rows = self._more()
        return self.rows[number - self.first_row, : self.count]
