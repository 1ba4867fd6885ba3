"""What a bug of rerail's own leaves behind: a masked file with the traceback, and two lines on standard error."""

from __future__ import annotations

import sys


def report_bug(error: Exception) -> None:
    """Write the traceback to a file of its own and say where it is."""
    import tempfile
    import traceback

    from rerail.log_parsers.redaction import redact

    with tempfile.NamedTemporaryFile("w", prefix="rerail-bug-", suffix=".txt", delete=False) as out:
        out.write(redact(traceback.format_exc()))
    print(
        redact(f"rerail: internal error: {type(error).__name__}: {error}") + "\n"
        f"  this is a bug in rerail, not in your job; the details are in {out.name}",
        file=sys.stderr,
    )
