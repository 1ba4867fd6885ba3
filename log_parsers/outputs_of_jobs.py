"""On which host a job's output was written, where a scheduler's record of the job stands beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from rerail.cached_yaml import load_cached
from rerail.log_parsers.file_names import PATH


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[bytes], re.Pattern[bytes], re.Pattern[bytes]]:
    told = load_cached(PATH)["job_record"]
    begins, node, path = (re.compile(told[key].encode()) for key in ("begins", "node", "path"))
    return begins, node, path


def hosts_of_outputs(lines: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yield the name of a file, without its folders, and the host of the job on one host that a record says wrote it."""
    begins, of_node, of_path = _patterns()
    node: str | None = None
    for line in lines:
        if begins.search(line):
            node = None
        elif found := of_node.search(line):
            node = found["node"].decode()
        elif node is not None and (found := of_path.search(line)):
            yield found["name"].decode("utf-8", "replace"), node
