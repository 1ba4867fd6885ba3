"""`rerail localize --learn`: what healthy profiles of a job look like, kept for later windows."""

from __future__ import annotations

import sys
from pathlib import Path


def learn_command(paths: list[Path], out: Path) -> int:
    """Learn boxes from folders of healthy profiles, one window each, and write them to `out`.

    Raises:
        EvidenceError: a folder holds no profiles, or the file cannot be written.
    """
    from rerail.errors import EvidenceError
    from rerail.tools.profiles.collect import profile_files, read_job
    from rerail.tools.profiles.expected import learn, write_expected

    expected = learn([(str(path), read_job(profile_files(path))) for path in paths])
    try:
        write_expected(expected, out)
    except OSError as error:
        raise EvidenceError(f"{out}: {error.strerror}", subject=str(out)) from None
    sys.stdout.write(
        f"{len(expected.boxes)} functions of {expected.workers} workers over {expected.steps} steps "
        f"written to {out}\nuse it with: rerail localize FOLDER --expected {out}\n"
    )
    return 0
