"""The fields of a Kineto event that rerail uses, decoded by msgspec where it is installed."""

from __future__ import annotations

import json
from functools import reduce
from operator import or_
from types import SimpleNamespace
from typing import Any

from rerail.tools.profiles.trace_json import Decode

_PHASES = "BEMPRVCDNOSTFZbceinpstfv()"
_ARGS = {
    "bytes": "bytes",
    "elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "dtype": "dtype",
    "group_size": "Group size",
    "group_name": "Process Group Name",
    "group_desc": "Process Group Description",
    "group_ranks": "Process Group Ranks",
    "collective": "Collective name",
}


def event_decoder() -> Decode:
    """Return a function from the JSON of a list to its complete events (phase X)."""
    try:
        import msgspec
    except ImportError:
        return _plain
    args = msgspec.defstruct(
        "Args",
        [
            (key, Any if key not in _TYPED else _TYPED[key], msgspec.field(name=name, default=None))
            for key, name in _ARGS.items()
        ],
        gc=False,
    )
    tagged: dict[str, Any] = {"gc": False, "tag_field": "ph"}
    event = msgspec.defstruct(
        "Event",
        [
            ("cat", str | None, None), ("name", str | None, None), ("ts", float | str | None, None),
            ("dur", float | None, None), ("tid", int | str | None, None), ("args", args | None, None),
        ],
        tag="X", **tagged,
    )  # fmt: skip
    # Of flows, metadata and instants nothing is built.
    skipped = [msgspec.defstruct("Skipped", [], tag=letter, **tagged) for letter in _PHASES]
    decoder = msgspec.json.Decoder(list[reduce(or_, skipped, event)])  # type: ignore[misc]

    def decode(text: bytes) -> list[Any]:
        try:
            found = [one for one in decoder.decode(text) if type(one) is event]
        except msgspec.DecodeError:
            # Either a wrong cut, or a value that only json accepts (NaN, a type of another version).
            return _plain(text) if b"NaN" in text or _complete(text) else _refuse()
        return found

    def _complete(text: bytes) -> bool:
        try:
            msgspec.json.decode(text)
        except msgspec.DecodeError:
            return False
        return True

    return decode


_TYPED: dict[str, Any] = {
    "bytes": float | None, "elements": float | None, "out_elements": float | None,
    "group_size": int | None,
}  # fmt: skip


def _refuse() -> list[Any]:
    raise ValueError("not a list of events")


def _plain(text: bytes) -> list[Any]:
    """Decode with the standard library: every version and value, slower and with more memory."""
    events = []
    for row in json.loads(text):
        if not isinstance(row, dict):
            raise ValueError("an event is not an object")
        if row.get("ph") != "X":
            continue
        args = row.get("args")
        given = args if isinstance(args, dict) else {}
        events.append(
            SimpleNamespace(
                cat=row.get("cat"), name=row.get("name"),
                ts=row.get("ts"), dur=_number(row.get("dur")), tid=row.get("tid"),
                args=SimpleNamespace(**{key: given.get(name) for key, name in _ARGS.items()}),
            )
        )  # fmt: skip
    return events


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
