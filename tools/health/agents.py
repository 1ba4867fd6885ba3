"""Runs the health tests on real nodes: one agent a node, one coordinator, two-node worlds.

Every pair forms a process group of its own, so a dead or hanging node spoils its own pair only. The
coordinator speaks to agents through a TCP store: it publishes which pairs to test, waits for the
results until a deadline, and counts silence as failure.
"""
# mypy: allow-untyped-calls, no-warn-unused-ignores

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from rerail.errors import ClusterError
from rerail.tools.health.agreement import confirm
from rerail.tools.health.compute import ComputeResult, compare_speeds, measure_compute
from rerail.tools.health.digests import Majority, by_majority
from rerail.tools.health.find_faulty import FaultyNodes, find_faulty
from rerail.tools.health.find_slow import ROUNDS, SlowParts, find_slow
from rerail.tools.health.pairs import Pair, pairs_of_round

END = "end"
SLACK_S = 3.0
ASK_S = 0.05


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and times of the tests. `message_bytes` is what each side of a pair sends."""

    message_bytes: int = 8 << 20
    repeats: int = 3
    join_s: float = 120.0
    pair_s: float = 20.0
    matrix_side: int | None = None


@dataclass
class HealthReport:
    """What was found. Nodes are given by the names under which they joined.

    `unsure` holds what was slow in some measurements only, or while it waited for a core: no
    finding, and no clean bill either.
    """

    nodes: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    faulty: list[str] = field(default_factory=list)
    suspects: list[str] = field(default_factory=list)
    slow: dict[str, float] = field(default_factory=dict)
    slow_links: dict[str, float] = field(default_factory=dict)
    slow_compute: dict[str, float] = field(default_factory=dict)
    unsure: dict[str, float] = field(default_factory=dict)
    wrong_bits: list[str] = field(default_factory=list)
    unstable_bits: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rounds: int = 0
    elapsed_s: float = 0.0

    @property
    def healthy(self) -> bool:
        """Whether nothing and nobody was found wanting."""
        found = (self.absent, self.faulty, self.suspects, self.wrong_bits, self.unstable_bits)
        return not any(found) and not (self.slow or self.slow_links or self.slow_compute)


def _connect(address: str, port: int, *, host: bool, limit_s: float) -> Any:
    import torch.distributed as dist

    try:
        return dist.TCPStore(  # type: ignore[attr-defined]
            address,
            port,
            is_master=host,
            timeout=timedelta(seconds=limit_s),
            wait_for_workers=False,
        )
    except Exception as error:
        raise ClusterError(
            f"no coordinator at {address}:{port}: {str(error).splitlines()[0]}",
            subject=f"{address}:{port}",
            hint="start rank 0 first; it coordinates",
        ) from None


def open_store(port: int, limits: Limits) -> Any:
    """Start the store that coordinator and agents share, in this process."""
    return _connect("127.0.0.1", port, host=True, limit_s=limits.join_s)


def run_agent(rank: int, name: str, address: str, port: int, device: str, limits: Limits) -> None:
    """Take part as one node until the coordinator says that it is over.

    Raises:
        ClusterError: The coordinator cannot be reached, or went away.
    """
    store = _connect(address, port, host=False, limit_s=limits.join_s)
    compute = measure_compute(device, size=limits.matrix_side)
    store.set(f"hello/{rank}", json.dumps({"name": name, "compute": asdict(compute)}))
    number = 0
    while True:
        order = _next_order(store, number, limits, address)
        if order == END:
            store.set(f"bye/{rank}", "1")
            return
        if order.get("compute"):
            compute = measure_compute(device, size=limits.matrix_side)
            store.set(f"compute/{number}/{rank}", json.dumps(asdict(compute)))
        for pair in order["pairs"]:
            if rank in pair:
                result = _test_pair(store, number, pair, rank, device, order["repeats"], limits)
                store.set(f"result/{number}/{rank}", json.dumps(result))
        number += 1


def _next_order(store: Any, number: int, limits: Limits, address: str) -> Any:
    """Return the next order of the coordinator; asked for again and again until it is there."""
    deadline = time.monotonic() + limits.join_s + 10 * limits.pair_s
    try:
        while time.monotonic() < deadline:
            if store.check([f"order/{number}"]):
                return json.loads(store.get(f"order/{number}"))
            time.sleep(ASK_S)
    except Exception as error:
        raise ClusterError(
            f"the coordinator went away: {str(error).splitlines()[0]}", subject=address
        ) from None
    raise ClusterError("the coordinator gives no more orders", subject=address)


def _test_pair(
    store: Any, number: int, pair: list[int], rank: int, device: str, repeats: int, limits: Limits
) -> dict[str, Any]:
    """Exchange data with the partner; return whether all was right, and the best bandwidth."""
    import torch
    import torch.distributed as dist

    place = pair.index(rank)
    own_store = dist.PrefixStore(  # type: ignore[attr-defined]
        f"world/{number}/{pair[0]}-{pair[1]}", store
    )
    try:
        world = _two_node_world(dist, own_store, place, device, limits.pair_s)
        best = 0.0
        count = limits.message_bytes // 4
        received = [torch.empty(count, dtype=torch.int32, device=device) for _ in pair]
        for repeat in range(repeats + 1):
            sent = torch.full((count,), 1000 * repeat + place, dtype=torch.int32, device=device)
            began = time.perf_counter()
            world.allgather([received], [sent]).wait()
            right = [bool((got == 1000 * repeat + who).all()) for who, got in enumerate(received)]
            took = time.perf_counter() - began
            if not all(right):
                return {"ok": False, "why": "received data differs from what was sent"}
            if repeat:  # the first exchange opens connections
                best = max(best, limits.message_bytes / took)
        return {"ok": True, "bytes_per_s": best}
    except Exception as error:  # whatever the backend raises means that the pair does not work
        return {"ok": False, "why": str(error).splitlines()[0][:200]}


def _two_node_world(dist: Any, store: Any, place: int, device: str, limit_s: float) -> Any:
    """Return a process group of two without touching torch's global one.

    A failed `init_process_group` leaves a counter behind from which torch makes the names of groups,
    so the next pair would wait under two different names.
    """
    limit = timedelta(seconds=limit_s)
    if not device.startswith("cuda"):
        return dist.ProcessGroupGloo(store, place, 2, limit)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = limit
    return dist.ProcessGroupNCCL(store, place, 2, options)


class Coordinator:
    """Tells agents which pairs to test and judges what they report."""

    def __init__(self, store: Any, world: int, limits: Limits) -> None:
        self.store = store
        self.world = world
        self.limits = limits
        self.number = 0
        self.alive: list[int] = []
        self.bandwidth: dict[Pair, float] = {}
        self.why: dict[Pair, str] = {}

    def run(self) -> HealthReport:
        """Run all tests and release the agents."""
        began = time.monotonic()
        report = HealthReport()
        try:
            hello = self._gather()
            names = [hello[rank]["name"] for rank in self.alive]
            report.nodes = names
            report.absent = [f"rank {rank}" for rank in range(self.world) if rank not in hello]
            self._compare_compute(report, hello)
            found = find_faulty(len(self.alive), self._probe, repeats=self.limits.repeats)
            _take(report, found, names)
            self._find_slow(report, found, names)
            report.notes += [
                f"{names[a]} - {names[b]}: {why}" for (a, b), why in sorted(self.why.items())
            ]
        finally:
            self.store.set(f"order/{self.number}", json.dumps(END))
        report.rounds = self.number
        report.elapsed_s = round(time.monotonic() - began, 2)
        self._farewell()
        return report

    def _farewell(self) -> None:
        """Keep the store until the agents have read the end of it."""
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            if all(self.store.check([f"bye/{rank}"]) for rank in self.alive):
                return
            time.sleep(0.02)

    def _gather(self) -> dict[int, dict[str, Any]]:
        """Wait until all nodes have joined, or the time is over; who is silent is absent."""
        deadline = time.monotonic() + self.limits.join_s
        known: dict[int, dict[str, Any]] = {}
        while len(known) < self.world and time.monotonic() < deadline:
            for rank in range(self.world):
                if rank not in known and self.store.check([f"hello/{rank}"]):
                    known[rank] = json.loads(self.store.get(f"hello/{rank}"))
            time.sleep(0.02)
        self.alive = sorted(known)
        return known

    def _compare_compute(self, report: HealthReport, hello: dict[int, dict[str, Any]]) -> None:
        names = {rank: one["name"] for rank, one in hello.items()}
        results = {one["name"]: _result_of(one["compute"]) for one in hello.values()}
        slow, unsure = compare_speeds(results, lambda: self._compute_again(names))
        report.slow_compute = slow
        report.unsure |= {f"{name} computing": ratio for name, ratio in unsure.items()}
        for model in {one.model for one in results.values()}:
            same = {name: one for name, one in results.items() if one.model == model}
            bits: Majority = by_majority({n: one.digests for n, one in same.items()})
            report.wrong_bits += bits.wrong
            report.unstable_bits += bits.unstable
            if bits.abstained and len(same) > 1:
                report.notes.append(f"bits of {model}: {bits.abstained}")

    def _compute_again(self, names: dict[int, str]) -> dict[str, ComputeResult]:
        """Let all nodes measure themselves once more, at the same time; who is silent is left out."""
        self.store.set(f"order/{self.number}", json.dumps({"compute": True, "pairs": []}))
        deadline = time.monotonic() + self.limits.pair_s + SLACK_S
        waiting, found = set(self.alive), {}
        while waiting and time.monotonic() < deadline:
            for rank in sorted(waiting):
                key = f"compute/{self.number}/{rank}"
                if self.store.check([key]):
                    found[names[rank]] = _result_of(json.loads(self.store.get(key)))
                    waiting.discard(rank)
            time.sleep(0.01)
        self.number += 1
        return found

    def _probe(self, pairs: Sequence[Pair], repeats: int) -> set[Pair]:
        """Let disjoint pairs test each other; a pair without two good results has failed."""
        ranks = [(self.alive[a], self.alive[b]) for a, b in pairs]
        order = {"pairs": ranks, "repeats": repeats}
        self.store.set(f"order/{self.number}", json.dumps(order))
        deadline = time.monotonic() + self.limits.pair_s + SLACK_S
        failed: set[Pair] = set()
        for pair, (one, other) in zip(pairs, ranks, strict=True):
            results = [self._result(rank, deadline) for rank in (one, other)]
            if all(result.get("ok") for result in results):
                speeds = [float(result["bytes_per_s"]) for result in results]
                self.bandwidth[pair] = max(self.bandwidth.get(pair, 0.0), min(speeds))
            else:
                failed.add(pair)
                said = [result["why"] for result in results if not result.get("ok")]
                self.why[pair] = said[0]
        self.number += 1
        return failed

    def _result(self, rank: int, deadline: float) -> dict[str, Any]:
        key = f"result/{self.number}/{rank}"
        # Looked at once in any case: waiting for a dead node may have used up the time of all.
        while not self.store.check([key]):
            if time.monotonic() >= deadline:
                return {"ok": False, "why": "no answer from the node"}
            time.sleep(0.01)
        found: dict[str, Any] = json.loads(self.store.get(key))
        return found

    def _find_slow(self, report: HealthReport, found: FaultyNodes, names: list[str]) -> None:
        """Measure the bandwidth, and again while the same nodes and links are slow."""
        first = self._measure(found)

        def parts(one: SlowParts) -> dict[tuple[int, ...], float]:
            found: dict[tuple[int, ...], float] = {(n,): ratio for n, ratio in one.nodes.items()}
            for pair, ratio in one.links.items():
                found[pair] = ratio
            return found

        slow, unsure = confirm(parts(first), lambda: parts(self._measure(found)))
        for who, ratio in slow.items():
            name = " - ".join(names[node] for node in who)
            (report.slow if len(who) == 1 else report.slow_links)[name] = ratio
        report.unsure |= {
            f"{' - '.join(names[node] for node in who)} sending": ratio
            for who, ratio in unsure.items()
        }
        report.notes += [note for note in (first.abstained,) if note]

    def _measure(self, found: FaultyNodes) -> SlowParts:
        """Measure the bandwidth of good nodes over three rounds of different partners."""
        good = list(found.good)
        if len(good) < 2:
            return SlowParts({}, {}, 0.0)
        self.bandwidth = {}
        for number in range(min(ROUNDS, len(good) - 1)):
            pairs = [(good[a], good[b]) for a, b in pairs_of_round(len(good), number)]
            self._probe(pairs, self.limits.repeats)
        return find_slow(self.bandwidth)


def _result_of(sent: dict[str, Any]) -> ComputeResult:
    return ComputeResult(**{**sent, "digests": tuple(sent["digests"])})


def _take(report: HealthReport, found: FaultyNodes, names: list[str]) -> None:
    report.faulty = [names[node] for node in found.faulty]
    report.suspects = [names[node] for node in found.suspects]
    if found.abstained:
        report.notes.append(found.abstained)
