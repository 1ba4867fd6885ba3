"""`rerail eval fleet`: what the fleet page says of simulated years, held against their truth."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rerail.assistant.presentation.fleet_site import SiteView, site_view
from rerail.evals.fleet.year import BEGIN, YEAR_S, Truth, Year, node_name, simulate, switch_name

BAD = Truth(
    bad_nodes={node_name(17): 20.0, node_name(404): 20.0, node_name(733): 20.0},
    bad_switches={switch_name(9): 4.0},
    careless={"u3": 3.0},
)
HEALTHY = Truth()


@dataclass(slots=True)
class Score:
    """Counts over the years of one kind; ratios are the largest distance from the truth."""

    years: int = 0
    wanted: int = 0
    right: int = 0
    false: int = 0
    years_with_false: int = 0
    covered: int = 0
    intervals: int = 0
    doubted: int = 0
    ettr_off: float = 0.0
    goodput_off: float = 0.0
    naive_false: int = 0


def judged(year: Year) -> SiteView:
    """Return what the page would say of a year."""
    return site_view(year.found, year.runs, year.roots, since=BEGIN, until=BEGIN + 2 * YEAR_S)


def score(truth: Truth, years: int, seed: int) -> Score:
    """Simulate years and count what was named, rightly and wrongly.

    Beside it the ten nodes with most failures, as a plain list names them.
    """
    total = Score()
    for number in range(years):
        year = simulate(truth, seed + number)
        view = judged(year)
        named = {one.name for part in (view.nodes, view.switches, view.users) for one in part if one.stands_out}  # fmt: skip
        wanted = {*truth.bad_nodes, *truth.bad_switches, *truth.careless}
        # Nodes under a bad switch fail more often, too: to name one is no false alarm.
        below = {node for switch in truth.bad_switches for node in year.roots[switch]}
        total.years += 1
        total.wanted += len(wanted)
        total.right += len(named & wanted)
        total.false += len(named - wanted - below)
        total.years_with_false += bool(named - wanted - below)
        most = sorted(view.nodes, key=lambda one: -one.failures)[:10]
        total.naive_false += sum(one.name not in (below | truth.bad_nodes.keys()) for one in most)
        total.ettr_off = max(total.ettr_off, abs((view.efficiency.ettr or 0) - year.ettr))
        total.goodput_off = max(
            total.goodput_off, abs((view.efficiency.goodput or 0) - year.goodput)
        )
        fit = view.reliability.one_rate
        total.doubted += fit is not None and fit < 0.01
        for size in view.reliability.sizes:
            expected = 1 / (truth.per_gpu_hour * size.gpu_hours / size.hours)
            total.intervals += 1
            low, high = size.mttf.low or 0.0, size.mttf.high or float("inf")
            total.covered += low <= expected <= high
    return total


def fleet_command(years: int, seed: int, *, json_output: bool) -> int:
    """Print the scores of years with and without bad parts; exit code 0."""
    scores = {"bad parts": score(BAD, years, seed), "healthy": score(HEALTHY, years, seed + 10_000)}
    if json_output:
        from dataclasses import asdict

        print(json.dumps({name: asdict(one) for name, one in scores.items()}, indent=2))
        return 0
    for name, one in scores.items():
        print(f"{name}: {one.years} years of 1,000 nodes")
        print(
            f"  stand out: {one.right} of {one.wanted} bad nodes, switches and users named;"
            f" {one.false} healthy ones, in {one.years_with_false} years"
        )
        print(f"  the ten nodes with most failures: {one.naive_false} healthy ones among them")
        print(f"  ETTR off by {one.ettr_off:.5f} at most, goodput by {one.goodput_off:.5f}")
        if name == "bad parts":  # bad parts raise the common rate above that of a healthy GPU
            continue
        print(
            f"  mean time to failure: {one.covered} of {one.intervals} 95 % intervals hold the healthy rate;"
            f" one rate doubted in {one.doubted} years"
        )
    return 0
