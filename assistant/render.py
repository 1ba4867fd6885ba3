"""A diagnosis as text for a terminal: verdict first, evidence next, everything else folded.

Log text is printed as plain text, never as markup; it was cleaned when it was read.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from rerail.domain.diagnosis import Diagnosis, Outcome
from rerail.knowledge_base.taxonomy import leaves

_LABEL = 10
_STYLE = {
    "established": "bold green",
    "supported": "bold yellow",
    "hypothesis": "bold magenta",
    "unknown": "bold",
}
_ACTIONS = {
    "none": "nothing to do",
    "restart_as_is": "restart as it is, from the last checkpoint; cap the number of restarts",
    "drain_node_and_restart_elsewhere": "drain the node, restart on other nodes",
    "restart_and_exclude_suspect_node": "restart without the suspect node, test it later",
    "run_node_health_tests": "run health tests on the nodes before deciding",
    "reduce_memory_then_restart": "reduce memory, then restart",
    "fix_config_then_restart": "fix the configuration or environment, then restart",
    "fix_code_or_config_do_not_restart": "fix the code; a restart repeats the failure",
    "fix_data_then_restart": "fix the data, then restart",
    "roll_back_to_previous_checkpoint": "go back to the previous checkpoint",
    "roll_back_checkpoint_and_skip_data": "go back to a healthy checkpoint and skip the batches",
    "free_space_then_restart_from_checkpoint": "free space, then restart from the checkpoint",
    "restart_with_upgraded_library": "upgrade the library, then restart",
    "requeue": "requeue the job",
    "page_human": "a person must look",
    "no_action_results_complete": "nothing: the results are complete",
    "no_action_user_stop": "nothing: the job was stopped on purpose",
}


def render(
    diagnosis: Diagnosis, console: Console, *, verbose: bool = False, done: Sequence[str] = ()
) -> None:
    """Print a diagnosis; `done` says what recovery has done since."""
    width = min(console.width, 110)
    _verdict(diagnosis, console)
    _evidence(diagnosis, console, width, 99 if verbose else 6)
    _consequences(diagnosis, console, width, 99 if verbose else 3)
    _ruled_out(diagnosis, console, width, 99 if verbose else 4)
    _attempts(diagnosis, console)
    _cost(diagnosis, console)
    _history(diagnosis, console)
    _recovery(diagnosis, console, width, done)
    _missing(diagnosis, console, width, 99 if verbose else 5)
    name = diagnosis.incident
    if name is not None:
        _row(console, "INCIDENT", f"{name}   rerail show {name}")
        if diagnosis.outcome is Outcome.NO_FAILURE:
            missed = f"if it did fail: rerail confirm {name} --verdict wrong --type LEAF"
            _row(console, "", f"{missed} --line FILE:LINE", style="dim")


def _row(console: Console, label: str, text: str | Text, width: int = 110, style: str = "") -> None:
    line = Text(label.ljust(_LABEL), style="bold")
    line.append_text(text if isinstance(text, Text) else Text(text, style=style))
    console.print(line, soft_wrap=True, highlight=False)


def _verdict(diagnosis: Diagnosis, console: Console) -> None:
    outcome = diagnosis.outcome
    if outcome is Outcome.INCONCLUSIVE:
        label, word = "NO VERDICT", "INCONCLUSIVE"
    elif outcome is Outcome.NO_FAILURE:
        label, word = "VERDICT", "NO FAILURE"
    else:
        label, word = "VERDICT", str(diagnosis.status).upper()
    text = Text()
    leaf = leaves().get(diagnosis.failure_type or "")
    if leaf is not None:
        text.append(f"{leaf.id}", style="bold")
        text.append("  ")
    text.append(word, style=_STYLE.get(str(diagnosis.status), ""))
    text.append(f"   rules, {diagnosis.elapsed_s:.1f} s", style="dim")
    _row(console, label.ljust(_LABEL + 1 if len(label) >= _LABEL else _LABEL), text)
    _row(console, "", diagnosis.summary)
    first = diagnosis.first_fault
    if first is not None:
        place = [f"{first.file}:{first.line}"]
        if first.node:
            place.append(f"node {first.node}")
        if first.rank is not None:
            place.append(f"rank {first.rank}")
        if first.gpu is not None:
            place.append(f"GPU {first.gpu}")
        if first.time:
            place.append(first.time)
        _row(console, "FIRST", "  ".join(place))


def _clip(text: str, width: int) -> str:
    text = text.strip()
    return text if len(text) <= width else text[: width - 3] + "..."


def _evidence(diagnosis: Diagnosis, console: Console, width: int, most: int) -> None:
    if not diagnosis.evidence:
        return
    console.print()
    _row(console, "EVIDENCE", "")
    for item in diagnosis.evidence[:most]:
        head = Text(
            f"  {item.id:<4}{item.file}:{item.line}",
            style="bold" if item.role == "initiating" else "",
        )
        head.append(f"  {item.role}", style="dim")
        console.print(head, highlight=False, soft_wrap=True)
        console.print(
            Text("      " + _clip(item.text, 2 * width - 20)), highlight=False, soft_wrap=True
        )
    if len(diagnosis.evidence) > most:
        console.print(
            Text(f"      ... {len(diagnosis.evidence) - most} more with --verbose", style="dim")
        )


def _consequences(diagnosis: Diagnosis, console: Console, width: int, most: int) -> None:
    if not diagnosis.consequences:
        return
    console.print()
    for index, item in enumerate(diagnosis.consequences[:most]):
        ranks = f", ranks {_ranges(item.ranks)}" if item.ranks else ""
        text = f"{item.count} x {item.failure_type}{ranks}: {_clip(item.what, 70)}"
        _row(console, "FOLLOWED" if index == 0 else "", text, width)


def _ranges(ranks: list[int]) -> str:
    parts: list[str] = []
    start = previous = None
    for rank in [*ranks, None]:
        if previous is not None and rank == previous + 1:
            previous = rank
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = rank
    return ",".join(parts[:12]) + (" ..." if len(parts) > 12 else "")


def _ruled_out(diagnosis: Diagnosis, console: Console, width: int, most: int) -> None:
    for index, item in enumerate(diagnosis.ruled_out[:most]):
        cite = f" ({', '.join(item.evidence)})" if item.evidence else ""
        _row(
            console,
            "RULED OUT" if index == 0 else "",
            f"{item.failure_type}: {item.because}{cite}",
            width,
        )


def _attempts(diagnosis: Diagnosis, console: Console) -> None:
    if len(diagnosis.attempts) < 2:
        return
    parts = []
    for attempt in diagnosis.attempts:
        steps = (
            "no step"
            if attempt.last_step is None
            else f"steps {attempt.first_step}-{attempt.last_step}"
        )
        parts.append(f"attempt {attempt.number}: {steps}, {attempt.ended}")
    _row(console, "ATTEMPTS", "; ".join(parts))


def _cost(diagnosis: Diagnosis, console: Console) -> None:
    cost = diagnosis.cost
    parts = []
    if cost.idle_gpu_hours is not None:
        parts.append(f"idle {cost.idle_gpu_hours:g} GPU-h")
    if cost.lost_steps is not None:
        parts.append(f"{cost.lost_steps} steps since the last checkpoint")
    if parts:
        _row(console, "COST", "; ".join(parts))
    for told in cost.covers:
        _row(console, "", told)
    if diagnosis.forecast is not None:
        _row(console, "FORECAST", diagnosis.forecast.says)


def _history(diagnosis: Diagnosis, console: Console) -> None:
    for index, node in enumerate(diagnosis.history[:4]):
        past = ", ".join(
            f"{f.time[:10]} {f.failure_type} ({f.incident})" for f in node.failures[:4]
        )
        _row(console, "HISTORY" if index == 0 else "", f"{node.says}: {past}")


def _recovery(diagnosis: Diagnosis, console: Console, width: int, done: Sequence[str] = ()) -> None:
    console.print()
    action = str(diagnosis.recovery.action)
    target = ", ".join(diagnosis.recovery.targets.nodes)
    text = f"{_ACTIONS.get(action, action)}{f' ({target})' if target else ''}   [{action}]"
    _row(console, "DO", text, width)
    for index, line in enumerate(done):
        _row(console, "DONE" if index == 0 else "", line, width)
    if not done:
        _row(console, "", "nothing has been done", style="dim")


def _missing(diagnosis: Diagnosis, console: Console, width: int, most: int) -> None:
    for index, item in enumerate(diagnosis.missing[:most]):
        _row(console, "MISSING" if index == 0 else "", f"{item.what}: {item.how_to_get}", width)
    if len(diagnosis.missing) > most:
        _row(console, "", f"... {len(diagnosis.missing) - most} more with --verbose")
