"""Tables of where: iteration boundaries (bars P1, P2), localisation (L1, L2) and replay."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console
from rich.table import Table

from rerail.domain.series import IntArray
from rerail.evals.detectors.call_sequences import FAMILIES, draw
from rerail.evals.jobsim.observe import observe
from rerail.evals.jobsim.simulate import Simulator
from rerail.evals.jobsim.spec import Fault, FaultKind, JobSpec
from rerail.evals.jobsim.timeline import write_timeline
from rerail.tools.detectors.iterations import Iterations, find_iterations
from rerail.tools.localize.judge import localize
from rerail.tools.replay.causes import localize_timeline
from rerail.tools.replay.timeline import read_timeline

_P1 = ("clean", "log every 10", "eval every 50", "eval 20, checkpoint 100, log 10")
_JOB = JobSpec(dp=16, pp=8, tp=8, micro_batches=16, noise=0.05, first_stage=1.1, last_stage=1.2)
_L1: dict[FaultKind, tuple[float, ...]] = {
    "gpu": (1.05, 1.1, 1.5), "node": (1.05, 1.1, 2.0), "tp_link": (1.5,), "pp_link": (1.5, 3.0),
    "dp_ring": (1.2, 1.5, 2.0),
}  # fmt: skip
_BAR_FROM = {"gpu": 1.1, "node": 1.1, "tp_link": 1.5, "pp_link": 1.5, "dp_ring": 1.5}


def acf_period(symbols: IntArray, lags: int = 200) -> int | None:
    """Return FALCON's period: the first peak of the autocorrelation of op codes at 0.95 or more."""
    values = symbols.astype(np.float64) - symbols.mean()
    size = 1 << int(np.ceil(np.log2(2 * len(values))))
    power = np.abs(np.fft.rfft(values, size)) ** 2
    acf = np.fft.irfft(power, size)[: lags + 1]
    acf = acf / max(acf[0], 1e-12)
    for lag in range(1, min(lags, len(acf) - 1)):
        if acf[lag] >= 0.95 and acf[lag] >= acf[lag - 1] and acf[lag] >= acf[lag + 1]:
            return lag
    return None


def period_table(out: Console, seed: int, jobs: int) -> dict[str, bool]:
    """Print the share of random jobs whose exact period is found; P1 and P2."""
    table = Table("family", "anchor", "boundaries within 2 %", "kinds unknown", "ACF, 200 lags",
                  title=f"Iterations from collective calls, {jobs} random jobs each: exact period")  # fmt: skip
    bars: dict[str, bool] = {}
    for name, extras in FAMILIES.items():
        rng = np.random.default_rng((seed, len(name)))
        exact = near = unknown = acf = 0
        for _ in range(jobs):
            job = draw(rng, extras)
            found = find_iterations(job.symbols, job.kinds)
            exact += found is not None and found.period == job.period
            near += found is not None and _close(found, job.iterations)
            blind = find_iterations(job.symbols)
            unknown += blind is not None and blind.period == job.period
            acf += acf_period(job.symbols) == job.period
        table.add_row(name, *(f"{count / jobs:.3f}" for count in (exact, near, unknown, acf)))
        if name in _P1:
            bars[f"P1 {name}: exact on >= .99"] = exact >= 0.99 * jobs
    out.print(table)
    bars.update(_period_cost(out, seed))
    return bars


def _close(found: Iterations, iterations: int) -> bool:
    return abs(len(found.starts) - iterations) <= max(1, 0.02 * iterations)


def _period_cost(out: Console, seed: int) -> dict[str, bool]:
    try:
        from statsmodels.tsa.stattools import acf
    except ImportError:
        out.print("skipped: P2 (statsmodels is not installed)", markup=False)
        return {}
    rng = np.random.default_rng(seed)
    job = draw(rng, FAMILIES["log every 10"], iterations=200)
    symbols = np.tile(job.symbols, 1_000_000 // len(job.symbols) + 1)[:1_000_000]
    ours = _median_s(lambda: find_iterations(symbols, job.kinds))
    theirs = _median_s(lambda: acf(symbols.astype(np.float64), nlags=200))
    out.print(
        f"1,000,000 calls: anchor {1e3 * ours:.1f} ms, statsmodels acf {1e3 * theirs:.0f} ms "
        f"({theirs / ours:.0f}x)",
        markup=False,
    )
    return {"P2: >= 20x faster than statsmodels acf": theirs >= 20 * ours}


def _median_s(work: Callable[[], object], repeats: int = 5) -> float:
    """Return the CPU seconds of a call, the median of some; others may use the machine as well."""
    spent = []
    for _ in range(repeats):
        begin = time.thread_time()
        work()
        spent.append(time.thread_time() - begin)
    return float(np.median(spent))


def _truth(spec: JobSpec, fault: Fault) -> list[int]:
    index = np.arange(spec.world_size).reshape(spec.dp, spec.pp, spec.tp)
    chosen: dict[str, IntArray] = {
        "gpu": index[fault.dp, fault.stage, fault.tp : fault.tp + 1],
        "node": index[fault.dp, fault.stage],
        "tp_link": index[fault.dp, fault.stage],
        "pp_link": index[fault.dp, fault.stage : fault.stage + 2, 0],
        "dp_ring": index[:, fault.stage, fault.tp],
    }
    return sorted(int(rank) for rank in chosen[fault.kind])


def _draw_fault(rng: np.random.Generator, spec: JobSpec, kind: FaultKind, ratio: float) -> Fault:
    return Fault(kind, ratio, int(rng.integers(spec.dp)), int(rng.integers(spec.pp - 1)),
                 int(rng.integers(spec.tp)))  # fmt: skip


def localize_table(out: Console, seed: int, repeats: int) -> dict[str, bool]:
    """Print top-1 localisation at 1,024 ranks, healthy windows, several faults, and the cost."""
    table = Table("fault", "ratio", "top-1", "only finding",
                  title=f"Localisation, 16 x 8 x 8 ranks, 5 % noise, 3 steps, {repeats} faults each")  # fmt: skip
    rng = np.random.default_rng(seed)
    good = True
    for kind, ratios in _L1.items():
        for ratio in ratios:
            top = only = 0
            for number in range(repeats):
                fault = _draw_fault(rng, _JOB, kind, ratio)
                found = localize(observe(_JOB.with_faults(fault, seed=number))).findings
                right = bool(found) and list(found[0].workers) == _truth(_JOB, fault)
                top, only = top + right, only + (right and len(found) == 1)
            table.add_row(kind, str(ratio), f"{top / repeats:.2f}", f"{only / repeats:.2f}")
            good &= ratio < _BAR_FROM[kind] or top == repeats
    out.print(table)
    bars = {"L1: top-1 is 1.0 for gpu/node >= 1.1 and links >= 1.5": good}
    bars.update(_healthy_windows(out, seed, 20 if repeats >= 20 else 4))
    _several(out, rng, repeats)
    bars.update(_localize_cost(out))
    return bars


def _healthy_windows(out: Console, seed: int, windows: int) -> dict[str, bool]:
    spec = replace(_JOB, dp=512, pp=16, tp=8, micro_batches=8, seed=seed)
    simulator = Simulator(spec)
    found = sum(len(localize(observe(spec, 1, simulator)).findings) for _ in range(windows))
    out.print(
        f"{windows} healthy windows of {spec.world_size} ranks: {found} findings", markup=False
    )
    return {"L1: no finding in healthy windows of 65,536 ranks": found == 0}


def _several(out: Console, rng: np.random.Generator, repeats: int) -> None:
    spec = replace(_JOB, dp=32, pp=16)
    hit = extra = total = 0
    for number in range(repeats):
        kinds: list[FaultKind] = ["gpu", "gpu", "gpu", "node", "pp_link"]
        faults = tuple(_draw_fault(rng, spec, kind, 2.0) for kind in kinds)
        found = localize(observe(spec.with_faults(*faults, seed=number))).findings
        said = [list(one.workers) for one in found]
        wanted = [_truth(spec, fault) for fault in faults]
        hit += sum(one in said for one in wanted)
        extra += sum(one not in wanted for one in said)
        total += len(wanted)
    out.print(
        f"3 GPUs, a node and a pipeline link at once, {spec.world_size} ranks, {repeats} runs: "
        f"{hit} of {total} found, {extra} findings too many",
        markup=False,
    )


def _localize_cost(out: Console) -> dict[str, bool]:
    spent: dict[int, float] = {}
    share = 0.0
    for dp in (80, 800):
        spec = replace(_JOB, dp=dp, pp=16, tp=8, micro_batches=32)
        simulator = Simulator(spec)
        simulated = _median_s(simulator.step)
        job = observe(spec, 1, simulator)
        spent[spec.world_size] = _median_s(lambda job=job: localize(job))  # type: ignore[misc]
        share = spent[spec.world_size] / simulated
        out.print(
            f"{spec.world_size} ranks: localised in {1e3 * spent[spec.world_size]:.1f} ms, one "
            f"step simulated in {1e3 * simulated:.0f} ms",
            markup=False,
        )
    small, large = spent.values()
    return {
        "L2: 102,400 ranks cost at most 20x the time of 10,240": large <= 20 * small,
        "L2: 100,000 ranks in well under a second": large < 0.5,
        "L2: 102,400 ranks localised in at most 1 % of simulating their step": share <= 0.01,
    }


def replay_table(out: Console, seed: int, trace: Path | None) -> dict[str, bool]:
    """Print what the replay says of simulated causes, and of the real trace if it is given."""
    base = JobSpec(dp=8, pp=4, micro_batches=16, steps=8, noise=0.01, seed=seed)
    cases: dict[str, tuple[JobSpec, list[str]]] = {
        "healthy": (base, []),
        "healthy, interleaved": (replace(base, chunks=2), []),
        "slow GPU x1.3": (base.with_faults(Fault("gpu", 1.3, 3, 2)), ["slow_worker"]),
        "slow GPU, interleaved": (
            replace(base, chunks=2).with_faults(Fault("gpu", 1.5, 3, 2)), ["slow_worker"],
        ),
        "busy host": (base.with_faults(Fault("cpu", 1.5, 3, 2)), ["slow_worker"]),
        "slow pipeline link": (
            base.with_faults(Fault("pp_link", 40, 2, 1)), ["slow_link", "slow_link"],
        ),
        "slow gradient ring": (base.with_faults(Fault("dp_ring", 4, 0, 1)), ["slow_group"]),
        "slow data": (base.with_faults(Fault("storage", 2.0, 3)), ["launch_delay"]),
        "long last stage": (replace(base, last_stage=1.4), ["stage_partition"]),
        "uneven sequence lengths": (replace(base, length_sigma=0.3), ["sequence_length"]),
        "slow GPU and long last stage": (
            replace(base, last_stage=1.3).with_faults(Fault("gpu", 1.5, 3, 2)),
            ["slow_worker", "stage_partition"],
        ),
    }  # fmt: skip
    table = Table("job", "S", "M_W", "M_S", "outcome", "causes, most costly first",
                  title="What-if replay of op-level timelines")  # fmt: skip
    right = True
    with TemporaryDirectory() as folder:
        for name, (spec, kinds) in cases.items():
            path = Path(folder) / "t.parquet"
            write_timeline(spec, path)
            right &= _replay_row(table, name, path) == kinds
    if trace is not None and trace.exists():
        begin = time.perf_counter()
        _replay_row(table, trace.name, trace)
        spent = time.perf_counter() - begin
        table.caption = f"{trace.name} read, priced and explained in {spent:.2f} s"
    out.print(table)
    return {"replay: every simulated cause named, and no other": right}


def _replay_row(table: Table, name: str, path: Path) -> list[str]:
    verdict, pricing = localize_timeline(read_timeline(path))

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    said = ", ".join(f"{one.kind} {one.lost_per_step_s:.3g} s" for one in verdict.findings)
    table.add_row(name, f"{pricing.slowdown:.5f}", share(pricing.m_w), share(pricing.m_s),
                  str(verdict.outcome), said)  # fmt: skip
    return sorted(one.kind for one in verdict.findings)
