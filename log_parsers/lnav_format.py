"""A format for lnav made from the labels of launchers, so that it knows ranks and nodes of training logs.

lnav (https://docs.lnav.org/en/latest/formats.html) needs a time in each line. A label that stands in front of the
time and one behind it are two patterns; each is kept only with a sample that it matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rerail.log_parsers.labels import Label, labels

NAME = "rerail_training"
_TIME = r"(?P<timestamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)"
_GAP = r"[\s:|\],-]{0,4}"
_LEVEL = r"(?:\[?(?P<level>DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b\]?)?"
_BODY = r"(?P<body>.*)"
_SAMPLE_TIME = "2026-11-23 03:01:44,123"
_LONGEST = 400
_NUMBERS = frozenset({"rank", "rank2", "local", "pid", "tid", "job"})
_GROUP = re.compile(r"\(\?P<(\w+)>")


def lnav_format() -> dict[str, Any]:
    """Return the format file's content; JSON."""
    regexes: dict[str, dict[str, str]] = {}
    samples: list[dict[str, str]] = []
    slots: set[str] = set()
    for label in labels():
        if not _fits(label):
            continue
        for name, pattern, sample in _patterns(label):
            regexes[name] = {"pattern": pattern}
            samples.append({"line": sample})
            slots |= set(_GROUP.findall(pattern))
    values = {
        slot: {
            "kind": "integer" if slot in _NUMBERS else "string",
            "identifier": True,
            "description": f"{slot} in the label of a launcher",
        }
        for slot in sorted(slots - {"timestamp", "level", "body"})
    }
    return {
        "$schema": "https://lnav.org/schemas/format-v1.schema.json",
        NAME: {
            "title": "Training job with launcher labels",
            "description": "Lines of torchrun, MPI, Slurm and other launchers, with rank and node",
            "regex": regexes,
            "timestamp-field": "timestamp",
            "level-field": "level",
            "body-field": "body",
            "level": {
                "error": "^ERROR$",
                "warning": "^WARN(?:ING)?$",
                "fatal": "^FATAL$",
                "critical": "^CRITICAL$",
                "info": "^INFO$",
                "debug": "^DEBUG$",
            },
            "value": values,
            "sample": samples,
        },
    }


def _fits(label: Label) -> bool:
    """Tell whether a pattern says enough by itself: lnav knows none of the other conditions."""
    conditions = label.not_counter or label.not_device or label.ahead or label.without
    return (
        label.kind in ("own", "collector")
        and not (conditions or label.generic or label.behind_syslog_time)
        and len(label.text) <= _LONGEST
        and bool(_GROUP.search(label.text))
    )


def _patterns(label: Label) -> Iterator[tuple[str, str, str]]:
    """Yield name, pattern and sample of the label before and behind the time, where each works."""
    example = label.matches[0]
    found = label.pattern.match(example)
    if found is None:
        return
    front, rest = found[0], example[found.end() :]
    slots = set(_GROUP.findall(label.text))
    # torchrun stands in front of the time, what torch's own loggers print behind it.
    inner = "" if "rank" in slots else f"(?:{_inner()})?"
    for where, pattern, sample in (
        ("first", f"^{label.text}{_GAP}{_TIME}{_GAP}{inner}{_GAP}{_LEVEL}{_GAP}{_BODY}$",
         f"{front.rstrip()} {_SAMPLE_TIME} {rest.lstrip() or 'started'}"),
        ("behind", f"^{_TIME}{_GAP}{_LEVEL}{_GAP}{label.text}{_BODY}$", f"{_SAMPLE_TIME} {example}"),
    ):  # fmt: skip
        if re.match(pattern, sample):
            yield f"{label.id.replace('-', '_')}_{where}", pattern, sample


@lru_cache(maxsize=1)
def _inner() -> str:
    """Return the pattern of the rank that loggers print in brackets."""
    return next(label.text for label in labels() if label.id == "rank-bracket")
