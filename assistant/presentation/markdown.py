"""An incident as Markdown, to be pasted where people talk; log text stands in code and cannot act."""

from __future__ import annotations

from rerail.assistant.postmortem.markup import code, escaped
from rerail.assistant.presentation.incident import IncidentView


def to_markdown(view: IncidentView) -> str:
    """Return the verdict with its evidence in a few lines."""
    verdict = view.verdict
    lines = [f"**{escaped(verdict.headline)}**", ""]
    standing = f"{verdict.status} by rules"
    lines.append(
        f"{view.id}, {view.when}, {standing}" + (f", job {escaped(view.job)}" if view.job else "")
    )
    if verdict.detail:
        lines += ["", escaped(verdict.detail)]
    if verdict.evidence:
        lines.append("")
        for item in verdict.evidence[:6]:
            lines.append(f"- {item.id} ({item.word}) {code(item.at)}: {code(item.text[:300])}")
    for title, rows in (("Ruled out", verdict.ruled_out[:4]), ("Why here", verdict.why_here)):
        lines += [f"- {title}: {escaped(row.text)}" for row in rows]
    if verdict.cost:
        lines.append(f"- Cost: {escaped('; '.join(verdict.cost))}")
    lines.append(f"- Do: {escaped(verdict.do)}")
    return "\n".join(lines) + "\n"
