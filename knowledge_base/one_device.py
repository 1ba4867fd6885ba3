"""Rules that ask for one device: every line that they match names the same one of the same host, against several peers.

A path that is broken shows at both of its ends, and a peer that is gone at all that talk to it. Where one adapter of
one host reaches none of several peers, and nobody else complains, it is that adapter or its cable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rerail.log_parsers.view import LogView

_LEAST_PEERS = 2


def of_one_device(views: Sequence[LogView], signature: int, pattern: re.Pattern[str]) -> bool:
    """Tell whether all lines that a rule's pattern (`device`, `peer`) hits are of one device and of several peers."""
    devices: set[tuple[str | None, str | None]] = set()
    peers: set[str | None] = set()
    for view in views:
        for hit in view.survey.hits:
            line = view.line(hit.line) if hit.signature == signature else None
            found = pattern.search(line.whole) if line is not None else None
            if line is not None and found is not None:
                devices.add((line.node, found["device"]))
                peers.add(found["peer"])
    known = len(devices) == 1 and None not in next(iter(devices))
    return known and len(peers - {None}) >= _LEAST_PEERS
