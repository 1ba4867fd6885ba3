"""Explain a slow window from the profiles of its workers, or say why that cannot be done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rerail.tools.durations import seconds
from rerail.tools.localize.findings import Finding, Localization, LocalizeOutcome
from rerail.tools.profiles.balance import balance_signs
from rerail.tools.profiles.cause_table import Cause, cause_of
from rerail.tools.profiles.channels import BETA
from rerail.tools.profiles.expected import Expected, expected_signs
from rerail.tools.profiles.host_noise import BESIDE_FIRST
from rerail.tools.profiles.matrix import ProfileMatrix
from rerail.tools.profiles.own_work import own_work_signs
from rerail.tools.profiles.price import price
from rerail.tools.profiles.signs import Sign, spread, whole_nodes
from rerail.tools.profiles.transfers import transfer_signs

_LEAST_STEPS = 3
_LEAST_LOST = 0.002
_TOP_FUNCTIONS = 12


def judge_profiles(
    name: str, matrix: ProfileMatrix, expected: Expected | None = None
) -> Localization:
    """Judge one window of one job; `expected` are boxes learned from its healthy windows."""
    missing = list(matrix.notes)
    details: dict[str, Any] = {"profile": describe(matrix)}
    if expected is not None:
        details["profile"]["expected_from"] = list(expected.sources)
    if len(matrix.ranks) < 2 and expected is None:
        missing.append(
            "one rank only: there is nothing to compare it with; --before PROFILE compares it with another one of the job"
        )
        return Localization(name, LocalizeOutcome.NO_REFERENCE, [], missing, details)
    own = own_work_signs(matrix)
    slow_links, divided = transfer_signs(matrix)
    signs = _without_echoes(matrix, own.signs, slow_links, balance_signs(matrix))
    if expected is not None:
        signs += expected_signs(matrix, expected, signs)
    if matrix.steps < _LEAST_STEPS:
        details["profile"]["described"] = [
            f"{who(matrix, sign)}: {sign.function}: {sign.seen}" for sign in signs
        ]
        missing.append(
            f"{matrix.steps} step{'s' if matrix.steps > 1 else ''} only: profile {_LEAST_STEPS} or more, "
            "or give a healthy window of the same job; what differs is described, nobody is blamed"
        )
        return Localization(name, LocalizeOutcome.NO_REFERENCE, [], missing, details)
    findings, imbalance, slight = _findings(matrix, signs)
    missing += _noise_notes(matrix, own.blurred, slight)
    outcome = LocalizeOutcome.HEALTHY
    if findings:
        outcome = LocalizeOutcome.IMBALANCE if imbalance else LocalizeOutcome.LOCALIZED
    elif (own.split or divided) and expected is None:
        outcome = LocalizeOutcome.NO_REFERENCE
        missing += _split_notes(matrix, own.split, divided)
    elif len(own.few) == len(matrix.ranks):
        outcome = LocalizeOutcome.NO_REFERENCE
        missing.append("each rank does different work: there is none to compare it with")
    elif not matrix.whole:
        outcome = LocalizeOutcome.NO_REFERENCE
        missing.append(
            f"nobody stands out among the {len(matrix.ranks)} ranks that were read, but those that were not may be "
            "slow: give the profiles of all ranks"
        )
    return Localization(name, outcome, findings, missing, details)


def _split_notes(
    matrix: ProfileMatrix, roles: tuple[str, ...], groups: tuple[str, ...]
) -> list[str]:
    known = (
        "" if matrix.role_known else "; the roles of the ranks are unknown, which may be the reason"
    )
    notes = [
        f"compute time of {role or 'the workers'} falls into two halves, so neither is a reference: "
        f"compare with a healthy window (--expected){known}"
        for role in roles
    ]
    return notes + [
        f"transfer time of {name} falls into two halves, so neither is a reference"
        for name in groups
    ]


def _without_echoes(
    matrix: ProfileMatrix, own: list[Sign], links: list[Sign], balance: list[Sign]
) -> list[Sign]:
    """Leave out what another sign explains."""
    own = list(own)
    hot = {int(w) for s in own if s.kind in ("device", "function", "host") for w in s.workers}
    kept = []
    for sign in links:
        members = {int(w) for w in (sign.members if sign.members is not None else sign.workers)}
        # The adapter hangs on the same PCIe link as the copies that are slow.
        copies = next(
            (
                i
                for i, s in enumerate(own)
                if s.kind == "memory" and members & set(s.workers.tolist())
            ),
            None,
        )
        if copies is not None:
            slower = sign.extra_s.max(axis=1, keepdims=True)
            own[copies] = replace(own[copies], extra_s=own[copies].extra_s + slower)
            continue
        # Inside a node a slow member echoes in the collectives of its own group.
        if "inside_node" in sign.facts and members & hot:
            continue
        kept.append(sign)
    uneven = {int(w) for s in balance if s.kind == "unsteady" for w in s.workers}
    own = [s for s in own if s.kind != "function" or not uneven.issuperset(s.workers.tolist())]
    return own + _one_per_group(kept) + balance


def _one_per_group(links: list[Sign]) -> list[Sign]:
    """Keep the strongest sign of the same members: several collectives of a group use one link."""
    best: dict[frozenset[int], Sign] = {}
    for sign in links:
        assert sign.members is not None
        key = frozenset(int(w) for w in sign.members)
        before = best.get(key)
        if before is None or (len(sign.workers), -sign.extra_s.sum()) < (
            len(before.workers), -before.extra_s.sum(),
        ):  # fmt: skip
            best[key] = sign
    named = [s for s in best.values() if s.kind == "ring_member"]
    culprits = {int(w) for s in named for w in s.workers}
    out = []
    for sign in best.values():
        assert sign.members is not None
        if sign.kind == "transfer" and culprits & {int(w) for w in sign.members}:
            continue
        out.append(sign)
    return _joined_members(out)


def _joined_members(signs: list[Sign]) -> list[Sign]:
    """Return one sign for each set of culprits that several groups name."""
    seen: dict[tuple[str, frozenset[int]], Sign] = {}
    for sign in signs:
        key = (sign.kind, frozenset(int(w) for w in sign.workers))
        if key not in seen or sign.extra_s.sum() > seen[key].extra_s.sum():
            seen[key] = sign
    return list(seen.values())


def _noise_notes(
    matrix: ProfileMatrix, blurred: tuple[int, ...], slight: list[tuple[Sign, float]]
) -> list[str]:
    """Say whose time was longer without being told from the noise of a host that several processes share."""
    notes = [
        f"{who(matrix, sign)}: {sign.function} took longer too, which costs {seconds(lost)} a step: too little "
        "beside the first finding to tell it from the noise of a busy host; profile again once that is mended"
        for sign, lost in slight
    ]
    if blurred:
        ranks = ", ".join(map(str, matrix.of_ranks(blurred)[:8]))
        notes.append(
            f"the time of rank{'s' if len(blurred) > 1 else ''} {ranks} was longer, but not in enough steps, or by "
            "too little beside the slowest, to tell it from the noise of a busy host; profile more steps"
        )
    return notes


def _findings(
    matrix: ProfileMatrix, signs: list[Sign]
) -> tuple[list[Finding], bool, list[tuple[Sign, float]]]:
    """Return the findings, whether all are of the split of the work, and signs too small beside the first."""
    out = []
    imbalance = True
    slight: list[tuple[Sign, float]] = []
    dearest: dict[str, float] = {}
    for sign, lost in price(matrix, signs):
        if lost < _LEAST_LOST * matrix.step_time_s and sign.kind != "ring_member":
            continue
        hosts = [matrix.host[int(w)] for w in sign.workers]
        first = min(dearest.get(host, 0.0) for host in hosts)
        if not matrix.device and sign.kind != "expected" and lost < BESIDE_FIRST * first:
            slight.append((sign, lost))
            continue
        dearest = {host: lost for host in hosts} | dearest
        cause = _cause(matrix, sign)
        imbalance &= cause.imbalance
        out.append(
            Finding(
                kind=cause.id, function=sign.function, workers=matrix.of_ranks(sign.workers),
                dimension=sign.dimension, reason=_sentence(matrix, sign, cause), ratio=sign.ratio,
                lost_per_step_s=lost, lost_s=lost * matrix.steps, layer=cause.layer,
                failure_type=cause.failure_type, nodes=_hosts(matrix, sign), z=sign.z,
            )
        )  # fmt: skip
    return out, imbalance, slight


def _cause(matrix: ProfileMatrix, sign: Sign) -> Cause:
    return cause_of(sign.kind, sign.work, spread(matrix, sign.workers), sign.facts)


def _hosts(matrix: ProfileMatrix, sign: Sign) -> tuple[str, ...]:
    nodes = whole_nodes(matrix, sign.workers)
    return nodes or tuple(sorted({matrix.host[int(w)] for w in sign.workers} - {""}))


def _sentence(matrix: ProfileMatrix, sign: Sign, cause: Cause | None = None) -> str:
    cause = cause or _cause(matrix, sign)
    return f"{who(matrix, sign)}: {sign.function}: {sign.seen}. {_capital(cause.says)}. Next: {cause.next}"


def who(matrix: ProfileMatrix, sign: Sign) -> str:
    """Return the workers of a sign in words."""
    ranks = matrix.of_ranks(sign.workers)
    hosts = _hosts(matrix, sign)
    where = f" on {'node ' if len(hosts) == 1 else ''}{', '.join(hosts[:4])}" if hosts else ""
    if len(hosts) > 4:
        where = f" on {len(hosts)} nodes"
    if len(ranks) == len(matrix.ranks):
        return f"all {len(ranks)} ranks"
    if len(ranks) == 1:
        return f"rank {ranks[0]}{where}"
    shown = ", ".join(map(str, ranks[:8])) + (
        f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    )
    return f"ranks {shown}{where}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def describe(matrix: ProfileMatrix) -> dict[str, Any]:
    """Return what a reader wants to know of a window before any verdict."""
    beta = np.median(matrix.pattern[:, BETA], axis=1)
    order = np.argsort(-beta, kind="stable")[:_TOP_FUNCTIONS]
    own = np.median(matrix.own_s, axis=0)
    step = np.median(matrix.step_s, axis=0)
    slow, quick = int(own.argmax()), int(own.argmin())
    return {
        "workers": len(matrix.ranks), "steps": matrix.steps, "step_time_s": _short(matrix.step_time_s),
        "roles": {
            name or "all": int((matrix.role == r).sum()) for r, name in enumerate(matrix.role_names)
        },
        "roles_known": matrix.role_known, "gpu_events": matrix.device,
        "own_compute_s": {
            "least": {"rank": int(matrix.ranks[quick]), "s": _short(own[quick])},
            "most": {"rank": int(matrix.ranks[slow]), "s": _short(own[slow])},
        },
        "longest_step": {"rank": int(matrix.ranks[int(step.argmax())]), "s": _short(step.max())},
        "functions": [
            {
                "function": matrix.functions[i], "class": matrix.work[i], "beta": _short(beta[i]),
                "least": _short(matrix.pattern[i, BETA].min()), "most": _short(matrix.pattern[i, BETA].max()),
            }
            for i in order.tolist()
        ],
    }  # fmt: skip


def _short(value: Any) -> float:
    return float(f"{float(value):.4g}")
