"""Places told in wordings that are put together at random: no list of ours has them, most are read, and none names another host.

The parts are those of real programs; how they are combined, in which order and behind which logger's front, is drawn with a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.late_dataclass import dataclass

HOSTS = (
    ("gpu-a01", "gpu-a02", "gpu-a03", "gpu-a04"),
    ("10.4.2.11", "10.4.2.12", "10.4.2.31", "10.4.2.7"),
    ("dgx01.hpc.lab", "dgx02.hpc.lab", "dgx03.hpc.lab", "dgx04.hpc.lab"),
    ("ip-10-0-3-4", "ip-10-0-3-9", "ip-10-0-4-1", "ip-10-0-5-2"),
    ("llm-worker-0", "llm-worker-1", "llm-worker-2", "llm-worker-3"),
)
LOGGERS = (
    "",
    "{t} ",
    "{t} INFO ",
    "[{t}] ",
    "INFO:root:",
    "{t} INFO trainer.py:41 - ",
    "[init] ",
    "{t} | INFO | ",
)
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
SAMPLES = 150


@dataclass(frozen=True, slots=True)
class Told:
    """A log, the rank and the host of its fault."""

    log: str
    rank: int
    node: str | None


def front(draw: random.Random, second: int = 1) -> str:
    """Return what a logger puts in front of a line."""
    return draw.choice(LOGGERS).format(t=f"2026-03-02 10:00:{second:02d},123")


def start_lines(draw: random.Random) -> Told:
    """One line of each process: a word and its rank, a word and its host, in any order."""
    ranks = (
        "rank",
        "Rank",
        "RANK",
        "global rank",
        "global_rank",
        "process_index",
        "proc",
        "rank_id",
        "PROCID",
        "worker",
        "task",
        "dist_rank",
    )
    hosts = (
        "host",
        "hostname",
        "node",
        "HOSTNAME",
        "on",
        "machine",
        "@",
        "running on",
        "nodename",
        "server",
    )
    word, called, tie = (
        draw.choice(ranks),
        draw.choice(hosts),
        draw.choice((" ", "=", ": ", ":", " = ")),
    )
    apart, turned = draw.choice((" ", ", ", " | ", "; ", " -> ", " / ", "\t")), draw.random() < 0.3
    more = draw.choice(("", "pid={p}", "local_rank={l}", "cuda:{l}", "gpu {l}"))
    logger, names, each = front(draw), draw.choice(HOSTS), draw.choice((1, 2))
    at = "" if called in ("on", "@", "running on") else tie
    rows = []
    for rank in range(4 * each):
        said = [f"{word}{tie}{rank}", f"{called}{at or ' '}{names[rank // each]}"]
        last = [more.format(p=4100 + 7 * rank, l=rank % each)] if more else []
        rows.append(logger + apart.join([*(reversed(said) if turned else said), *last]))
    rank = draw.randrange(4 * each)
    return Told("\n".join([*rows, f"[rank{rank}]: {OUT_OF_MEMORY}"]), rank, names[rank // each])


def lists(draw: random.Random) -> Told:
    """Hosts with the ranges of their ranks, their counts, or the numbers of their nodes, on one line or on several."""
    names, each = draw.choice(HOSTS), draw.choice((2, 4, 8))
    spans = [(number * each, number * each + each - 1) for number in range(4)]
    form = draw.choice(("{h}: ranks {a}-{b}", "ranks {a}-{b} on {h}", "{h} holds ranks {a}..{b}", "host {h}: rank {a} to {b}", "node_rank={k} host={h}",
                        "node rank {k}: {h}", "NODE_RANK={k} HOSTNAME={h}", "node {k} -> {h}", "{h} slots={c}"))  # fmt: skip
    rows = [
        form.format(h=h, a=a, b=b, k=k, c=each)
        for k, (h, (a, b)) in enumerate(zip(names, spans, strict=True))
    ]
    count = draw.choice(
        ("nproc_per_node={c}", "{c} GPUs per node", "gpus_per_node: {c}", "{c} processes per node")
    ).format(c=each)
    logger = "" if "slots" in form else front(draw)
    listed = (
        [logger + "; ".join(rows)]
        if draw.random() < 0.5 and "slots" not in form
        else [logger + row for row in rows]
    )
    rank = draw.randrange(4 * each)
    return Told(
        "\n".join([logger + count, *listed, f"[rank{rank}]: {OUT_OF_MEMORY}"]),
        rank,
        names[rank // each],
    )


def fronts(draw: random.Random) -> Told:
    """Labels in front of lines: a rank in some signs, a host in some signs, behind or in front of a logger's words."""
    ranks = (
        "[rank{r}]",
        "rank {r} |",
        "[RK {r}]",
        "R{r}:",
        "[R{r}]",
        "rank_{r}",
        "rank-{r}",
        "[rk{r}]",
        "[PE{r}]",
        "mpi_rank={r}",
        "dist_rank={r}",
        "[rank {r}/{w}]",
    )
    hosts = ("", "{h}", "[{h}]", "host={h}", "({h})", "node={h}", "@{h}", "<{h}>")
    rank_form, host_form = draw.choice(ranks), draw.choice(hosts)
    logger, first, names = draw.choice(LOGGERS), draw.random() < 0.4, draw.choice(HOSTS)

    def line(rank: int, second: int, text: str) -> str:
        parts = [rank_form.format(r=rank, w=4), host_form.format(h=names[rank])]
        label = " ".join(part for part in (reversed(parts) if first else parts) if part)
        return logger.format(t=f"2026-03-02 10:00:{second:02d},123") + f"{label} {text}"

    said = [
        (rank, f"step {step} loss 2.{step}")
        for step in range(3)
        for rank in draw.sample(range(4), 4)
    ]
    rank = draw.randrange(4)
    lines = [
        line(who, second, text) for second, (who, text) in enumerate([*said, (rank, OUT_OF_MEMORY)])
    ]
    lines[-1] = lines[-1].replace("INFO", "ERROR")
    return Told("\n".join(lines), rank, names[rank] if host_form else None)


@pytest.mark.parametrize(
    ("tell", "of_ranks", "of_nodes"),
    [(start_lines, 0.99, 0.95), (lists, 0.99, 0.95), (fronts, 0.9, 0.9)],
)
def test_most_wordings_lead_to_the_place_and_none_to_another_host(
    tell: Callable[[random.Random], Told], of_ranks: float, of_nodes: float
) -> None:
    draw = random.Random(7)
    told = [tell(draw) for _ in range(SAMPLES)]
    ranks, nodes, others = 0, 0, []
    for one in told:
        found = diagnose_texts({"job.log": one.log + "\n"}).diagnosis
        assert found.first_fault is not None
        node = found.first_fault.node
        ranks += found.first_fault.rank == one.rank
        nodes += node == one.node
        if node not in (one.node, None) or found.first_fault.rank not in (one.rank, None):
            others.append((one.log, one.node, node))
    assert not others
    assert (ranks >= of_ranks * SAMPLES, nodes >= of_nodes * SAMPLES) == (True, True), (
        ranks,
        nodes,
    )
