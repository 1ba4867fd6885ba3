"""Tells the files that hold series from logs: by their name, and where that leaves a doubt by their head."""

from __future__ import annotations

import re
from pathlib import Path

from rerail.lazy_patterns import lazy
from rerail.log_parsers.opening import open_source
from rerail.log_parsers.series_files.forms import EVENT_FILE, METRICS_CSV, TRAINER_STATE
from rerail.log_parsers.sources import Source

_HEAD = 1 << 16
_EVENTS = lazy(r"(?:^|/)[^/]*\btfevents\b[^/]*$")
_TEXT = lazy(r"\.(?:json|csv|tsv)(?:\.(?:gz|zst|xz|bz2))?$", re.IGNORECASE)


def kind_of(source: Source) -> str | None:
    """Return which kind of series file a source is, by its name and where that leaves a doubt by its head."""
    if source.path is None or source.path.is_fifo():
        return None
    if _EVENTS.search(source.name):
        from rerail.log_parsers.series_files.records import looks_like_records

        return EVENT_FILE if looks_like_records(_head(source, 16)) else None
    if not _TEXT.search(source.name):
        return None
    from rerail.log_parsers.series_files.metrics_csv import header_of
    from rerail.log_parsers.series_files.trainer_state import has_history

    head = _head(source, _HEAD)
    if source.name.rpartition("/")[2].startswith("trainer_state") or b'"log_history"' in head:
        return TRAINER_STATE if has_history(head) or b'"best_metric"' in head else None
    return METRICS_CSV if ".json" not in source.name.lower() and header_of(head) else None


def is_metrics_csv(path: Path) -> bool:
    """Tell whether a file is the CSV of a logger."""
    return path.is_file() and kind_of(Source(path, path.name)) == METRICS_CSV


def _head(source: Source, size: int) -> bytes:
    try:
        with open_source(source) as stream:
            return stream.read(size)
    except (OSError, EOFError, ValueError):
        return b""
