"""`rerail localize --learn` and `--before`: a job's profiles kept for later, or held against others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rerail.tools.profiles.matrix import ProfileMatrix


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


def _write_page(
    html: Path, before: Path, then: ProfileMatrix, after: list[Path], expected: Path | None
) -> None:
    from rerail.assistant.cli.localize import worst_first
    from rerail.assistant.cli.localize_page import write_page
    from rerail.assistant.straggler_logs import read_straggler_log
    from rerail.tools.localize.localize_paths import localize_paths
    from rerail.tools.localize_page.page import change_of

    judged = localize_paths(after, read_straggler_log, expected)
    worst_first(judged)
    # Both were compared already, so that the later one holds profiles is certain.
    now = next(one.matrix for one in judged if one.matrix is not None)
    write_page(html, judged, expected, change_of(str(before), then, now))
    sys.stderr.write(f"page written to {html}\n")


def change_command(
    before: Path,
    after: list[Path],
    json_output: bool,
    html: Path | None = None,
    expected: Path | None = None,
) -> int:
    """Print which functions changed between two profiles of one job; 0 if some did, else 3.

    A page (`html`) shows the verdict on the later profiles, too.

    Raises:
        UsageError: pandas is not installed, or jinja2 for a page.
        EvidenceError: one of the two holds no profiles of one job.
    """
    from rerail.tools.durations import seconds
    from rerail.tools.profiles.collect import profile_files, read_job
    from rerail.tools.profiles.tables import change_table

    then = read_job(profile_files(before))
    now = read_job([file for path in after for file in profile_files(path)])
    frame = change_table(then, now)
    if html is not None:
        _write_page(html, before, then, after, expected)
    rows = json.loads(frame.to_json(orient="records"))
    steps = {"before_s": then.step_time_s, "after_s": now.step_time_s}
    if json_output:
        sys.stdout.write(
            json.dumps({"schema_version": 1, "step_time": steps, "changes": rows}) + "\n"
        )
        return 0 if rows else 3
    sys.stdout.write(
        f"step {seconds(steps['before_s'])} before, {seconds(steps['after_s'])} after\n"
    )
    for row in rows[:30]:
        old = seconds(row["before_s"]) if row["before_s"] else "did not run"
        new = seconds(row["after_s"]) if row["after_s"] else "does not run any more"
        role = f"{row['role']}: " if row["role"] not in ("", "all") else ""
        sys.stdout.write(f"  {role}{row['function']}: {old} -> {new} a step\n")
    if not rows:
        sys.stdout.write(
            "on the typical rank no function changed by 5 % and 0.3 % of the step or more; "
            f"single ranks: rerail localize {' '.join(map(str, after))}\n"
        )
    return 0 if rows else 3
