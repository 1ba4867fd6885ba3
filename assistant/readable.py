"""Which paths a server may read for somebody else: what lies in its folders, as it really is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rerail.errors import UsageError
from rerail.log_parsers.sources import Discovery, Problem, discover


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


def discovered(paths: Iterable[str], folders: tuple[Path, ...]) -> Discovery:
    """Return the files of paths that somebody else named; what a link inside of them leads out to is left out.

    Raises:
        UsageError: A path lies elsewhere, or nothing is left.
        EvidenceError: A path names nothing.
    """
    found = discover([within(path, folders) for path in paths])
    keep_within(found, folders)
    return found


def keep_within(found: Discovery, folders: tuple[Path, ...]) -> None:
    """Leave out files that really lie elsewhere; those of a job have the names that its user chose.

    Raises:
        UsageError: Nothing is left.
    """
    outside = [one for one in found.sources if not _lies_in(one.path, folders)]
    for one in outside:
        why = "it is not in a folder that this server reads"
        found.problems.append(Problem(one.name, why, "start it with --logs FOLDER"))
    found.sources[:] = [one for one in found.sources if one not in outside]
    for beside in (found.profiles, found.scanned):
        beside[:] = [path for path in beside if _lies_in(path, folders)]
    if outside and not (found.sources or found.scanned):
        raise UsageError(
            f"{outside[0].name} is not in a folder that this server reads",
            subject=outside[0].name,
            hint="start it with --logs FOLDER",
        )


def _lies_in(path: Path | None, folders: tuple[Path, ...]) -> bool:
    return path is not None and any(path.resolve().is_relative_to(one) for one in folders)


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
