"""`rerail-job-file read|write|check PATH`: one order file of a job, as the job's own user.

Recovery runs it through sudo where the policy sets `identities.job_user`. It can do nothing that
the user could not do; a folder of somebody else is refused all the same.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rerail.errors import RerailError
from rerail.recovery.job_file import ABSENT, JobFile
from rerail.recovery.safe_files import MOST_BYTES


def main(arguments: list[str] | None = None) -> int:
    """Do one thing to one file; exit code 0, 3 for a file that is not there, 1 for an error."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 2 or given[0] not in ("read", "write", "check"):
        print("usage: rerail-job-file read|write|check PATH", file=sys.stderr)
        return 2
    what, path = given[0], Path(given[1])
    if not path.is_absolute():
        print(f"{path} is no absolute path", file=sys.stderr)
        return 2
    file = JobFile(path, os.geteuid())
    try:
        if what == "write":
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise ValueError("the order is too large")
            file.write(content.decode().rstrip("\n"))
        elif what == "check":
            file.check()
        else:
            found = file.read()
            if found is None:
                return ABSENT
            sys.stdout.buffer.write(found)
    except (RerailError, ValueError) as error:
        print(getattr(error, "message", str(error)), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
