"""Rows of a table that differ in one value: all devices at 2,100 MHz and one at 64.

Tools list devices, ranks or hosts below each other; one row alone tells nothing. A rule that asks for it fires
on the one row whose field `value` is far from those of all other rows of its table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rerail.domain.evidence import Observation

_LEAST_ROWS = 4
_GAP = 3  # lines from one row to the next
_APART = 2.0
_ALIKE = 1.3  # how far the other rows may be apart from each other, where the odd one is the lowest


def without_like_rows(found: Sequence[Observation], rules: Mapping[str, str]) -> list[Observation]:
    """Return the observations without those rows of tables that are like the others.

    Args:
        found: all observations, in the order of the evidence.
        rules: the rules that are asked of rows, and whether the odd value is the `low` or the `high` one.
    """
    asked = [one for one in found if one.rule_id in rules]
    if not asked:
        return list(found)
    odd = {id(one) for table in _tables(asked) if (one := _odd_one(table, rules)) is not None}
    return [one for one in found if one.rule_id not in rules or id(one) in odd]


def _tables(rows: Sequence[Observation]) -> list[list[Observation]]:
    """Group rows of one rule that stand close below each other in one file."""
    tables: list[list[Observation]] = []
    for _, same in groupby(rows, key=lambda one: (one.line.file, one.rule_id)):
        last = None
        for one in same:
            if last is None or one.line.number - last > _GAP:
                tables.append([])
            tables[-1].append(one)
            last = one.line.number
    return tables


def _odd_one(table: Sequence[Observation], rules: Mapping[str, str]) -> Observation | None:
    values = [float(one.fields.get("value", "nan")) for one in table]
    if len(table) < _LEAST_ROWS or any(value != value for value in values):
        return None
    low = rules[table[0].rule_id] == "low"
    at = (
        min(range(len(values)), key=values.__getitem__)
        if low
        else max(range(len(values)), key=values.__getitem__)
    )
    others = values[:at] + values[at + 1 :]
    if low:
        odd = values[at] * _APART <= min(others) and max(others) <= _ALIKE * min(others)
    else:
        odd = values[at] >= _APART * max(others) and max(others) > 0
    return table[at] if odd else None
