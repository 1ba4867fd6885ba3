"""Durations as a person reads them."""

from __future__ import annotations

import math


def seconds(value: float) -> str:
    """Return a duration in a unit that is read at once: 40 us, 850 ms, 12.3 s, 4.1 min, 2.0 h."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if 0 < size < 0.9995e-3:
        return f"{value * 1e6:.3g} us"
    if size < 0.9995:  # 999.6 ms would be printed as 1e+03
        return f"{value * 1e3:.3g} ms"
    if size < 300:
        return f"{value:.4g} s"
    return f"{value / 60:.1f} min" if size < 7200 else f"{value / 3600:.1f} h"


def long(value: float) -> str:
    """Return the duration of a job, in seconds, for people: in days from two days on."""
    return f"{value / 86_400:.2f} d" if 2 * 86_400 <= value < math.inf else seconds(value)


def digits(value: float) -> str:
    """Return seconds for a column of numbers: five digits, so that neighbours line up."""
    return f"{value:#.5g}".rstrip(".")


def counted(number: int, thing: str) -> str:
    """Return a number of things in words: 1 rank, 16,384 ranks."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def shortened(name: str, most: int = 44) -> str:
    """Return a name that fits beside a plot; of a longer one the middle is left out."""
    if len(name) <= most:
        return name
    left = most // 2
    return f"{name[:left]}...{name[len(name) - (most - left - 3) :]}"
