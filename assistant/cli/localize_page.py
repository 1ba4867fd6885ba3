"""Where `rerail localize --html` writes to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rerail.tools.localize.localize_paths import Judged
    from rerail.tools.localize_page.page import Change


def write_page(
    html: Path, judged: Sequence[Judged], expected: Path | None, change: Change | None = None
) -> None:
    """Write the page of these verdicts; `expected` is the file that they were held against.

    Raises:
        UsageError: jinja2 is not installed.
        OutputError: the file cannot be written.
    """
    from rerail.assistant.cli.plot_file import write_output
    from rerail.tools.localize_page.page import render

    write_output(html, render(judged, expected, change).encode())
