"""The places of `places.yaml`, filled in for one job: where libraries leave evidence by themselves."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rerail.cached_yaml import load_cached

FILE = Path(__file__).with_suffix(".yaml")
MOST_FILES = 2_000
"""Files of one pattern that are looked at; a job may make any number."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one kind of evidence may lie: patterns of `glob`, filled in; `shared` ones are other jobs' places too."""

    what: str
    patterns: tuple[str, ...]
    shared: tuple[str, ...] = ()


def places_of(
    job: str, folder: str | None, commands: Sequence[str], *, on_node: bool, home: str | None = None
) -> Iterator[Place]:
    """Give the places of one job.

    Args:
        job: its id.
        folder: its working folder; patterns in it are left out where it is not known.
        commands: its command lines, as accounting keeps them.
        on_node: whether this machine is one of the job's nodes.
        home: that of the job's user; patterns in it are left out where it is not known.
    """
    content = load_cached(FILE)
    names = {name for one in content["options"] for name in one["names"]}
    named = [os.path.join(folder or "/", one) for one in _values(commands, names)]
    for place in content["places"]:
        patterns = []
        for pattern in place["patterns"]:
            for log_dir in named if "{log_dir}" in pattern else [""]:
                if folder or "{folder}" not in pattern:
                    # The job's own names are taken literally, whatever characters are in them.
                    fields = {"folder": folder or "", "job": job, "log_dir": log_dir}
                    escaped = {key: glob.escape(value) for key, value in fields.items()}
                    patterns.append(pattern.format(**escaped))
        at_home = place.get("home", ()) if home else ()
        shared = [one.format(home=glob.escape(home or "")) for one in at_home]
        shared += place.get("here", ()) if on_node else ()
        yield Place(place["what"], tuple(patterns), tuple(shared))


def _values(commands: Sequence[str], names: set[str]) -> Iterator[str]:
    for line in commands:
        for word, following in itertools.pairwise([*line.split(), ""]):
            name, equals, value = word.partition("=")
            if name in names and (value if equals else following):
                yield value if equals else following


def files_of(pattern: str) -> list[str]:
    """Return the files of a pattern, sorted; no more than MOST_FILES."""
    return sorted(itertools.islice(glob.iglob(pattern), MOST_FILES))
