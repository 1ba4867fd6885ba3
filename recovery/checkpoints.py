"""Finds the checkpoints of a job and checks them without loading them.

Checkpoints are untrusted pickles, so nothing is unpickled here: a file of torch.save is a zip
archive, and the CRC of each member shows truncation, zeroed blocks and flipped bits. A `.sha256`
file beside a checkpoint is honoured for any format. Each file is opened with care: the job's user
may have put a pipe, a link or an archive that unpacks to more than a disk in its place.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import os
import re
import zipfile
from collections.abc import Collection
from pathlib import Path

from rerail.errors import RecoveryError
from rerail.recovery.safe_files import open_regular, read_whole
from rerail.recovery.situation import CheckpointFact

MOST_CHECKED = 8
MOST_FOUND = 10_000
"""Names that are looked at; a job may make any number of files."""
DIGEST_BYTES = 4096
BLOCK = 1 << 20


def find_checkpoints(pattern: str, owner: int | None = None) -> tuple[CheckpointFact, ...]:
    """Return the checkpoints that a glob pattern finds, newest step first.

    The step is the last number in the file or folder name; names without one are left out. Only
    the eight newest are checked; older ones have `intact` None. With `owner`, a checkpoint of
    another account counts as damaged.
    """
    found = []
    for name in itertools.islice(glob.iglob(pattern), MOST_FOUND):
        numbers = re.findall(r"\d{1,18}", Path(name).stem)
        if numbers and not name.endswith(".sha256"):
            found.append((int(numbers[-1]), name))
    found.sort(reverse=True)
    return tuple(
        CheckpointFact(
            path=name,
            step=step,
            intact=is_intact(Path(name), owner) if place < MOST_CHECKED else None,
        )
        for place, (step, name) in enumerate(found)
    )


def is_intact(path: Path, owner: int | None = None) -> bool | None:
    """Return whether a checkpoint is whole; None where its format has nothing to check."""
    owners = () if owner is None else (owner,)
    try:
        wanted = _digest_beside(path, owners)
        if wanted is not None:
            return wanted == _sha256(path, owners)
        if path.is_dir():
            return _folder(path, owners)
        with os.fdopen(open_regular(path, owners=owners, follow=True), "rb") as stream:
            if not zipfile.is_zipfile(stream):
                # torch.save writes zip files; one without a directory at its end was cut off.
                return False if path.suffix in (".pt", ".pth", ".ckpt", ".bin") else None
            with zipfile.ZipFile(stream) as archive:
                size = os.fstat(stream.fileno()).st_size
                # torch.save stores and never compresses: what unpacks to more is no checkpoint.
                if sum(one.file_size for one in archive.infolist()) > size:
                    return False
                return archive.testzip() is None
    except (OSError, zipfile.BadZipFile, ValueError, EOFError, RecoveryError, RuntimeError):
        return False


def _digest_beside(path: Path, owners: Collection[int]) -> str | None:
    """Return the digest in the `.sha256` file beside a checkpoint, or None where there is none."""
    beside = path.with_name(path.name + ".sha256")
    try:
        raw = read_whole(open_regular(beside, owners=owners, follow=True), DIGEST_BYTES)
    except FileNotFoundError:
        return None
    words = raw.decode("ascii", errors="replace").split()
    return words[0] if words else ""


def _folder(path: Path, owners: Collection[int]) -> bool | None:
    """A sharded checkpoint (torch.distributed.checkpoint) has a metadata file and its shards."""
    shards = list(itertools.islice(path.glob("*.distcp"), MOST_FOUND))
    if not shards:
        return None
    for one in (path / ".metadata", *shards):
        handle = open_regular(one, owners=owners, follow=True)
        try:
            if one.suffix == ".distcp" and os.fstat(handle).st_size == 0:
                return False
        finally:
            os.close(handle)
    return True


def _sha256(path: Path, owners: Collection[int]) -> str:
    digest = hashlib.sha256()
    with os.fdopen(open_regular(path, owners=owners, follow=True), "rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
