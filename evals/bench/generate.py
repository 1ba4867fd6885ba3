"""Generates the logs of a failed 64-rank job at any size, with the truth about them.

One block of interleaved lines is laid out once as a single printf format; each repetition fills
its slots with new random numbers, the time and the step, so a gigabyte takes seconds and no two
blocks are equal. Rare statements, lines of 20 kB, one injected cause on one rank and its cascade on
the others are put between blocks, where their line numbers are known.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from rerail.evals.bench.statements import CASCADE, CAUSES, SLOTS, STATEMENTS, rare_statements

RANKS = 64
CULPRIT = 17
_RARE = 3_000
_SLOT = re.compile(r"\{\{|\}\}|\{(\w+)\}")


@dataclass(slots=True)
class Truth:
    """What was put into one generated log, with physical line numbers from 1."""

    path: str
    size: int = 0
    lines: int = 0
    cause: str = ""
    cause_line: int = 0
    cause_text: str = ""
    culprit: int = CULPRIT
    cascade_lines: list[int] = field(default_factory=list)
    rare_lines: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Layout:
    """A printf format over many lines, and the range and kind of each of its arguments."""

    text: bytes
    low: np.ndarray[Any, Any]
    high: np.ndarray[Any, Any]
    times: np.ndarray[Any, Any]
    steps: np.ndarray[Any, Any]
    statements: tuple[int, ...]
    lines: int

    def fill(self, numbers: np.random.Generator, repetition: int) -> bytes:
        values = numbers.integers(self.low, self.high).tolist()
        clock = repetition * 7 % 86_400
        stamp = b"2026-03-01 %02d:%02d:%02d" % (clock // 3600, clock // 60 % 60, clock % 60)
        for at in self.times.tolist():
            values[at] = stamp
        for at in self.steps.tolist():
            values[at] += repetition * 10
        return self.text % tuple(values)


def _layout(lines: list[tuple[int, str, str]]) -> _Layout:
    """Compile (statement, prefix, text) lines into one printf format."""
    text = bytearray()
    low: list[int] = []
    high: list[int] = []
    times: list[int] = []
    steps: list[int] = []

    for _, prefix, body in lines:
        text += prefix.encode()
        last = 0
        for match in _SLOT.finditer(body):
            text += body[last : match.start()].encode().replace(b"%", b"%%")
            last = match.end()
            if match[1] is None:
                text += match[0][:1].encode()
            elif match[1] == "T":
                times.append(len(low))
                low.append(0)
                high.append(1)
                text += b"%s"
            elif match[1] == "S":
                steps.append(len(low))
                low.append(0)
                high.append(10)
                text += b"%8d" if "iteration" in body else b"%d"
            else:
                form, spans = SLOTS[match[1]]
                text += form
                low += [a for a, _ in spans]
                high += [b for _, b in spans]
        text += body[last:].encode().replace(b"%", b"%%") + b"\n"
    return _Layout(
        bytes(text),
        np.array(low, np.int64),
        np.array(high, np.int64),
        np.array(times, np.int64),
        np.array(steps, np.int64),
        tuple(statement for statement, _, _ in lines),
        len(lines),
    )


def _block(rng: random.Random, ranks: range, prefixed: bool) -> list[tuple[int, str, str]]:
    lines = [
        (number, f"[rank{rank}]: " if prefixed else "", text)
        for rank in ranks
        for number, (weight, text) in enumerate(STATEMENTS)
        for _ in range(weight)
    ]
    rng.shuffle(lines)
    return lines


class _Writer:
    """Writes blocks and single lines of one log and keeps count of its lines."""

    def __init__(self, out: IO[bytes], truth: Truth, seed: int) -> None:
        self.truth = truth
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self._out = out

    def block(self, layout: _Layout, repetition: int) -> None:
        data = layout.fill(self.numbers, repetition)
        self._out.write(data)
        self.truth.size += len(data)
        self.truth.lines += layout.lines

    def line(self, text: str, rank: int, repetition: int, prefixed: bool) -> int:
        prefix = f"[rank{rank}]: " if prefixed else ""
        self.block(_layout([(0, prefix, text)]), repetition)
        return self.truth.lines


def write_log(
    path: Path, size: int, *, seed: int, cause: str = "cuda_oom", rank: int | None = None
) -> Truth:
    """Write one log of about `size` bytes and return the truth about it.

    Args:
        path: the file to write.
        size: bytes wanted; reached to within one block (some 2 MB for a merged log).
        seed: the same seed gives the same bytes.
        cause: a name in `CAUSES`.
        rank: write the log of this rank alone; None merges all ranks behind `[rankN]:` labels.
    """
    truth = Truth(str(path), cause=cause)
    prefixed = rank is None
    ranks = range(RANKS) if rank is None else range(rank, rank + 1)
    with path.open("wb") as out:
        writer = _Writer(out, truth, seed)
        rng = writer.rng
        per_block = 4 if prefixed else max(1, min(40, size // 20_000))
        layout = _layout([line for _ in range(per_block) for line in _block(rng, ranks, prefixed)])
        rare = iter(rare_statements(random.Random(0), _RARE))
        repetition = 0
        pause = max(1, int(size / max(1, len(layout.text)) / 150))
        while truth.size < size - 40_000:
            writer.block(layout, repetition)
            if repetition % pause == 0:
                for _ in range(20):
                    text = next(rare, None)
                    if text is not None:
                        at = writer.line(text, rng.choice(ranks), repetition, prefixed)
                        truth.rare_lines.append(at)
                config = " ".join(f"layer{i}.weight=[{i * 7 % 91}]" for i in range(900))
                writer.line(f"parameters: {config}", rng.choice(ranks), repetition, prefixed)
            repetition += 1
        _fail(writer, ranks, cause, repetition, prefixed)
    return truth


def _fail(writer: _Writer, ranks: range, cause: str, repetition: int, prefixed: bool) -> None:
    truth = writer.truth
    if CULPRIT in ranks:
        for text in CAUSES[cause]:
            escaped = text.replace("{", "{{").replace("}", "}}")
            truth.cause_line = writer.line(escaped, CULPRIT, repetition, prefixed)
            truth.cause_text = text
    victims = [rank for rank in ranks if rank != CULPRIT]
    queue = {rank: list(CASCADE) for rank in victims}
    while queue:
        rank = writer.rng.choice(sorted(queue))
        at = writer.line(queue[rank].pop(0), rank, repetition + 90, prefixed)
        truth.cascade_lines.append(at)
        if not queue[rank]:
            del queue[rank]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Generated logs: one merged file, one file per rank, and the truth about each."""

    folder: Path
    merged: Truth
    ranks: tuple[Truth, ...]


def make_dataset(folder: Path, size: int, *, seed: int = 7, ranks: int = RANKS) -> Dataset:
    """Write a merged log of `size` bytes and rank logs of as many in total, or reuse them."""
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "truth.json"
    wanted = {"size": size, "seed": seed, "ranks": ranks, "version": 3}
    if note.is_file():
        stored = json.loads(note.read_text(encoding="utf-8"))
        if stored["wanted"] == wanted:
            merged = Truth(**stored["merged"])
            return Dataset(folder, merged, tuple(Truth(**item) for item in stored["rank_files"]))
    merged = write_log(folder / "merged.log", size, seed=seed)
    (folder / "ranks").mkdir(exist_ok=True)
    files = tuple(
        write_log(folder / "ranks" / f"rank_{rank}.log", size // ranks, seed=seed + rank, rank=rank)
        for rank in range(ranks)
    )
    stored = {
        "wanted": wanted,
        "merged": asdict(merged),
        "rank_files": [asdict(truth) for truth in files],
    }
    note.write_text(json.dumps(stored), encoding="utf-8")
    return Dataset(folder, merged, files)


def compress(path: Path) -> Path:
    """Write `path` as gzip beside it, once, and return the new path."""
    packed = path.with_name(path.name + ".gz")
    if not packed.is_file() or packed.stat().st_mtime < path.stat().st_mtime:
        with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            while chunk := source.read(1 << 20):
                target.write(chunk)
    return packed


def labelled_lines(count: int, *, seed: int = 11) -> Iterator[tuple[int, bytes]]:
    """Yield (statement number, line or progress frame) of a merged log, rare statements included.

    The order is that of a log; a progress line is given frame by frame, so that every miner sees
    the same lines.
    """
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    layout = _layout(_block(rng, range(RANKS), True))
    rare = enumerate(rare_statements(random.Random(0), _RARE), len(STATEMENTS))
    given = repetition = 0
    while given < count:
        printed = layout.fill(numbers, repetition).split(b"\n")
        lines = list(zip(layout.statements, printed, strict=False))
        for number, body in [next(rare, (-1, "")) for _ in range(12)]:
            if number >= 0:
                one = _layout([(number, f"[rank{rng.randrange(RANKS)}]: ", body)])
                lines.append((number, one.fill(numbers, repetition).rstrip(b"\n")))
        for statement, line in lines:
            frames = line.split(b"\r")
            for frame in frames[1:] if len(frames) > 1 else frames:
                yield statement, frame
                given += 1
                if given >= count:
                    return
        repetition += 1
