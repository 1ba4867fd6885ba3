"""The number of a node by the name of its pod, where an operator numbers the pods of a job."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.lazy_patterns import lazy

# A pod of an indexed job: its number, and behind it the letters of one start; of several slices the first.
_INDEXED = lazy(r"(?P<job>.*-)?(?P<part>[a-z0-9.]+)-(?P<n>\d{1,5})(?:-[a-z0-9]{5})?")
_NUMBERED = lazy(r"(?P<stem>.*\D)(?P<n>\d{1,5})")
FILE = Path(__file__).with_name("pod_ranks.yaml")


@lru_cache(maxsize=1)
def _operators() -> tuple[tuple[str, tuple[tuple[re.Pattern[str], int], ...]], ...]:
    return tuple(
        (
            raw["needs"],
            tuple((lazy(f"(?P<job>.+){p['pattern']}"), p["add"]) for p in raw["pods"]),
        )
        for raw in load_cached(FILE)["operators"]
    )


def node_numbers(pods: Iterable[str]) -> dict[str, int]:
    """Return the numbers of the pods of one job; none where they are of several, or where one is missing.

    Args:
        pods: the names of all pods that the logs know.
    """
    for needs, forms in _operators():
        jobs: dict[str, dict[str, int]] = defaultdict(dict)
        for pod in pods:
            for pattern, add in forms:
                if match := pattern.fullmatch(pod):
                    jobs[match["job"]][pod] = int(match["n"]) + add
        whole = [
            numbers
            for job, numbers in jobs.items()
            if f"{job}{needs}" in numbers and sorted(numbers.values()) == list(range(len(numbers)))
        ]
        if len(whole) == 1 and len(jobs) == 1:
            return whole[0]
    return {}


def ranks_by_number(told: Mapping[str, set[int]], pods: Iterable[str]) -> dict[str, int]:
    """Return the ranks of pods of which no line tells them, where those of others of their series follow the numbers.

    Args:
        told: the ranks that call themselves so in each pod.
        pods: the names of all pods that the logs know.
    """
    series: dict[str, dict[int, set[int]]] = defaultdict(dict)
    for pod, ranks in told.items():
        if match := _NUMBERED.fullmatch(pod):
            series[match["stem"]][int(match["n"])] = ranks
    found: dict[str, int] = {}
    for pod in set(pods) - set(told):
        match = _NUMBERED.fullmatch(pod)
        known = series.get(match["stem"], {}) if match else {}
        apart = {rank - number for number, ranks in known.items() for rank in ranks}
        alone = all(len(ranks) == 1 for ranks in known.values())
        if match and len(known) > 1 and alone and len(apart) == 1:
            found[pod] = int(match["n"]) + apart.pop()
    return found


def number_of(pod: str) -> int | None:
    """Return the number of a pod of an indexed job, or None."""
    match = _INDEXED.fullmatch(pod)
    return int(match["n"]) if match else None


def ranks_of_counted(
    ranks: Iterable[int], pods: Iterable[str], world: int | None
) -> list[tuple[str, int]]:
    """Return the ranks that have the numbers of their pods, each beside the only pod of that number.

    What holds of one pod of a job holds of all that are called like it, unless other pods count from 0 as well, or the
    job has more ranks than these pods, which are all there, of the first number to the last.

    Args:
        ranks: ranks that run in the pods of their numbers.
        pods: the names of all pods that the logs know.
        world: how many ranks the job has, if known.
    """
    numbered: dict[int, list[str]] = defaultdict(list)
    jobs: dict[str, tuple[str, str]] = {}
    for pod in pods:
        match = _INDEXED.fullmatch(pod)
        if match and (not match["part"].isdigit() or match["part"] == "0"):
            numbered[int(match["n"])].append(pod)
            jobs[pod] = match["job"] or "", match["part"]
    told = {rank: numbered[rank][0] for rank in ranks if len(numbered.get(rank, ())) == 1}
    job = {jobs[pod] for pod in told.values()}
    mine = {number for number, found in numbered.items() if any(jobs[pod] in job for pod in found)}
    several = world is not None and mine == set(range(len(mine))) and len(mine) < world
    others = any(jobs[pod] not in job for pod in numbered.get(0, ()))
    alike = {
        rank: found[0]
        for rank, found in numbered.items()
        if len(found) == 1 and len(job) == 1 and jobs[found[0]] in job
    }
    if several or others:
        alike = {}
    return [(pod, rank) for rank, pod in sorted((alike | told).items())]
