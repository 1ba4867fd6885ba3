"""What the beginning of a file shows of who writes its lines, where no label that is known tells it.

What its lines mean is told when all of it is read; until then it is enough that lines of different writers are told
apart, and counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rerail.log_parsers.json_records import Fields, fields_of, is_like_a_record, may_be_cut
from rerail.log_parsers.line_tails import may_end_so, tail_of
from rerail.log_parsers.prefixes import Origin, parse_line
from rerail.log_parsers.text import clean

_BEGINNING = 1 << 16  # bytes
_RECORDS, _LOOKED_AT = 200, 20
_FRONT, _FRONTS = 160, 160


def with_records(origin: Origin, text: bytes) -> Origin:
    """Return the origin of a file with the fields by which its records tell who wrote them, if it begins with such."""
    lines = text[:_BEGINNING].split(b"\n")[:-1]
    every = max(1, len(lines) // _LOOKED_AT)
    few = lines[::every]
    if 2 * sum(map(is_like_a_record, few)) < len(few) or not few:
        return origin
    texts = [clean(line) for line in lines[:: max(1, len(lines) // _RECORDS)]]
    fields, _ = fields_of(texts)
    if fields is None or fields == replace(fields, rank=None, local=None, place=None):
        return origin
    return replace(origin, records=fields) if may_be_cut(texts, fields) else origin


def with_tail(origin: Origin, text: bytes) -> Origin:
    """Return the origin of a file with what the rank stands in at the end of its lines, where none stands in front.

    Where records tell nothing but the rank, and stand at the end of each line, they are such ends.
    """
    rank_only = origin.records is None or origin.records == Fields(rank=origin.records.rank)
    if not rank_only:
        return origin
    plain = replace(origin, records=None)
    lines = text[:_BEGINNING].split(b"\n")[:-1]
    sample = lines[:: max(1, len(lines) // _RECORDS)]
    tail = tail_of(map(clean, sample), len(sample)) if may_end_so(sample) else None
    if tail is None:
        return origin
    told = [parse_line("", 1, clean(one), origin=plain, year=1970) for one in sample]
    in_front = sum(one.rank is not None or one.local_rank is not None for one in told)
    return origin if 2 * in_front > len(told) else replace(plain, tail=tail)


def with_labels(origin: Origin, lines: Sequence[bytes]) -> Origin:
    """Return the origin of a file with the labels that its first lines have in common and no pattern knows."""
    from rerail.log_parsers.comma_tables import columns_in_front
    from rerail.log_parsers.induced_labels import induce

    heads = [clean(line[:_FRONT]) for line in lines]
    if len(heads) > _FRONTS:
        # Neighbours, for writers take turns, and lines from further on.
        half = _FRONTS // 2
        heads = [*heads[:half], *heads[half :: len(heads) // half][:half]]
    found = columns_in_front(heads, year=1970) or induce(heads, year=1970)
    return replace(origin, induced=found) if found else origin
