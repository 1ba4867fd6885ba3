"""Typed slots: the parts of a line that its writer controls, replaced by what kind they are.

Templates tell a model what was printed and how often; the free text in them is what an attacker
would use, and numbers that differ only cost tokens (AIOpsShield's finding on telemetry).
"""

from __future__ import annotations

import re

_KINDS = re.compile(
    r"""(?x)
      (?P<url>[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s'"<>,;)\]}]+)
    | (?P<path>(?<![\w.])/(?:[\w.@%+~=-]+/)+[\w.@%+~=-]*)
    | (?P<uuid>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)
    | (?P<time>\b\d{4}[-/]\d\d[-/]\d\d(?:[T\s_]\d\d:\d\d:\d\d)?(?:[.,]\d+)?(?:Z|\s?[+-]\d\d:?\d\d)?
        | \b\d\d:\d\d:\d\d(?:[.,]\d+)?\b)
    | (?P<pci>\b(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d\b)
    | (?P<ip>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b)
    | (?P<text>"[^"\n]{12,}"|'[^'\n]{12,}')
    | (?P<hex>\b0x[0-9a-fA-F]+\b|\b(?=[a-fA-F]{0,40}\d)[0-9a-f]{7,}\b)
    | (?P<num>[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)
    """
)


def typed(text: str) -> str:
    """Return a line with every variable part replaced by its kind: `<num>`, `<path>`, `<text>`."""
    return " ".join(_KINDS.sub(lambda m: f"<{m.lastgroup}>", text).split())
