"""Where `--plot`, `--html` and other options write to: an SVG, a PNG that is drawn from it, a page, any file."""

from __future__ import annotations

import errno
from importlib.util import find_spec
from pathlib import Path

from rerail.errors import OutputError, UsageError
from rerail.recovery.safe_files import write_file

_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})
_ZOOM = 2.0  # pixels per SVG unit: a plot in a chat is looked at on dense screens


def check_plot_name(plot: Path | None) -> None:
    """Refuse a file name that no plot can be written to, before anything is computed.

    Raises:
        UsageError: the name ends neither in .svg nor in .png, or PNG cannot be written here.
    """
    if plot is None or plot.suffix.lower() == ".svg":
        return
    if plot.suffix.lower() != ".png":
        raise UsageError(
            f"{plot} is neither an SVG nor a PNG file name",
            subject=str(plot),
            hint="--plot plot.svg",
        )
    if find_spec("resvg_py") is None or find_spec("font_roboto") is None:
        raise UsageError(
            "PNG files need resvg-py and font-roboto, which are not installed",
            subject=str(plot),
            hint=f"pip install 'rerail[png]', or --plot {plot.with_suffix('.svg')}",
        )


def check_folder(*paths: Path | None) -> None:
    """Refuse files whose folder is not there, before minutes of work are spent on them.

    Raises:
        UsageError: a folder is missing.
    """
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(
                f"{path} cannot be written: {path.parent} is no folder", subject=str(path),
                hint=f"mkdir -p {path.parent}",
            )  # fmt: skip


def write_plot(plot: Path, svg: str) -> None:
    """Write the drawing `svg` to a file whose name `check_plot_name` let pass.

    Raises:
        OutputError, UsageError: the file cannot be written.
    """
    write_output(plot, _png(svg) if plot.suffix.lower() == ".png" else svg.encode())


def write_page(path: Path, page: str) -> None:
    """Write an HTML page.

    Raises:
        OutputError, UsageError: the file cannot be written.
    """
    write_output(path, page.encode())


def write_output(path: Path, content: bytes, *, option: str = "") -> None:
    """Write a file that the command line names.

    Raises:
        OutputError: the disk is full, over its quota or broken.
        UsageError: its name is the reason.
    """
    try:
        write_file(path, content)
    except OSError as error:
        kind = OutputError if error.errno in _OF_THE_DISK else UsageError
        raise kind(
            f"{option} {path} cannot be written: {error.strerror}".lstrip(),
            subject=str(path),
            hint=f"ls -ld {path.parent}; df -h {path.parent}",
        ) from error


def _png(svg: str) -> bytes:
    import resvg_py
    from font_roboto import Roboto

    # The font comes along: a server often has none, and a plot without words says little.
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=svg,
            background="#ffffff",
            zoom=_ZOOM,
            sans_serif_family="Roboto",
            font_files=[str(Roboto)],
            skip_system_fonts=True,
        )
    )
