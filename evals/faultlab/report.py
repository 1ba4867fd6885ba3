"""Shows the scores of the fault lab: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from rerail.evals.faultlab.score import Score, summary


def as_json(scores: list[Score], skipped: Mapping[str, str]) -> str:
    """Return scores, skipped scenarios and the summary as one JSON object."""
    content: dict[str, Any] = {
        "schema_version": 1,
        "summary": summary(scores),
        "skipped": dict(skipped),
        "runs": [{**asdict(one), "right": one.right} for one in scores],
    }
    return json.dumps(content, indent=1)


def show(scores: list[Score], skipped: Mapping[str, str], console: Console) -> None:
    """Print the table, the skipped scenarios and the summary."""
    table = Table(title="Fault lab: diagnosis of real failed runs")
    for column in ("scenario", "outcome", "leaf", "rank", "node", "action", "torchrun says"):
        table.add_column(column, overflow="fold")
    for one in scores:
        verdict, truth = one.verdict, one.truth
        if verdict.error:
            table.add_row(one.name, f"[red]{verdict.error}[/red]", "", "", "", "", "")
            continue
        accused = ",".join(map(str, verdict.ranks)) or _text(verdict.first_rank)
        table.add_row(
            one.name,
            _cell(one.outcome_ok, verdict.outcome, truth.outcome),
            _cell(one.leaf_ok, _text(verdict.leaf), _text(truth.leaf)),
            _cell(one.rank_ok, accused, _text(truth.rank)),
            _cell(one.node_ok, ",".join(verdict.nodes), _text(truth.node)),
            _cell(one.action_ok, verdict.action, truth.action),
            ""
            if one.baseline_ok is None
            else _cell(one.baseline_ok, _text(one.baseline), _text(truth.rank)),
        )
    console.print(table)
    for name, reason in skipped.items():
        console.print(f"skipped {name}: {reason}", highlight=False)
    total = summary(scores)
    console.print(
        f"{total['right']} of {total['runs']} runs right in everything; "
        f"outcome {total['outcome']}, leaf {total['leaf_accepted']} "
        f"({total['leaf_exact']} exactly), action {total['action']}.\n"
        f"Culprit rank: rerail {total['rank']} of {total['single_culprit']}; "
        f"torchrun's first observed failure {total['baseline_rank']} of "
        f"{total['baseline_runs']}.\n"
        f"No wrong or invented node in {total['no_wrong_node']} of {total['runs']} runs. "
        f"Nobody accused wrongly in {total['nobody_accused_wrongly']} of "
        f"{total['no_culprit']} runs without a single culprit.",
        highlight=False,
    )


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _cell(right: bool, said: str, wanted: str) -> str:
    # The word carries the meaning, the colour only repeats it: tables are piped into files.
    return said if right else f"[red]{said}, not {wanted}[/red]"
