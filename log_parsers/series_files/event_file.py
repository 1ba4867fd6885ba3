"""Scalars of TensorBoard event files: simple values and tensors of one number.

Fields are those of tensorflow/core/util/event.proto, framework/summary.proto and framework/tensor.proto
(https://github.com/tensorflow/tensorflow). TensorBoard itself is not needed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rerail.log_parsers.series_files import wire
from rerail.log_parsers.series_files.names import meaning_of
from rerail.log_parsers.series_files.records import DamagedRecordError, Record, records
from rerail.log_parsers.sources import Readable

if TYPE_CHECKING:
    from rerail.log_parsers.series_files.points import Points

_EVENT_TIME, _EVENT_STEP, _EVENT_SUMMARY, _EVENT_SESSION = 1, 2, 5, 7
_VALUE_TAG, _VALUE_SIMPLE, _VALUE_TENSOR = 1, 2, 8
_TENSOR_TYPE, _TENSOR_CONTENT = 1, 4
_SESSION_START = 1
_PACKED = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}  # DataType to the form of tensor_content
_BFLOAT16 = 14
_LISTS = {5: "<f", 6: "<d"}  # float_val and double_val
_WHOLE = frozenset({7, 10})  # int_val and int64_val
_TOLD = 3


@dataclass(slots=True)
class EventFile:
    """What one event file holds besides its points: how many records, the first time, what is damaged."""

    records: int = 0
    first_time: float = math.inf
    last_time: float = -math.inf
    tags: set[str] = field(default_factory=set)
    damage: list[str] = field(default_factory=list)


def read_events(stream: Readable, points: Points, *, first: int = 0) -> EventFile:
    """Add the scalars of one event file to `points`; its first record gets the number `first` + 1.

    A record whose checksum is wrong is left out and told in `damage`; a last one that is cut is normal.
    """
    seen = EventFile()
    wrong: list[Record] = []
    try:
        for record in records(stream):
            seen.records = record.number
            if record.data is None:
                continue
            try:
                _take(record, points, first, seen)
            except (wire.WireError, struct.error):
                wrong.append(record)
    except DamagedRecordError as error:
        seen.damage.append(f"the length of {error} is damaged; what follows it was not read")
    if wrong:
        where = ", ".join(f"{one.number} (byte {one.offset})" for one in wrong[:_TOLD])
        more = f" and {len(wrong) - _TOLD} more" if len(wrong) > _TOLD else ""
        seen.damage.append(f"record {where}{more}: the checksum or the form is wrong; left out")
    return seen


def _take(record: Record, points: Points, first: int, seen: EventFile) -> None:
    assert record.data is not None
    time, step = math.nan, 0
    values: list[tuple[str, float]] = []
    restarts = False
    for number, kind, value in wire.fields(record.data):
        if number == _EVENT_STEP and isinstance(value, int):
            step = wire.signed(value)
        elif isinstance(value, int):
            continue
        elif number == _EVENT_TIME and kind == wire.FIXED64:
            time = float(struct.unpack("<d", value)[0])
        elif number == _EVENT_SUMMARY:
            values += _scalars(value)
        elif number == _EVENT_SESSION:
            restarts = any(n == 1 and v == _SESSION_START for n, _, v in wire.fields(value))
    if not values and not restarts:
        return
    # Summing up bytes is dear, so only what is used is checked.
    if not record.is_whole():
        raise wire.WireError("checksum")
    line = first + record.number
    if math.isfinite(time):
        seen.first_time, seen.last_time = min(seen.first_time, time), max(seen.last_time, time)
    if restarts:
        points.purge(line, step)
    for tag, scalar in values:
        seen.tags.add(tag)
        points.add(tag, line, step, scalar, time)


def _scalars(summary: bytes) -> Iterator[tuple[str, float]]:
    for number, kind, value in wire.fields(summary):
        if number != 1 or kind != wire.BYTES or not isinstance(value, bytes):
            continue
        tag, found = "", None
        for part, form, content in wire.fields(value):
            if isinstance(content, int):
                continue
            if part == _VALUE_TAG:
                tag = content.decode("utf-8", "replace")
                if meaning_of(tag) is None:
                    break
            elif part == _VALUE_SIMPLE and form == wire.FIXED32:
                found = float(struct.unpack("<f", content)[0])
            elif part == _VALUE_TENSOR and form == wire.BYTES:
                found = _number(content)
        else:
            if tag and found is not None:
                yield tag, found


def _number(tensor: bytes) -> float | None:
    """Return the value of a tensor of one number; None for any other."""
    kind, content, listed = 0, b"", None
    for number, _, value in wire.fields(tensor):
        if number == _TENSOR_TYPE and isinstance(value, int):
            kind = value
        elif number == _TENSOR_CONTENT and isinstance(value, bytes):
            content = value
        elif number in _LISTS and isinstance(value, bytes):
            form = _LISTS[number]
            if len(value) != struct.calcsize(form):
                return None
            listed = float(struct.unpack(form, value)[0])
        elif number in _WHOLE:
            whole = value if isinstance(value, int) else next(_varints(value), None)
            listed = None if whole is None else float(wire.signed(whole))
    if not content:
        return listed
    if kind == _BFLOAT16 and len(content) == 2:
        return float(struct.unpack("<f", b"\0\0" + content)[0])
    form = _PACKED.get(kind, "")
    if not form or len(content) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, content)[0])


def _varints(packed: bytes) -> Iterator[int]:
    # A packed list has no keys of its own; one is put in front of its first number.
    for _, kind, value in wire.fields(b"\x08" + packed):
        if kind == wire.VARINT and isinstance(value, int):
            yield value
        return
