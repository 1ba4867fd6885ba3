"""Why this line, and why here: the chains of cause and place of a diagnosis, as text and as a graph.

The graph is written as DOT, for any tool that draws graphs, or as SVG, drawn here in two columns: what
explains on the left, what is explained on the right.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from rerail.assistant.presentation.words import type_words
from rerail.domain.diagnosis import Diagnosis, Evidence
from rerail.errors import UsageError

_WIDTH = 96
_BOX, _GAP, _LEFT, _RIGHT = 44, 16, 20, 560
_CHARS = 62


def why(diagnosis: Diagnosis) -> list[str]:
    """Return two short chains of quoted lines: why this is the first fault, and why it is here."""
    named = {item.id: item for item in diagnosis.evidence}
    first = _first(diagnosis)
    if first is None:
        return [
            "Nothing is called a fault here, so there is nothing to explain.",
            diagnosis.summary,
        ]
    lines = ["WHY THIS IS THE FIRST FAULT", *_quoted(first)]
    own = [relation for relation in diagnosis.relations if relation.cause == first.id]
    for relation in own:
        effect = named[relation.effect]
        lines += [f"  explains {effect.id}: {relation.because}", *_quoted(effect, "    ")]
    if not own:
        lines.append("  nothing else in the evidence has to be explained by it")
    for out in diagnosis.ruled_out:
        cited = [named[name] for name in out.evidence if name in named]
        lines.append(f"  not {type_words(out.failure_type)}: {out.because}")
        lines += [text for item in cited for text in _quoted(item, "    ")]
    lines += ["", "WHY HERE"]
    for reason in diagnosis.place:
        lines.append(f"  {reason.what}: {reason.because}")
        if reason.evidence in named:
            lines += _quoted(named[reason.evidence], "    ")
    if not diagnosis.place:
        lines.append("  no line ties the fault to one rank, node or GPU, so none is named")
    return lines


def _first(diagnosis: Diagnosis) -> Evidence | None:
    return next((item for item in diagnosis.evidence if item.role == "initiating"), None)


def _quoted(item: Evidence, indent: str = "  ") -> list[str]:
    text = item.text.strip()
    text = text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
    return [f"{indent}{item.id}  {item.file}:{item.line}", f"{indent}    {text}"]


def write_graph(diagnosis: Diagnosis, path: Path) -> None:
    """Write the graph of a diagnosis as DOT or SVG, by the ending of the file.

    Raises:
        UsageError: for another ending, or a file that cannot be written.
    """
    writers = {".dot": to_dot, ".gv": to_dot, ".svg": to_svg}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise UsageError(
            f"{path.name!r} is neither .svg nor .dot", subject=str(path), hint="--graph why.svg"
        )
    try:
        path.write_text(writer(diagnosis), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            subject=str(path),
            hint=f"ls -ld {path.parent}",
        ) from None


def to_dot(diagnosis: Diagnosis) -> str:
    """Return the graph in the DOT language."""

    def literal(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    lines = ["digraph diagnosis {", "  rankdir=LR; node [shape=box, fontname=monospace];"]
    for item in _drawn(diagnosis):
        style = ", penwidth=3" if item.role == "initiating" else ""
        label = f"{item.id} {item.file}:{item.line}\n{item.text.strip()[:_CHARS]}"
        lines.append(f"  {item.id} [label={literal(label)}{style}];")
    for relation in diagnosis.relations:
        lines.append(
            f"  {relation.cause} -> {relation.effect} [label={literal(relation.because)}];"
        )
    return "\n".join([*lines, "}", ""])


def _heading(item: Evidence) -> str:
    text = f"{item.file}:{item.line}"
    most = _CHARS - len(item.id) - 2
    return f"{item.id}  " + (text if len(text) <= most else "..." + text[3 - most :])


def _drawn(diagnosis: Diagnosis) -> list[Evidence]:
    joined = {
        name for relation in diagnosis.relations for name in (relation.cause, relation.effect)
    }
    return [item for item in diagnosis.evidence if item.id in joined or item.role == "initiating"]


def to_svg(diagnosis: Diagnosis) -> str:
    """Return the graph as an SVG page of two columns; text is escaped."""
    causes = {relation.cause for relation in diagnosis.relations}
    items = _drawn(diagnosis)
    left = [item for item in items if item.id in causes or item.role == "initiating"]
    right = [item for item in items if item not in left]
    at = {
        item.id: (x, 20 + row * (_BOX + _GAP))
        for x, column in ((_LEFT, left), (_RIGHT, right))
        for row, item in enumerate(column)
    }
    height = 40 + max(len(left), len(right), 1) * (_BOX + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="1040" height="{height}" '
        'font-family="monospace" font-size="11">',
        "<title>What explains what</title>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M 0 0 L 8 4 L 0 8 z" fill="#555"/></marker></defs>',
        f'<rect width="1040" height="{height}" fill="#fff"/>',
    ]
    for relation in diagnosis.relations:
        (x1, y1), (x2, y2) = at[relation.cause], at[relation.effect]
        bend = 60 if x1 == x2 else 0
        x_end = x2 if x2 > x1 else x2 + 460
        parts.append(
            f'<path d="M {x1 + 460} {y1 + _BOX / 2} C {x1 + 500 + bend} {y1 + _BOX / 2}, '
            f'{x_end - 40 + 2 * bend} {y2 + _BOX / 2}, {x_end} {y2 + _BOX / 2}" fill="none" stroke="#555" '
            f'marker-end="url(#end)">'
            f"<title>{escape(relation.because)}</title></path>"
        )
    for item in items:
        x, y = at[item.id]
        stroke = "#b00020" if item.role == "initiating" else "#888"
        parts.append(
            f'<rect x="{x}" y="{y}" width="460" height="{_BOX}" rx="4" fill="#fafafa" stroke="{stroke}"/>'
            f'<text x="{x + 8}" y="{y + 17}" fill="#333">{escape(_heading(item))}</text>'
            f'<text x="{x + 8}" y="{y + 34}" fill="#000">{escape(item.text.strip()[:_CHARS])}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
