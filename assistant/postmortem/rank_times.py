"""The chart of ranks over time: until when each one trained, and when the failure showed on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape

from rerail.assistant.postmortem.charts import FAULT, GRID, PART, WIDTH, open_svg
from rerail.domain.incident import Incident, RankFact
from rerail.knowledge_base.store.clock import from_iso

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 34, 24
_MOST_ROWS, _ROOM, _TALLEST = 256, 384.0, 14.0
_TRAINED = "#9bb8cf"
_LEGEND = (
    (270, 16, _TRAINED, "trained"),
    (352, 4, PART["consequence"], "the failure showed"),
    (482, 4, PART["suspect"], "on a suspect"),
    (578, 2, FAULT, "first fault"),
)


def rank_times(incident: Incident) -> str | None:
    """Return the chart as SVG, or None where fewer than two ranks have a time.

    A bar ends with the last step of its rank; a mark is the first line of the failure there. Of more
    than 256 ranks the suspects are drawn, and an even choice of the others.
    """
    timed = [r for r in incident.snapshot.ranks if r.last_step_at or r.failed_at]
    if len(timed) < 2:
        return None
    shown = _chosen(timed)
    fault = _time(incident.occurred_at)
    moments = [t for r in shown for t in (_time(r.last_step_at), _time(r.failed_at)) if t]
    moments += [fault] if fault else []
    start, end = min(moments).timestamp(), max(moments).timestamp()
    span = max(end - start, 1.0)
    start, end = start - 0.08 * span, end + 0.03 * span
    pitch = min(_TALLEST, _ROOM / len(shown))
    height = round(_TOP + pitch * len(shown) + _BOTTOM)

    def x(moment: datetime) -> float:
        return _LEFT + (moment.timestamp() - start) / (end - start) * (WIDTH - _LEFT - _RIGHT)

    of = f"{len(shown)} of {len(timed)} ranks" if len(shown) < len(timed) else f"{len(timed)} ranks"
    parts = [
        open_svg(height, "ranks over time"),
        f'<text x="{_LEFT}" y="17" font-size="13">{of} over time</text>',
        *_legend(),
    ]
    for row, fact in enumerate(shown):
        parts += _row(
            fact, _TOP + row * pitch, pitch, x, labelled=row % max(1, round(14 / pitch)) == 0
        )
    bottom = _TOP + pitch * len(shown)
    if fault is not None:
        at = x(fault)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 6}" y2="{bottom:.1f}" stroke="{FAULT}" '
            'stroke-width="1.5" stroke-dasharray="5 3"/>'
        )
    parts.append(
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{bottom:.1f}" y2="{bottom:.1f}" stroke="{GRID}"/>'
    )
    taken = -100.0
    for moment in sorted({*([fault] if fault else []), min(moments), max(moments)}):
        at = x(moment)
        if at - taken > 70:
            anchor = "end" if at > WIDTH - 60 else "middle"
            parts.append(
                f'<text x="{at:.1f}" y="{bottom + 16:.1f}" text-anchor="{anchor}">{moment:%H:%M:%S}</text>'
            )
            taken = at
    return "\n".join([*parts, "</svg>"])


def _legend() -> list[str]:
    return [
        f'<rect x="{x}" y="7" width="{wide}" height="11" fill="{colour}"/><text x="{x + wide + 6}" y="17">{text}</text>'
        for x, wide, colour, text in _LEGEND
    ]


def _row(
    fact: RankFact, y: float, pitch: float, x: Callable[[datetime], float], *, labelled: bool
) -> list[str]:
    thick = max(0.8, pitch - 3.0)
    note = f"rank {fact.rank}" + (f", {fact.node}" if fact.node else "")
    if fact.last_step_at:
        note += f", last step {fact.last_step} at {fact.last_step_at[11:19]}"
    if fact.failed_at:
        note += f", failure at {fact.failed_at[11:19]}"
    parts = []
    if labelled:
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 9:.1f}" text-anchor="end">{fact.rank}</text>')
    if (trained := _time(fact.last_step_at)) is not None:
        parts.append(
            f'<rect x="{_LEFT}" y="{y:.1f}" width="{x(trained) - _LEFT:.1f}" height="{thick:.1f}" '
            f'fill="{_TRAINED if fact.part != "suspect" else PART["reported"]}"><title>{escape(note)}</title></rect>'
        )
    if (failed := _time(fact.failed_at)) is not None:
        colour = PART["suspect" if fact.part == "suspect" else "consequence"]
        parts.append(
            f'<rect x="{x(failed) - 2:.1f}" y="{y:.1f}" width="4" height="{thick:.1f}" '
            f'fill="{colour}"><title>{escape(note)}</title></rect>'
        )
    return parts


def _chosen(ranks: Sequence[RankFact]) -> list[RankFact]:
    if len(ranks) <= _MOST_ROWS:
        return list(ranks)
    accused = [r for r in ranks if r.part == "suspect"][: _MOST_ROWS // 2]
    others = [r for r in ranks if r.part != "suspect"]
    wanted = _MOST_ROWS - len(accused)
    chosen = [others[i * len(others) // wanted] for i in range(min(wanted, len(others)))]
    return sorted([*accused, *chosen], key=lambda r: r.rank)


def _time(text: str | None) -> datetime | None:
    return from_iso(text) if text else None
