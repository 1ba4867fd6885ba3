"""A diagnosis as text for a terminal: verdict first, evidence next, everything else folded.

Log text is printed as plain text, never as markup; it was cleaned when it was read.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from rerail.assistant.presentation.verdict import VerdictView, verdict_view
from rerail.domain.diagnosis import Diagnosis, Outcome

_LABEL = 10
_STYLE = {
    "established": "bold green",
    "supported": "bold yellow",
    "hypothesis": "bold magenta",
    "unknown": "bold",
}


def render(
    diagnosis: Diagnosis, console: Console, *, verbose: bool = False, done: Sequence[str] = ()
) -> None:
    """Print a diagnosis; `done` says what recovery has done since."""
    width = min(console.width, 110)
    view = verdict_view(diagnosis)
    _verdict(view, _STYLE.get(str(diagnosis.status), ""), console)
    _evidence(view, console, width, 99 if verbose else 6)
    followed = [_clip(row.text, width + 20) for row in view.followed]
    if followed:
        console.print()
    _rows(console, "FOLLOWED", followed[: 99 if verbose else 3])
    ruled_out = [
        row.text + (f" ({', '.join(row.cites)})" if row.cites else "") for row in view.ruled_out
    ]
    _rows(console, "RULED OUT", ruled_out[: 99 if verbose else 4])
    _rows(console, "ATTEMPTS", ["; ".join(view.attempts)] if view.attempts else [])
    _cost(view, console)
    _rows(console, "HISTORY", [row.text for row in view.history[:4]])
    console.print()
    _rows(console, "DO", [f"{view.do}   [{view.action}]"])
    _rows(console, "DONE", done)
    if not done:
        _row(console, "", "nothing has been done", style="dim")
    _missing(view, console, 99 if verbose else 5)
    name = diagnosis.incident
    if name is not None:
        _row(console, "INCIDENT", f"{name}   rerail show {name}")
        if diagnosis.outcome is Outcome.NO_FAILURE:
            missed = f"if it did fail: rerail confirm {name} --verdict wrong --type TYPE"
            _row(console, "", f"{missed} --line FILE:LINE", style="dim")


def _row(console: Console, label: str, text: str | Text, style: str = "") -> None:
    line = Text(label.ljust(_LABEL), style="bold")
    line.append_text(text if isinstance(text, Text) else Text(text, style=style))
    console.print(line, soft_wrap=True, highlight=False)


def _rows(console: Console, label: str, texts: Sequence[str]) -> None:
    for index, text in enumerate(texts):
        _row(console, label if index == 0 else "", text)


def _verdict(view: VerdictView, style: str, console: Console) -> None:
    label = "VERDICT" if view.decided else "NO VERDICT"
    _row(
        console,
        label.ljust(_LABEL + 1 if len(label) >= _LABEL else _LABEL),
        Text(view.sentence, style="bold"),
    )
    standing = Text(view.status, style=style)
    if view.failed and view.type_id:
        standing.append(f"   {view.type_id}", style="")
    standing.append(f"   rules, {view.elapsed_s:.1f} s", style="dim")
    _row(console, "", standing)
    if view.detail:
        _row(console, "", view.detail)
    if view.place:
        _row(console, "FIRST" if view.decided else "LEAD", "  ".join(view.place))


def _clip(text: str, width: int) -> str:
    text = text.strip()
    return text if len(text) <= width else text[: width - 3] + "..."


def _evidence(view: VerdictView, console: Console, width: int, most: int) -> None:
    if not view.evidence:
        return
    console.print()
    _row(console, "EVIDENCE", "")
    for item in view.evidence[:most]:
        head = Text(f"  {item.id:<4}{item.at}", style="bold" if item.role == "initiating" else "")
        head.append(f"  {item.word}", style="dim")
        console.print(head, highlight=False, soft_wrap=True)
        console.print(
            Text("      " + _clip(item.text, 2 * width - 20)), highlight=False, soft_wrap=True
        )
    if len(view.evidence) > most:
        console.print(
            Text(f"      ... {len(view.evidence) - most} more with --verbose", style="dim")
        )


def _cost(view: VerdictView, console: Console) -> None:
    _rows(console, "COST", [*(["; ".join(view.cost)] if view.cost else []), *view.covers])
    if view.forecast:
        _row(console, "FORECAST", view.forecast)
    _rows(console, "BASELINE", list(view.baseline))
    if view.profiles:
        _row(console, "PROFILES", view.profiles)


def _missing(view: VerdictView, console: Console, most: int) -> None:
    _rows(console, "MISSING", [f"{what}: {how}" for what, how in view.missing[:most]])
    if len(view.missing) > most:
        _row(console, "", f"... {len(view.missing) - most} more with --verbose")
