"""The places of `places.yaml`, filled in for one job: where libraries leave evidence by themselves."""

from __future__ import annotations

import glob
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rerail.cached_yaml import load_cached

FILE = Path(__file__).with_suffix(".yaml")
MOST_FILES = 2_000
"""Files of one pattern that are looked at; a job may make any number."""
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)\}|(?P<bare>[A-Za-z_]\w*))")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_LONGEST = 4096  # bytes of a value: who writes a script may let one grow without end
_BEFORE_ASSIGNED = frozenset(("export", "declare", "readonly"))


@dataclass(frozen=True, slots=True)
class Place:
    """Where one kind of evidence may lie: patterns of `glob`, filled in; `shared` ones are other jobs' places too.

    `unclaimed` are pairs: folders of runs of which no name tells whose they are, and the files in them.
    """

    what: str
    patterns: tuple[str, ...]
    shared: tuple[str, ...] = ()
    unclaimed: tuple[tuple[str, str], ...] = ()


def places_of(
    job: str,
    folder: str | None,
    commands: Sequence[str],
    *,
    on_node: bool,
    home: str | None = None,
    script: Callable[[], str] = str,
) -> Iterator[Place]:
    """Give the places of one job.

    Args:
        job: its id.
        folder: its working folder; patterns in it are left out where it is not known.
        commands: its command lines, as accounting keeps them.
        on_node: whether this machine is one of the job's nodes.
        home: that of the job's user; patterns in it are left out where it is not known.
        script: gives its batch script; only asked where none of its command lines names a folder of logs.
    """
    content = load_cached(FILE)
    names = {name for one in content["options"] for name in one["names"]}
    known = {
        variable: value
        for key, value in (("job", job), ("folder", folder), ("home", home))
        for variable in content["variables"][key]
        if value
    }
    named = [os.path.join(folder or "/", one) for one in _values(map(str.split, commands), names)]
    named = named or _named_by(script(), folder or "/", known, names, home)
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
        others = place.get("unclaimed", {}) if folder else {}
        unclaimed = [
            (run.format(folder=glob.escape(folder or "")), others["files"])
            for run in others.get("runs", ())
        ]
        yield Place(place["what"], tuple(patterns), tuple(shared), tuple(unclaimed))


def _values(commands: Iterable[Sequence[str]], names: set[str]) -> Iterator[str]:
    for words in commands:
        for word, following in itertools.pairwise([*words, ""]):
            name, equals, value = word.partition("=")
            if name in names and (value if equals else following):
                yield value if equals else following


def _named_by(
    script: str, folder: str, known: Mapping[str, str], names: set[str], home: str | None
) -> list[str]:
    """Return the folders that the command lines of a shell script name; one with a variable that nobody knows is none."""
    found = []
    for words in _command_lines(script, known):
        if words[:1] == ["cd"] and len(words) > 1:
            folder = _at(folder, words[1], home)
        found += [_at(folder, one, home) for one in _values([words], names)]
    return [one for one in dict.fromkeys(found) if not set(one) & set("$`")]


def _at(folder: str, path: str, home: str | None) -> str:
    if home and path.startswith("~/"):
        return os.path.join(home, path[2:])
    return os.path.join(folder, path)


def _command_lines(script: str, known: Mapping[str, str]) -> Iterator[list[str]]:
    """Give the words of each line of a shell script, with the variables that are known or that it sets."""
    values = dict(known)
    for line in script.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            words = line.split()  # a quotation that ends on another line
        words = [_VARIABLE.sub(partial(_value, values), one) for one in words]
        for word in words:
            if (set_here := _ASSIGNED.fullmatch(word)) is not None:
                if len(word) <= _LONGEST:
                    values[set_here[1]] = set_here[2]
            elif word not in _BEFORE_ASSIGNED:
                break
        yield words


def _value(values: Mapping[str, str], found: re.Match[str]) -> str:
    return values.get(found["braced"] or found["bare"], found[0])


def files_of(pattern: str) -> list[str]:
    """Return the files of a pattern, sorted; no more than MOST_FILES."""
    return sorted(itertools.islice(glob.iglob(pattern), MOST_FILES))
