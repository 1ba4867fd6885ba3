"""Which files a Slurm job and its steps were told to write to, also where Slurm does not tell them.

`scontrol show job` tells the job's own, filled in, for as long as the controller remembers the job;
sacct of 24.05 and later keeps the pattern. Before that, the command lines of `sbatch` and `srun` in
accounting (SubmitLine, 21.08) say it, or the kept script, or nobody did and the default holds. All of
it is the job user's word: hints on where to look, for a reader that judges what it finds.
Source: sbatch(1) and srun(1), filename pattern; slurm 22.05 src/common/slurm_opt.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.tools.clusters.host_list import expand

KNOWN = Path(__file__).with_suffix(".yaml")
SEPARATOR = "\x1f"
OUTPUT_FIELDS = (
    "JobIDRaw",
    "JobID",
    "NodeList",
    "NTasks",
    "User",
    "JobName",
    "WorkDir",
    "SubmitLine",
)
LATER_FIELDS = ("StdOut", "StdErr")
"""Of sacct of 24.05 and later; asked for in front of the command line, which may hold anything."""
MOST_NAMES = 100_000
_ROW = re.compile(r"^\d+(?:_\d+|\+\d+)?(?:\.\w+)?\x1f")
_LETTER = re.compile(r"%(?P<width>\d*)(?P<letter>[A-Za-z%])")
_DIRECTIVE = re.compile(r"^#SBATCH\s+(?P<options>.*?)(?:\s+#.*)?$", re.M)


@dataclass(frozen=True, slots=True)
class Told:
    """One output option: whose it is, its text, and the files it means, alternatives beside each other."""

    whose: str
    pattern: str
    files: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Outputs:
    """Everything that a job was told to write to; `guessed` where only the default name is left."""

    told: tuple[Told, ...] = ()
    folder: str | None = None
    commands: tuple[str, ...] = ()
    guessed: bool = False

    def paths(self) -> Iterator[str]:
        """Give each file once, whether it exists or not."""
        yield from dict.fromkeys(name for one in self.told for names in one.files for name in names)


@dataclass(frozen=True, slots=True)
class OutputRow:
    """What accounting keeps of a job, or of one of its steps; all of it but the nodes is the user's word."""

    job: str
    step: str
    shown: str
    nodes: tuple[str, ...]
    tasks: int
    user: str
    name: str
    folder: str
    stdout: str
    stderr: str
    line: str


@lru_cache(maxsize=1)
def _known() -> dict[str, Any]:
    known: dict[str, Any] = load_cached(KNOWN)
    return known


def read_rows(text: str, later: bool) -> list[OutputRow]:
    """Return the rows of `sacct -n -P` with the fields above and SEPARATOR between them."""
    names = (*OUTPUT_FIELDS[:-1], *(LATER_FIELDS if later else ()), OUTPUT_FIELDS[-1])
    rows: list[str] = []
    for line in text.splitlines():
        # `sbatch --wrap` keeps the line ends of what it wraps.
        if _ROW.match(line) or not rows:
            rows.append(line)
        else:
            rows[-1] += "\n" + line
    found = []
    for row in rows:
        value = dict(zip(names, row.split(SEPARATOR, len(names) - 1), strict=False))
        if len(value) < len(names):
            continue
        job, _, step = value["JobIDRaw"].partition(".")
        tasks = int(value["NTasks"]) if value["NTasks"].isdigit() else 0
        found.append(
            OutputRow(
                *(job, step, value["JobID"].partition(".")[0], expand(value["NodeList"]), tasks),
                *(value["User"], value["JobName"], value["WorkDir"]),
                *(value.get("StdOut", ""), value.get("StdErr", ""), value["SubmitLine"]),
            )
        )
    return found


def outputs_of(
    rows: list[OutputRow],
    present: dict[str, str],
    *,
    job: str,
    nodes: tuple[str, ...],
    attempt: int | None = None,
    script: Callable[[], str] = str,
) -> Outputs:
    """Return the files of one attempt.

    Args:
        rows: what accounting keeps of the job and its steps.
        present: StdOut, StdErr and WorkDir from the controller's memory; empty where it forgot the job.
        job: the job's own number, the raw one of an array's task.
        nodes: the nodes of the attempt.
        attempt: its number, where steps of other attempts are among the rows; a script may name other files each time.
        script: gives the kept batch script; only asked where nothing else names a file.
    """
    own = [one for one in rows if one.job == job]
    own = _of_attempt(own, attempt) or own  # accounting learns late of the last one
    head = next((one for one in own if not one.step), None)
    folder = present.get("WorkDir") or (head.folder if head else "") or None
    if head is None:
        head = OutputRow(job, "", job, nodes, 0, "", "", folder or "", "", "", "")
    stdout, stderr = present.get("StdOut", ""), present.get("StdErr", "")
    guessed = False
    if not stdout:
        stdout, stderr, guessed = _by_command(head, script)
    here = replace(head, nodes=nodes)
    told = [_told(here, "the job", one) for one in (stdout, stderr) if one]
    if present.get("StdOut"):
        told = _beside(told, here, script if set("%\\") & set(stdout + stderr) else str)
    for one in own:
        if one.step and one.line.split()[:1] and Path(one.line.split()[0]).name == "srun":
            step = replace(
                one, shown=head.shown, user=head.user, name=head.name, nodes=one.nodes or nodes
            )
            for pattern in options(one.line):
                told.append(_told(step, f"step {one.step}", pattern))
    # A step that starts in another folder cannot be known; relative names are taken in the job's own.
    complete = [_in_folder(one, folder) for one in told if one is not None]
    commands = tuple(one.line for one in own if one.line)
    return Outputs(tuple(dict.fromkeys(complete)), folder, commands, guessed)


def _beside(
    told: list[Told | None], head: OutputRow, script: Callable[[], str]
) -> list[Told | None]:
    """Add to the names that the controller tells those that the command line means.

    It fills in once more what `%%` or a backslash had switched off, and letters that the writer leaves as they stand.
    """
    stdout, stderr, guessed = _by_command(head, script)
    named = [] if guessed else [stdout, stderr or stdout]
    others = [_told(head, "the job", one) for one in named]
    return [
        one if one is None or other is None else replace(one, files=_joined(one, other))
        for one, other in zip_longest(told, others[: len(told)])
    ]


def _joined(one: Told, other: Told) -> tuple[tuple[str, ...], ...]:
    pairs = zip_longest(one.files, other.files, fillvalue=())
    return tuple(tuple(dict.fromkeys((*names, *more))) for names, more in pairs)


def _of_attempt(rows: list[OutputRow], attempt: int | None) -> list[OutputRow]:
    """Return the rows of one attempt: each begins with a row of the job itself."""
    number, found = -1, []
    for one in rows:
        number += not one.step
        if number == attempt:
            found.append(one)
    return found


def _by_command(head: OutputRow, script: Callable[[], str]) -> tuple[str, str, bool]:
    """Return what the job's two files are called by accounting, its command line, its script, or by default."""
    if head.stdout:
        return head.stdout, head.stderr, False
    asked = _option_values(head.line)
    if "output" not in asked:
        text = " ".join(match["options"] for match in _DIRECTIVE.finditer(script()))
        asked = _option_values("sbatch " + text) | asked
    if "output" in asked:
        return asked["output"], asked.get("error", ""), False
    kind = "array" if "_" in head.shown else "job"
    return _known()["defaults"][kind], asked.get("error", ""), True


def options(line: str) -> list[str]:
    """Return the files that the options of one command line name."""
    return list(dict.fromkeys(_option_values(line).values()))


def _option_values(line: str) -> dict[str, str]:
    """Return `output` and `error` of a command line as accounting keeps it: words without their quotes.

    A name with a space in it ends at the space: which quotes stood there is not kept.
    """
    known = _known()
    values = {known[key]["short"]: key for key in ("output", "error")}
    values |= {known[key]["long"]: key for key in ("output", "error")}
    flags = {*known["flags"]["short"], *known["flags"]["long"]}
    found: dict[str, str] = {}
    words = iter(line.split()[1:])
    for word in words:
        if not word.startswith("-"):
            break  # here the program begins, and its options are its own
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--"):
            name, value = word[1:2], word[2:].removeprefix("=")
            equals = value
        if not equals and name not in flags:
            value = next(words, "")
        if name in values and not _is_no_file(value):
            found[values[name]] = value
    return found


def _is_no_file(value: str) -> bool:
    return not value or value.isdigit() or value in _known()["no_file"]["words"]


def _told(one: OutputRow, whose: str, pattern: str) -> Told | None:
    if _is_no_file(pattern):
        return None
    return Told(whose, pattern, tuple(_filled(pattern, one)))


def _in_folder(one: Told, folder: str | None) -> Told:
    base = Path(folder or "/")
    files = tuple(tuple(str(base / name) for name in names) for names in one.files)
    return replace(one, files=files)


def _filled(pattern: str, one: OutputRow) -> Iterator[tuple[str, ...]]:
    """Give the names that a pattern means, one tuple for each task; where its node is not known, all of them."""
    if "\\" in pattern:
        # A backslash switches the letters off: sbatch(1).
        yield (pattern.replace("\\", ""),)
        return
    array, _, index = one.shown.partition("_")
    no_index = str(_known()["no_index"]["value"])
    fixed = {
        **{"%": "%", "j": one.job, "A": array.partition("+")[0], "u": one.user},
        **{"x": one.name, "s": one.step or "batch"},
        "J": f"{one.job}.{one.step}" if one.step else one.job,
        "a": index or no_index,
        "b": str(int(index if index.isdigit() else no_index) % 10),
    }
    unfilled = _known()["letters"]["unfilled"]
    used = {match["letter"] for match in _LETTER.finditer(pattern)}
    by_task = "t" in used and one.step != ""
    tasks = range(min(max(one.tasks, 1), MOST_NAMES)) if by_task else range(1)
    nodes = list(enumerate(one.nodes)) or [(0, "")]
    by_node = bool(used & {"n", "N"}) and one.step != ""
    if not by_node:
        nodes = nodes[:1]
    if by_task and len(tasks) * len(nodes) > MOST_NAMES:
        # Tasks are laid out in blocks unless srun was told otherwise.
        pairs = [[(t, *nodes[t * len(nodes) // len(tasks)])] for t in tasks]
    elif by_task:
        pairs = [[(t, place, node) for place, node in nodes] for t in tasks]
    else:
        pairs = [[(0, place, node)] for place, node in nodes]
    for alternatives in pairs:
        given = [
            {**fixed, "t": str(t), "n": str(place), "N": node.split(".")[0]}
            for t, place, node in alternatives
        ]
        if used & set(unfilled):
            given += [{k: v for k, v in one.items() if k not in unfilled} for one in given]
        yield tuple(_fill(pattern, one) for one in given)


def _fill(pattern: str, values: dict[str, str]) -> str:
    def letter(match: re.Match[str]) -> str:
        value = values.get(match["letter"])
        if value is None:
            return match[0]
        # A width fills numbers with zeros, up to ten of them: sbatch(1).
        width = min(int(match["width"] or 0), 10)
        return value.zfill(width) if value.isdigit() else value

    return _LETTER.sub(letter, pattern)
