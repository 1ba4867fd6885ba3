"""Call sequences of Megatron-like ranks with the true iteration: the data of the period table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.forecast.schedule import stage_order


@dataclass(frozen=True, eq=False)
class CallSequence:
    """The calls of one rank: symbols, the kind of each symbol, the true period and iterations."""

    symbols: IntArray
    kinds: list[str]
    period: int
    iterations: int
    ends: IntArray

    def spread(self, ends_s: FloatArray) -> FloatArray:
        """Return a time for each call such that iteration i ends at `ends_s[i]`; in seconds."""
        return np.interp(np.arange(len(self.symbols)), self.ends, ends_s)


@dataclass(frozen=True, slots=True)
class Extras:
    """What disturbs the period: calls every so many iterations, and the share of lost records."""

    log_every: int = 0
    eval_every: int = 0
    checkpoint_every: int = 0
    dropped: float = 0.0


FAMILIES = {
    "clean": Extras(),
    "log every 10": Extras(log_every=10),
    "eval every 50": Extras(eval_every=50),
    "eval 20, checkpoint 100, log 10": Extras(log_every=10, eval_every=20, checkpoint_every=100),
    "0.1 % dropped": Extras(dropped=0.001),
}


class _Book:
    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}

    def __call__(self, kind: str, what: str) -> int:
        return self.numbers.setdefault((kind, what), len(self.numbers))

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.numbers]


def draw(
    rng: np.random.Generator,
    extras: Extras,
    iterations: int = 120,
    stages: int | None = None,
    tensor: bool | None = None,
) -> CallSequence:
    """Draw one rank of a random job: layers, micro-batches, tensor, pipeline and data parallel."""
    book = _Book()
    stages = int(rng.choice([1, 2, 4, 8])) if stages is None else stages
    stage = int(rng.integers(stages))
    layers, micro = int(rng.integers(1, 17)), int(rng.integers(2, 33))
    if tensor is None:
        tensor = bool(rng.random() < 0.8) or stages == 1
    buckets = int(rng.integers(1, 5))
    body: list[int] = []
    for one in stage_order(stage, stages, micro):
        body += _pass(book, one.forward, stage, stages, layers, tensor)
    tail = [book("dp", f"reduce_scatter {i}") for i in range(buckets)]
    if rng.random() < 0.5 and stage in (0, stages - 1):
        tail.append(book("other", "embedding all_reduce"))
    tail.append(book("world", "grad norm all_reduce"))
    tail += [book("dp", f"all_gather {i}") for i in range(buckets)]
    plain = body + tail
    forward = []
    for _ in range(micro):
        forward += _pass(book, True, stage, stages, layers, tensor)
    calls: list[int] = []
    ends: list[int] = []
    for number in range(1, iterations + 1):
        calls += plain
        if extras.log_every and number % extras.log_every == 0:
            calls.append(book("world", "loss all_reduce"))
        if extras.eval_every and number % extras.eval_every == 0:
            calls += forward * 2 + [book("dp", "eval all_reduce")]
        if extras.checkpoint_every and number % extras.checkpoint_every == 0:
            calls += [book("world", "checkpoint barrier")] * 2
        ends.append(len(calls) - 1)
    symbols = np.array(calls, dtype=np.int64)
    if extras.dropped:
        symbols = symbols[rng.random(len(symbols)) >= extras.dropped]
    return CallSequence(symbols, book.kinds(), len(plain), iterations, np.array(ends))


def _pass(
    book: _Book, forward: bool, stage: int, stages: int, layers: int, tensor: bool
) -> list[int]:
    way = "forward" if forward else "backward"
    source, target = (stage - 1, stage + 1) if forward else (stage + 1, stage - 1)
    calls = []
    if 0 <= source < stages:
        calls.append(book("pp", f"{way} recv"))
    if tensor:
        calls += [book("tp", "all_reduce")] * (2 * layers)
    if 0 <= target < stages:
        calls.append(book("pp", f"{way} send"))
    return calls
