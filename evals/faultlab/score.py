"""Compares what `rerail diagnose` says of a run with the truth, and with torchrun's own word.

The product is called as its user would call it, in a process of its own, on a copy of the logs in
a folder with a neutral name: neither the scenario's name nor its truth is within its reach.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerail.evals.faultlab.scenarios import Truth

ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):.*?^\S*\s*rank\s+: (\d+) ", re.DOTALL | re.MULTILINE
)
DIAGNOSE_LIMIT_S = 120


@dataclass(frozen=True)
class Place:
    """Where a run took place: how many ranks, and the names of its hosts."""

    world: int = 4
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The part of a diagnosis that is scored.

    Attributes:
        outcome: failure, no_failure or inconclusive.
        status: How firmly the evidence holds the cause.
        leaf: Leaf of the taxonomy.
        ranks: Ranks that are held responsible.
        first_rank: Rank of the first fault's line.
        nodes: Nodes that are held responsible.
        action: Recommended action.
        line: The first fault, as `file:line text`.
        elapsed_s: Time that the diagnosis took by its own account.
        error: Why there is no verdict; empty if there is one.
    """

    outcome: str = ""
    status: str = ""
    leaf: str | None = None
    ranks: tuple[int, ...] = ()
    first_rank: int | None = None
    nodes: tuple[str, ...] = ()
    action: str = ""
    line: str = ""
    elapsed_s: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Score:
    """One run: truth, verdict, and where they agree.

    Attributes:
        baseline: Rank that torchrun calls the root cause; None if it names none.
        baseline_ok: Whether that is the culprit; None where no single rank is, or where torchrun
            made no report (not used, or nothing failed).
    """

    name: str
    family: str
    truth: Truth
    verdict: Verdict
    outcome_ok: bool
    leaf_ok: bool
    leaf_exact: bool
    rank_ok: bool
    node_ok: bool
    action_ok: bool
    baseline: int | None
    baseline_ok: bool | None

    @property
    def right(self) -> bool:
        """Whether everything agrees."""
        culprit_ok = self.rank_ok and self.node_ok
        return self.outcome_ok and self.leaf_ok and culprit_ok and self.action_ok


def torchrun_root_cause(text: str) -> int | None:
    """Return the rank that torchrun's last report calls the root cause."""
    found = ROOT_CAUSE.findall(text)
    return int(found[-1]) if found else None


def diagnose(logs: Path) -> Verdict:
    """Run the product on a copy of `logs` and read its verdict."""
    with tempfile.TemporaryDirectory(prefix="rerail-score-") as folder:
        shutil.copytree(logs, Path(folder) / "logs")
        program = Path(sys.executable).with_name("rerail")
        command = [str(program), "diagnose", "--json", "--no-model", "--no-store", "logs"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=DIAGNOSE_LIMIT_S
            )
            return read_verdict(json.loads(done.stdout))
        except (OSError, subprocess.TimeoutExpired) as error:
            return Verdict(error=f"{type(error).__name__}: {error}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            tail = (done.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
            return Verdict(error=f"exit {done.returncode}, {type(error).__name__}: {tail[:160]}")


def read_verdict(answer: dict[str, Any]) -> Verdict:
    """Take the scored part out of the JSON of `rerail diagnose`."""
    first = answer["first_fault"] or {}
    suspects = answer.get("suspects") or {}
    return Verdict(
        outcome=answer["outcome"],
        status=answer["status"],
        # The special label of the taxonomy says the same as no label.
        leaf=None if answer["failure_type"] == "no_failure" else answer["failure_type"],
        ranks=tuple(suspects.get("ranks", ())),
        first_rank=first.get("rank"),
        nodes=tuple(suspects.get("nodes", ())),
        action=answer["recovery"]["action"],
        line=f"{first['file']}:{first['line']} {first['text'][:120]}" if first else "",
        elapsed_s=float(answer.get("elapsed_s", 0.0)),
    )


def rank_agrees(truth: Truth, verdict: Verdict, world: int) -> bool:
    """Return whether the verdict accuses the right rank, or nobody where nobody can be accused.

    A verdict accuses through `suspects.ranks`; only when that is empty does the rank of the first
    fault count. Where the truth is "no single rank", naming every rank accuses nobody in
    particular, and the rank of the first line shown is only where that line stands.
    """
    if truth.any_rank:
        return True
    accused = set(verdict.ranks)
    if truth.rank is None:
        return not accused or len(accused) >= world
    if not accused and verdict.first_rank is not None:
        accused = {verdict.first_rank}
    return accused == {truth.rank}


def node_agrees(truth: Truth, verdict: Verdict, hosts: Collection[str]) -> bool:
    """Return whether the verdict names no wrong node and none that does not exist.

    Naming no node is fine: the rank is scored on its own.
    """
    named = set(verdict.nodes)
    if truth.node is not None:
        return named <= {truth.node}
    return not hosts or named <= set(hosts)


def score(
    name: str, family: str, truth: Truth, verdict: Verdict, baseline: int | None, place: Place
) -> Score:
    """Compare one verdict with its truth."""
    outcome_ok = verdict.outcome in (truth.outcome, *truth.accept_outcomes)
    leaf_exact = verdict.leaf == truth.leaf
    leaf_ok = leaf_exact or verdict.leaf in truth.accept_leaves
    if verdict.outcome == "no_failure" and outcome_ok:
        # Where "no failure" is right, there need be no leaf.
        leaf_ok = leaf_ok or verdict.leaf is None
    no_verdict = bool(verdict.error)
    return Score(
        name=name,
        family=family,
        truth=truth,
        verdict=verdict,
        outcome_ok=outcome_ok,
        leaf_ok=leaf_ok and not no_verdict,
        leaf_exact=leaf_exact and not no_verdict,
        rank_ok=rank_agrees(truth, verdict, place.world) and not no_verdict,
        node_ok=node_agrees(truth, verdict, place.hosts) and not no_verdict,
        action_ok=verdict.action in (truth.action, *truth.accept_actions),
        baseline=baseline,
        baseline_ok=None if truth.rank is None or baseline is None else baseline == truth.rank,
    )


def score_run(name: str, family: str, truth: Truth, logs: Path, place: Place) -> Score:
    """Diagnose the logs of one run and score the verdict."""
    launcher = logs / "torchrun.log"
    text = launcher.read_text(errors="replace") if launcher.exists() else ""
    return score(name, family, truth, diagnose(logs), torchrun_root_cause(text), place)


def read_truths(path: Path) -> dict[str, tuple[str, Truth, Place]]:
    """Read a `truth.json`: family, truth and place of each recorded run."""
    stored = json.loads(path.read_text())
    found = {}
    for name, entry in stored["runs"].items():
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in entry["truth"].items()
        }
        place = Place(int(entry["world"]), tuple(entry["hosts"]))
        found[name] = (entry["family"], Truth(**fields), place)
    return found


def summary(scores: Iterable[Score]) -> dict[str, Any]:
    """Count what was right, over all runs and for the baseline."""
    every = list(scores)
    culprit = [one for one in every if one.truth.rank is not None]
    ran = [one for one in culprit if one.baseline_ok is not None]
    return {
        "runs": len(every),
        "right": sum(one.right for one in every),
        "outcome": sum(one.outcome_ok for one in every),
        "leaf_accepted": sum(one.leaf_ok for one in every),
        "leaf_exact": sum(one.leaf_exact for one in every),
        "action": sum(one.action_ok for one in every),
        "single_culprit": len(culprit),
        "rank": sum(one.rank_ok for one in culprit),
        "no_wrong_node": sum(one.node_ok for one in every),
        "no_culprit": len(every) - len(culprit),
        "nobody_accused_wrongly": sum(one.rank_ok for one in every if one.truth.rank is None),
        "baseline_runs": len(ran),
        "baseline_rank": sum(bool(one.baseline_ok) for one in ran),
    }
