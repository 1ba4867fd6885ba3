"""Name the slow rank, node or link of a job and price it, or say why that cannot be done.

Method: detectors.md 3.2. A slow device shows in the rank's own compute time and makes its peers
wait; a slow link lengthens even the shortest duration of its collectives. Without compute times
the last to arrive is the suspect: it waits least. Faults inside a tensor-parallel group echo in
its collectives, so a link finding in a group with a slow member is not reported twice.
"""

from __future__ import annotations

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.durations import seconds
from rerail.tools.localize.compare import Comparison, compare, robust_spread
from rerail.tools.localize.findings import Finding, Localization, LocalizeOutcome
from rerail.tools.localize.observations import GroupTimes, JobTimes

COMPUTE_EFFECT = 0.02
PROCESS_EFFECT = 0.1
LINK_EFFECT = 0.1
NODE_SHARE = 0.75
_LEAST_WAITS = 0.5
_LATE_SHARE = 0.02
_LEAST_INSTANCES = 5  # of one collective somebody is always the last
_LEAST_STEPS = 3
_INNER_FIRST = ("tp", "cp", "ep", "pp", "dp", "world", "other")
_WORDS = {
    "tp": "tensor-parallel group", "pp": "pipeline link", "dp": "data-parallel group",
    "ep": "expert-parallel group", "cp": "context-parallel group", "world": "world group",
    "other": "process group",
}  # fmt: skip


def localize(job: JobTimes, *, slower_than_before: bool = False) -> Localization:
    """Judge one window of a job.

    `slower_than_before` says that a slow phase is known, so that finding nothing is
    "unexplained" and not "healthy".
    """
    findings: list[Finding] = []
    missing: list[str] = []
    split = few = False
    hot: IntArray = np.zeros(0, dtype=np.int64)
    if job.self_s is not None:
        typical = _over_steps(job.self_s)
        if len(job.ranks) == 2 and not job.role_known:
            missing.append("two ranks of unknown roles: either may be the slow one")
            split = True
        else:
            # A process's own time holds whatever else ran on its host; small differences mean little.
            effect = COMPUTE_EFFECT if job.device_times else PROCESS_EFFECT
            seen = compare(typical, job.role, effect, _spread_of_steps(job.self_s))
            if seen.roles == len(job.ranks) > 1:
                missing.append("each rank does different work: there is none to compare it with")
                split = True
            else:
                hot = seen.slow
                if len(hot) and len(job.self_s) < _LEAST_STEPS:
                    missing.append(
                        f"compute time of {_LEAST_STEPS} steps or more: in so few steps a pause of a "
                        "rank (a checkpoint, a log) looks like a slow device"
                    )
                findings += _ranks(job, typical, seen, hot)
                split |= _report_split(seen, "compute time", missing, job.role_known)
    else:
        found, hot, few = _late(job, missing)
        findings += found
        missing.append(
            "no compute time per rank; suspects are those that arrive last in collectives"
        )
    for group in job.groups:
        if not np.isfinite(group.transfer_s).any():
            continue
        found, divided = _links(job, group, hot, missing)
        findings += found
        split |= divided
    findings.sort(key=lambda one: -one.lost_per_step_s)
    if findings:
        outcome = LocalizeOutcome.LOCALIZED
    elif split:
        outcome = LocalizeOutcome.NO_REFERENCE
    else:
        unknown = slower_than_before or few
        outcome = LocalizeOutcome.UNEXPLAINED if unknown else LocalizeOutcome.HEALTHY
    return Localization(job.name, outcome, findings, missing)


def _over_steps(values: FloatArray) -> FloatArray:
    """Return the medians [n] of values [steps, n], leaving out what was not seen (NaN)."""
    if len(values) == 1:
        return np.asarray(values[0])
    typical = np.full(values.shape[1], np.nan)
    seen = ~np.isnan(values).all(axis=0)
    typical[seen] = np.nanmedian(values[:, seen], axis=0)
    return typical


def _spread_of_steps(self_s: FloatArray) -> float | None:
    """Return the relative error of a rank's median over steps, or None for fewer than three."""
    if len(self_s) < 3:
        return None
    middle = np.median(self_s, axis=0)
    width = 1.4826 * np.median(np.abs(self_s - middle), axis=0) / np.maximum(middle, 1e-12)
    return float(np.median(width)) / float(np.sqrt(len(self_s)))


def _report_split(seen: Comparison, what: str, missing: list[str], known: bool) -> bool:
    if seen.split:
        who = f"{len(seen.split)} roles" if len(seen.split) > 1 else f"role {seen.split[0]}"
        more = "" if known else "; the roles of the ranks are unknown, which may be the reason"
        missing.append(
            f"{what} of {who} falls into two halves, so neither is a reference: compare with an "
            f"earlier window or a run on other nodes{more}"
        )
    return bool(seen.split)


def _nodes(job: JobTimes, ranks: IntArray) -> tuple[str, ...]:
    if job.node is None:
        return ()
    return tuple(sorted({job.node[int(i)] for i in ranks}))


def _ranks(job: JobTimes, typical: FloatArray, seen: Comparison, hot: IntArray) -> list[Finding]:
    """Turn slow ranks into findings: a node where three quarters of its ranks are slow."""
    out: list[Finding] = []
    whole: set[int] = set()
    for together in _hot_sets(job, hot):
        whole.update(int(i) for i in together)
        out.append(_rank_finding(job, typical, seen, together, "node"))
    for i in hot:
        if int(i) not in whole:
            kind = "gpu" if job.device_times else "rank"
            out.append(_rank_finding(job, typical, seen, np.array([i]), kind))
    return out


def _hot_sets(job: JobTimes, hot: IntArray) -> list[IntArray]:
    """Return the slow members of nodes, or else of tensor-parallel groups, that are mostly slow."""
    if not len(hot):
        return []
    flag = np.zeros(len(job.ranks), dtype=bool)
    flag[hot] = True
    node = job.node_index()
    if node is not None:
        count = np.bincount(node)
        share = np.bincount(node, weights=flag) / count
        chosen = np.flatnonzero((share >= NODE_SHARE) & (count > 1))
        return [np.flatnonzero((node == n) & flag) for n in chosen]
    sets: list[IntArray] = []
    for group in job.groups:
        if group.kind in ("tp", "cp", "ep") and group.members.shape[1] > 1:
            mostly = flag[group.members].mean(axis=1) >= NODE_SHARE
            sets += [members[flag[members]] for members in group.members[mostly]]
    return sets


def _rank_finding(
    job: JobTimes, typical: FloatArray, seen: Comparison, who: IntArray, kind: str
) -> Finding:
    worst = who[int(np.argmax(seen.z[who]))]
    extra = float((typical[who] - seen.reference[who]).max())
    ratio = float(typical[worst] / max(seen.reference[worst], 1e-12))
    ranks = tuple(sorted(int(r) for r in job.ranks[who]))
    nodes = _nodes(job, who)
    named = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:8]))}"
    where = f" on node {', '.join(nodes)}" if nodes else ""
    return Finding(
        kind=kind, function="compute", workers=ranks, dimension="beta",
        reason=(
            f"{named}{where}: {seconds(typical[worst])} of own compute a step, "
            f"{seconds(seen.reference[worst])} on the ranks with the same work"
        ),
        ratio=ratio, lost_per_step_s=extra, lost_s=extra * job.steps, layer="infrastructure",
        failure_type="slow_gpu" if job.device_times else "fail_slow_unexplained",
        nodes=nodes, z=float(seen.z[worst]),
    )  # fmt: skip


def _late(job: JobTimes, missing: list[str]) -> tuple[list[Finding], IntArray, bool]:
    """Name ranks that their peers wait for, the innermost groups first.

    Also returns whether somebody was late in too few collectives to be named.
    """
    unsure = False
    out: list[Finding] = []
    blamed: list[int] = []
    place = {kind: at for at, kind in enumerate(_INNER_FIRST)}
    for group in sorted(job.groups, key=lambda one: place.get(one.kind, 9)):
        if group.late_s is None or group.first_share is None or group.members.shape[1] < 3:
            continue
        late = np.median(group.late_s, axis=0)
        noise = robust_spread(late)
        busy = np.nanmedian(group.transfer_s, axis=0)[:, None]
        least = np.maximum(_LATE_SHARE * busy, 4 * noise)
        who = (late >= least) & (group.first_share >= _LEAST_WAITS) & (late > 0)
        who &= late >= 0.5 * late.max()
        if group.instances is not None and (few := group.instances < _LEAST_INSTANCES).any():
            if who[few].any():
                unsure = True
                most = int(group.instances[few].max())
                missing.append(
                    f"only {most} collective{'s' if most != 1 else ''} of a {_WORDS[group.kind]} "
                    f"with all its members: at least {_LEAST_INSTANCES} are needed to say who is late"
                )
            who[few] = False
        for g, m in np.argwhere(who):
            index = int(group.members[g, m])
            if any(np.isin(group.members[g], blamed)):
                continue
            blamed.append(index)
            rank = int(job.ranks[index])
            nodes = _nodes(job, np.array([index]))
            out.append(
                Finding(
                    kind="rank", function="compute", workers=(rank,), dimension="beta",
                    reason=(
                        f"rank {rank}{' on node ' + nodes[0] if nodes else ''} is the last to "
                        f"arrive in {group.first_share[g, m]:.0%} of the collectives of its "
                        f"{_WORDS[group.kind]}; its peers wait {seconds(late[g, m])} a step "
                        f"for it"
                    ),
                    ratio=float(1 + late[g, m] / max(float(busy[g, 0]), 1e-12)),
                    lost_per_step_s=float(late[g, m]), lost_s=float(late[g, m]) * job.steps,
                    layer="infrastructure", failure_type="fail_slow_unexplained", nodes=nodes,
                )
            )  # fmt: skip
    return out, np.array(blamed, dtype=np.int64), unsure


def _links(
    job: JobTimes, group: GroupTimes, hot: IntArray, missing: list[str]
) -> tuple[list[Finding], bool]:
    """Name the groups of one kind whose transfer is slow, but for echoes of slow members."""
    typical = _over_steps(group.transfer_s)
    if len(typical) < 2:
        return [], False
    role = group.role if group.role is not None else np.zeros(len(typical), dtype=np.int64)
    seen = compare(typical, role, LINK_EFFECT)
    out = []
    inner = group.kind in ("tp", "cp", "ep")
    for g in seen.slow:
        if inner and np.isin(group.members[g], hot).any():
            continue
        ranks = tuple(int(r) for r in job.ranks[group.members[g]])
        extra = float(typical[g] - seen.reference[g])
        few = group.members.shape[1] == 2
        who = " and ".join(map(str, ranks)) if few else ", ".join(map(str, ranks[:8]))
        out.append(
            Finding(
                kind=f"{group.kind}_link", function="send, recv" if few else "collective",
                workers=ranks, dimension="mu",
                reason=(
                    f"{_WORDS[group.kind]} of ranks {who}{', ...' if len(ranks) > 8 else ''}: "
                    f"{seconds(typical[g])} a step once all are there, "
                    f"{seconds(seen.reference[g])} in groups of the same kind"
                ),
                ratio=float(typical[g] / max(seen.reference[g], 1e-12)), lost_per_step_s=extra,
                lost_s=extra * job.steps, layer="infrastructure", failure_type="slow_network",
                nodes=_nodes(job, group.members[g]), z=float(seen.z[g]),
            )
        )  # fmt: skip
    split = _report_split(seen, f"transfer time of the {_WORDS[group.kind]}s", missing, True)
    return out, split
