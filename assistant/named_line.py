"""The line that a person names as the true first fault: kept already, or read from the log while it is there."""

from __future__ import annotations

import difflib
from itertools import islice

from rerail.domain.incident import Incident, SnapshotLine, SourceFile
from rerail.errors import RerailError, UsageError
from rerail.log_parsers.number_ranges import ranges
from rerail.log_parsers.opening import open_source
from rerail.log_parsers.prefixes import NOWHERE, parse_line
from rerail.log_parsers.redaction import redact
from rerail.log_parsers.sources import Source, discover
from rerail.log_parsers.text import clean

_LONGEST = 4_000


def named_line(incident: Incident, wanted: str) -> SnapshotLine:
    """Return the line that `FILE:LINE` names; the end of a path is enough where one file has it.

    Raises:
        UsageError: when it names no line of this incident, or one that is neither kept nor at hand.
    """
    file, _, digits = wanted.rpartition(":")
    if not file or not digits.isdigit() or int(digits) < 1:
        raise UsageError(
            f"{wanted!r} is no FILE:LINE", subject=wanted, hint="for example train.log:4711"
        )
    source = _source(incident, file)
    number = int(digits)
    for line in incident.snapshot.lines:
        if (line.file, line.number) == (source.name, number):
            return line
    if source.lines is not None and number > source.lines:
        raise UsageError(
            f"{source.name} has {source.lines} lines, not {number}",
            subject=wanted,
            hint=_kept(incident, source),
        )
    text, why = _read(incident, source, number)
    if text is None or not text.strip():
        raise UsageError(
            f"line {number} of {source.name} was not kept, and {why or 'it is empty'}",
            subject=wanted,
            hint=_kept(incident, source),
        )
    parsed = parse_line(source.name, number, text, origin=NOWHERE, year=2000)
    return SnapshotLine(
        file=source.name, number=number, text=text, rank=parsed.rank, node=parsed.node
    )


def _source(incident: Incident, file: str) -> SourceFile:
    sources = incident.snapshot.sources
    found = [s for s in sources if s.name == file] or [
        s for s in sources if s.name.endswith(f"/{file}")
    ]
    if len(found) == 1:
        return found[0]
    names = [s.name for s in (found or sources)]
    near = difflib.get_close_matches(file, names, 3, cutoff=0.3) or names[:3]
    raise UsageError(
        f"{file} is {'more than one' if found else 'none'} of the files of {incident.id}",
        subject=file,
        hint="one of: " + ", ".join(near),
    )


def _kept(incident: Incident, source: SourceFile) -> str:
    numbers = sorted(x.number for x in incident.snapshot.lines if x.file == source.name)
    shown = ranges(numbers)
    return f"kept lines of it: {shown[:200] or 'none'}; or leave --line out and use --note"


def _read(incident: Incident, source: SourceFile, number: int) -> tuple[str | None, str]:
    """Return the line as it would have been kept, or why it cannot be read."""
    try:
        # The name is as it was typed, perhaps in another folder; the paths are absolute.
        here = [
            s
            for s in discover(incident.paths).sources
            if s.name == source.name or str(s.path).endswith(f"/{source.name}")
        ]
        if len(here) != 1:
            return None, "the log is no longer there"
        size = _size(here[0])
        if size is not None and size != source.size_bytes:
            return None, "the log has changed since"
        with open_source(here[0]) as stream:
            raw = next(islice(stream, number - 1, None), b"")
    except (RerailError, OSError, EOFError, ValueError) as error:
        return None, f"the log cannot be read ({getattr(error, 'message', error)})"
    return redact(clean(raw.rstrip(b"\r\n")))[:_LONGEST], ""


def _size(source: Source) -> int | None:
    return source.path.stat().st_size if source.path is not None else None
