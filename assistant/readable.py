"""Which paths a server may read for somebody else: what lies in its folders, as it really is."""

from __future__ import annotations

from pathlib import Path

from rerail.errors import UsageError


def within(path: str, folders: tuple[Path, ...]) -> Path:
    """Return a path as it really is, if it lies in one of the folders.

    Raises:
        UsageError: It lies elsewhere, also by a link, or is not there.
    """
    real = Path(path).expanduser()
    if not real.is_absolute():
        real = folders[0] / real
    try:
        real = real.resolve()
    except (OSError, RuntimeError, ValueError):
        real = Path("/")
    if not any(real.is_relative_to(folder) for folder in folders):
        raise UsageError(
            f"{path[:200]} is not in a folder that this server reads",
            subject=path[:200],
            hint="start it with --logs FOLDER",
        )
    if not real.exists():
        raise UsageError(f"{path[:200]} is not there", subject=path[:200])
    return real


def readable_folders(given: list[Path]) -> tuple[Path, ...]:
    """Return the folders of a server: those given, else the present one.

    Raises:
        UsageError: One is no folder.
    """
    folders = tuple(path.expanduser().resolve() for path in given or [Path.cwd()])
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder", subject=str(folder), hint="--logs FOLDER")
    return folders
