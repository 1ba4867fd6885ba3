"""Masks the parts of a log line that vary from one print to the next.

The masks do not know any program: dates, addresses, paths, identifiers and numbers look alike
everywhere. A word that varies and holds no digit (a layer name, a user) is left to the wildcard
merge of `templates`.
"""

from __future__ import annotations

import re

from rerail.lazy_patterns import lazy
from rerail.log_parsers.text import clean

SLOT = "<*>"

# Order matters: a longer form stands before the shorter one that it contains.
_VARIABLE = lazy(
    r"""
      [A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s'"<>,;)\]}]+                        # URL
    | [\u2500-\u259f\u28c0-\u28ff]+                                          # progress bar glyphs
    | (?<![\w.])/(?:[\w.@%+~=-]+/)+[\w.@%+~=-]*                              # absolute path
    | \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b               # UUID
    | \b\d{4}[-/]\d\d[-/]\d\d(?:[T\s_]\d\d:\d\d:\d\d)?(?:[.,]\d+)?(?:Z|\s?[+-]\d\d:?\d\d)?
    | \b(?:[0-9a-fA-F]{1,4}:){3,}[0-9a-fA-F]{1,4}(?:\.\d)?\b                 # MAC, GID, PCI address
    | \b0x[0-9a-fA-F]+\b
    | \b(?=[a-fA-F]{0,40}\d)(?:[0-9a-f]{3,}|[0-9a-fA-F]{7,})\b                 # hash, pointer
    | [-+]?\d[\d,]*(?:[.:/x]\d+)*(?:[eE][-+]?\d+)?                           # number, time, shape
      (?:\s?(?:%|[kKMGTP]i?B(?:/s)?|it/s|s/it|[mun]?s|TFLOPS?|GFLOPS?|Hz)(?![A-Za-z]))?
    """,
    re.VERBOSE,
)
# What stands between two slots that always vary together: "<*>, <*>", "<*> (<*>)", "<*>/<*>".
_RUN = lazy(r"<\*>(?:[\s,./:|x_+-]{0,3}<\*>|\s?[(\[]<\*>[)\]])+")
_SPACE = lazy(r"\s+")

# Words that tell how bad a line is, or which error it reports, are never a slot: two lines that
# differ in one of them are two events.
_PROTECTED = lazy(
    r"""(?ix)
      \b(?:error|err|fatal|fail(?:ed|ure|ing|s)?|exception|critical|panic|abort(?:ed|ing)?|kill(?:ed|ing)?
      |oom|oom-kill|nan|inf|infinity|time[d-]?-?out|timeout|traceback|warn(?:ing)?|corrupt(?:ed|ion)?
      |segfault|segmentation|denied|refused|unreachable|lost|dead|bad|hung|hang|stuck|overflow
      |mismatch|invalid|missing|unable|cannot|crash(?:ed)?|terminat(?:ed|ing)|sig[a-z]{3,5}|xid|sxid
      |uncorrectable|down|broken|reset|stale|exhausted|expired|leak|preempt(?:ed|ion)|evicted)\b
    | (?-i:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Timeout|Fault)\b)
    """
)


def mask(text: str) -> str:
    """Return one cleaned line with every variable part replaced by `<*>`."""
    masked = _VARIABLE.sub(SLOT, text)
    masked = _RUN.sub(SLOT, masked)
    return _SPACE.sub(" ", masked).strip()


def mask_raw(raw: bytes) -> str:
    """Return the mask of one raw line or progress frame."""
    return mask(clean(raw))


def is_protected(text: str) -> bool:
    """Return whether `text` holds a severity word or the name of an error."""
    return _PROTECTED.search(text) is not None


def protected_words(text: str) -> tuple[str, ...]:
    """Return the severity words and names of errors in `text`, in order."""
    return tuple(_PROTECTED.findall(text))
