"""Reads Prometheus' text exposition format, as dcgm-exporter writes it.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text and OpenMetrics).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# A label's value may hold braces and escaped quotes: pods are named by their users.
_SAMPLE = re.compile(
    r"^(?P<name>[A-Za-z_:][\w:]*)"
    r'(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?'
    r"[ \t]+(?P<value>\S+)(?:[ \t]+(?P<time>-?[\d.]+(?:[eE][+-]?\d+)?))?"
)
_LABEL = re.compile(r'(\w+)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"')
_ESCAPED = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
# Time stamps are milliseconds in the text format and seconds in OpenMetrics.
_LEAST_MS = 1e11


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one series; `time_s` is seconds since the epoch, None where nothing says it."""

    name: str
    labels: Mapping[str, str]
    value: float
    time_s: float | None = None


def looks_like_exposition(text: str) -> bool:
    """Tell whether a text is an exposition: a comment of the format, or a sample with labels."""
    head = text[:65_536]
    return "# HELP" in head or any(
        found and found["labels"] is not None for found in map(_SAMPLE.match, head.splitlines())
    )


def read_exposition(text: str, time_s: float | None = None) -> Iterator[Sample]:
    """Yield the samples of a text; `time_s` is the time of those that bring none."""
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is None:
            continue
        try:
            value = number(found["value"])
            at = time_s if found["time"] is None else float(found["time"])
        except ValueError:
            continue
        if found["time"] is not None and at is not None and abs(at) >= _LEAST_MS:
            at /= 1000.0
        yield Sample(found["name"], read_labels(found["labels"] or ""), value, at)


def read_labels(text: str) -> dict[str, str]:
    """Return the labels between the braces of a sample."""
    return {
        name: re.sub(r'\\[n"\\]', lambda one: _ESCAPED[one[0]], value)
        for name, value in _LABEL.findall(text)
    }


def number(text: str) -> float:
    """Return a value of the format; `NaN`, `+Inf` and hexadecimal numbers are values too.

    Raises:
        ValueError: It is no number.
    """
    return float(int(text, 16)) if text[:2].lower() == "0x" else float(text)


def is_finite(sample: Sample) -> bool:
    """Tell whether a sample holds a number that can be compared."""
    return math.isfinite(sample.value)
