"""Values of a row by the titles of their columns: what a command was asked for, or the first line of its answer, names them.

Tools print the columns that they were asked for, in that order (`nvidia-smi --query-gpu=index,clocks.sm`): a pattern
over the row alone would have to know the order.
"""

from __future__ import annotations

from collections.abc import Mapping

from rerail.lazy_patterns import lazy

_TITLE = r"[A-Za-z_][\w.]*(?: ?\[[^\]]{1,12}\])?"
_TITLES = lazy(rf"{_TITLE}(?:, ?{_TITLE}){{1,40}}")
_UNIT = lazy(r" ?\[[^\]]*\]$")


def by_title(titles: str, row: str) -> Mapping[str, str]:
    """Return the values of a row by title, nothing where the two do not fit.

    Args:
        titles: a line that lists the titles, between commas, somewhere in it; the longest list counts.
        row: a line whose last values, between commas, are the row; labels may stand in front of it.
    """
    lists = [match[0].split(",") for match in _TITLES.finditer(titles)]
    names = [_UNIT.sub("", one.strip()) for one in max(lists, key=len, default=[])]
    values = [one.strip() for one in row.split(",")]
    if not names or len(values) < len(names):
        return {}
    values = values[-len(names) :]
    values[0] = values[0].split(" ")[-1] if ":" in values[0] or "]" in values[0] else values[0]
    return dict(zip(names, values, strict=True))
