"""Which GPU a line of `nvidia-smi -q` is about: the one whose section it stands in.

A state ("HW Slowdown : Active") names no device; the header above it, at the margin, does.
"""

from __future__ import annotations

import re

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case

_HEADER = re.compile(
    r"^GPU (?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$"
)
_ATTACHED = re.compile(r"^Attached GPUs\s+: (\d+)\s*$")
_STATE = re.compile(r"^\s{4,}\S.* : \S")
_REACH = 600  # lines of one GPU's section


def gpu_above(case: Case, line: LogLine) -> tuple[str, int | None] | None:
    """Return PCI address and index of the GPU in whose section a line stands, or None.

    The index is that of nvidia-smi, which lists devices in the order of their addresses; it is
    None where not all of the node's devices are listed (`nvidia-smi -q -i 3`).
    """
    view = case.view(line)

    def raw(number: int) -> str:
        return view.survey.kept.get(number, b"").decode("utf-8", "replace")

    if not _STATE.match(raw(line.number)):
        return None
    headers: dict[int, str] = {}
    attached = None
    for number in view.numbers:
        text = raw(number)
        if header := _HEADER.match(text):
            headers[number] = header["pci"]
        elif count := _ATTACHED.match(text):
            attached = int(count[1])
    above = [number for number in headers if number < line.number]
    if not above or line.number - above[-1] > _REACH:
        return None
    return headers[above[-1]], len(above) - 1 if len(headers) == attached else None
