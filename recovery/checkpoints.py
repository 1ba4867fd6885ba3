"""Finds the checkpoints of a job and checks them without loading them.

Checkpoints are untrusted pickles, so nothing is unpickled here: a file of torch.save is a zip
archive, and the CRC of each member shows truncation, zeroed blocks and flipped bits. A `.sha256`
file beside a checkpoint is honoured for any format.
"""

from __future__ import annotations

import glob
import hashlib
import re
import zipfile
from pathlib import Path

from rerail.recovery.situation import CheckpointFact

MOST_CHECKED = 8
BLOCK = 1 << 20


def find_checkpoints(pattern: str) -> tuple[CheckpointFact, ...]:
    """Return the checkpoints that a glob pattern finds, newest step first.

    The step is the last number in the file or folder name; names without one are left out. Only
    the eight newest are checked; older ones have `intact` None.
    """
    found = []
    for name in glob.glob(pattern):
        numbers = re.findall(r"\d+", Path(name).stem)
        if numbers and not name.endswith(".sha256"):
            found.append((int(numbers[-1]), name))
    found.sort(reverse=True)
    return tuple(
        CheckpointFact(
            path=name, step=step, intact=is_intact(Path(name)) if place < MOST_CHECKED else None
        )
        for place, (step, name) in enumerate(found)
    )


def is_intact(path: Path) -> bool | None:
    """Return whether a checkpoint is whole; None where its format has nothing to check."""
    try:
        digest = path.with_name(path.name + ".sha256")
        if digest.is_file():
            wanted = digest.read_text(encoding="ascii", errors="replace").split()
            return bool(wanted) and wanted[0] == _sha256(path)
        if path.is_dir():
            return _folder(path)
        if not zipfile.is_zipfile(path):
            # torch.save writes zip files; one without a directory at its end was cut off.
            return False if path.suffix in (".pt", ".pth", ".ckpt", ".bin") else None
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile, ValueError, EOFError):
        return False


def _folder(path: Path) -> bool | None:
    """A sharded checkpoint (torch.distributed.checkpoint) has a metadata file and its shards."""
    shards = list(path.glob("*.distcp"))
    if not shards:
        return None
    return (path / ".metadata").is_file() and all(one.stat().st_size > 0 for one in shards)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
