"""`rerail localize --learn` and `--before`: a job's profiles kept for later, or held against others."""

from __future__ import annotations

import json
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


def change_command(before: Path, after: list[Path], json_output: bool) -> int:
    """Print which functions changed between two profiles of one job; 0 if some did, else 3.

    Raises:
        UsageError: pandas is not installed.
        EvidenceError: one of the two holds no profiles of one job.
    """
    from rerail.tools.durations import seconds
    from rerail.tools.profiles.collect import profile_files, read_job
    from rerail.tools.profiles.tables import change_table

    then = read_job(profile_files(before))
    now = read_job([file for path in after for file in profile_files(path)])
    frame = change_table(then, now)
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
        sys.stdout.write("no function changed by 5 % and 0.3 % of the step or more\n")
    return 0 if rows else 3
