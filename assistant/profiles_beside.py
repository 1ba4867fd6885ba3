"""What profiles among the evidence say of a slow job; they stand beside the verdict and never change it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rerail.domain.diagnosis import Diagnosis, FromProfiles, Missing, Outcome, SlowFunction
from rerail.errors import RerailError
from rerail.log_parsers.sources import PROFILE_SUFFIXES

if TYPE_CHECKING:
    from rerail.log_parsers.collect import Collection
    from rerail.tools.localize.findings import Localization

MOST_BYTES = 64_000_000
_PERHAPS = (".json", ".json.gz")
_HEAD = 65536
_MOST_FINDINGS, _MOST_RANKS, _LONGEST = 5, 64, 600
_HOW = "rerail localize FOLDER_OF_PROFILES"


def wants_profiles(diagnosis: Diagnosis) -> bool:
    """Tell whether a verdict leaves open what is slow: a slow job, or one of which nothing is known."""
    if diagnosis.outcome is Outcome.FAILURE:
        return diagnosis.category == "fail_slow"
    return diagnosis.outcome is Outcome.INCONCLUSIVE and diagnosis.failure_type is None


def with_profiles(
    diagnosis: Diagnosis, collection: Collection, world_size: int | None = None
) -> Diagnosis:
    """Return the diagnosis with what the profiles among its files say, where it asks for them.

    `world_size` is that of the logs, if known: profiles of fewer ranks are of another job. What cannot be
    judged is named as missing.
    """
    if not wants_profiles(diagnosis):
        return diagnosis
    files = profiles_in(collection)
    if not files:
        return diagnosis
    size = sum(file.stat().st_size for file in files if file.is_file())
    if size > MOST_BYTES:
        return _missing(diagnosis, f"{len(files)} profiles of {size / 1e6:,.0f} MB were not judged")
    try:
        seen = _judge(files, world_size)
    except RerailError as error:
        return _missing(diagnosis, f"profiles that can be judged: {_words(str(error))}")
    return diagnosis.model_copy(update={"profiles": seen})


def profiles_in(collection: Collection) -> list[Path]:
    """Return the profiler traces and summaries among the files of a job, whatever they are called."""
    surveys = [*(view.survey for view in collection.views), *collection.binaries]
    paths = {one.source.path for one in surveys if one.source.path is not None}
    return sorted({*collection.profiles, *(path for path in paths if _is_profile(path))})


def _is_profile(path: Path) -> bool:
    name = path.name.lower()
    if name.endswith(PROFILE_SUFFIXES):
        return path.is_file()
    if not name.endswith(_PERHAPS) or not path.is_file():
        return False
    import gzip

    try:
        with gzip.open(path) if name.endswith(".gz") else path.open("rb") as stream:
            head = stream.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return False
    return b'"traceEvents"' in head


def _judge(files: Iterable[Path], world_size: int | None) -> FromProfiles:
    from rerail.errors import EvidenceError
    from rerail.tools.profiles.collect import read_job
    from rerail.tools.profiles.judge import judge_profiles

    matrix = read_job(list(files))
    if world_size is not None and 0 < matrix.world < world_size:
        raise EvidenceError(
            f"those that were given are of a job of {matrix.world} ranks, the logs of one of {world_size}"
        )
    found = judge_profiles("profiles", matrix)
    return FromProfiles(
        outcome=str(found.outcome), ranks=len(matrix.ranks), steps=matrix.steps,
        step_time_s=matrix.step_time_s, says=_says(found, len(matrix.ranks), matrix.steps),
        functions=[
            SlowFunction(
                function=_words(one.function), kind=one.kind, ranks=list(one.workers[:_MOST_RANKS]),
                nodes=[_words(node) for node in one.nodes[:_MOST_RANKS]],
                reason=_words(one.reason), lost_per_step_s=one.lost_per_step_s,
            )
            for one in found.findings[:_MOST_FINDINGS]
        ],
    )  # fmt: skip


def _says(found: Localization, ranks: int, steps: int) -> str:
    from rerail.tools.durations import seconds

    window = f"profiles of {ranks} rank{'s' if ranks > 1 else ''} over {steps} step{'s' if steps > 1 else ''}"
    if found.findings:
        first = found.findings[0]
        more = len(found.findings) - 1
        also = f"; {more} more finding{'s' if more > 1 else ''}" if more else ""
        return f"{window}: {_words(first.reason)} (costs {seconds(first.lost_per_step_s)} a step{also})"
    if str(found.outcome) == "healthy":
        return f"{window}: no rank and no function stands out"
    why = f": {_words(found.missing[-1])}" if found.missing else ""
    return f"{window} name nobody{why}"


def _words(text: str) -> str:
    """Return text of a profile as it may be shown: its names are those of whoever wrote the job."""
    from rerail.log_parsers.redaction import redact
    from rerail.log_parsers.text import clean

    plain = redact(" ".join(clean(text.encode("utf-8", "replace")).split()))
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 3] + "..."


def _missing(diagnosis: Diagnosis, what: str) -> Diagnosis:
    row = Missing(what=what, how_to_get=_HOW)
    return diagnosis.model_copy(update={"missing": [*diagnosis.missing, row]})
