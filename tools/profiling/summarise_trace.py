"""Summarise one trace of a running job and remove it; started by `window`, not by hand."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from rerail.errors import RerailError
from rerail.tools.profiles.read_trace import read_trace
from rerail.tools.profiles.summarise import summarise
from rerail.tools.profiles.summary import write_summary


def main(request: str) -> int:
    """Write the summary that a request asks for; the exit code is 1 if the trace is unreadable."""
    asked = json.loads(request)
    trace = Path(asked["trace"])
    try:
        summary = summarise(
            read_trace(trace), rank=asked["rank"], role=asked["role"], job=asked["job"]
        )
        host = summary.host or os.uname().nodename
        world = summary.world or asked["world"]
        cost = {**summary.cost, **asked["cost"]}
        write_summary(
            replace(
                summary, host=host, world=world, cost=cost, source="",
                cpu_wait_s=tuple(asked.get("cpu_wait_s", ())),
            ),
            Path(asked["folder"]),
        )  # fmt: skip
    except (RerailError, OSError) as error:
        sys.stderr.write(f"rerail: no profile of rank {asked['rank']}: {error}\n")
        return 1
    finally:
        trace.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    os.nice(10)
    raise SystemExit(main(sys.argv[1]))
