"""On which host a job's output was written, where a scheduler's record of the job stands beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from rerail.cached_yaml import load_cached
from rerail.kept_patterns import kept_pattern
from rerail.log_parsers.file_names import PATH


@lru_cache(maxsize=1)
def _patterns() -> dict[str, re.Pattern[bytes]]:
    return {
        key: kept_pattern(text.encode()) for key, text in load_cached(PATH)["job_record"].items()
    }


def hosts_of_outputs(lines: Iterable[bytes]) -> dict[str, set[str]]:
    """Return by the name of a file, without its folders, the host of the job on one host that a record says wrote it.

    Nothing where another record tells a file and no such host: the one that is known would seem to be the only one.
    """
    told, found = _patterns(), dict[str, set[str]]()
    node, ends = None, False
    for line in lines:
        if told["begins"].search(line):
            node, ends = None, False
        elif told["ends_still"].search(line):
            ends = True
        elif match := told["node"].search(line):
            node = None if ends else match["node"].decode()
        elif match := told["path"].search(line):
            if node is None:
                return {}
            found.setdefault(match["name"].decode("utf-8", "replace"), set()).add(node)
    return found
