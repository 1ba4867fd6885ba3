"""Loads flight-recorder dumps through short-lived reading processes with hard limits.

Many files share one process: 512 dumps need a handful of interpreters, not 512. If a file ends
its reader (memory, time, a crash), that file is reported and the rest go to a new reader.
Every path given gets exactly one answer, a `Dump` or a `DumpProblem`; nothing here raises on
account of what a file holds. What a dump means is not known here.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerail.log_parsers.flight_recorder.model import Dump, DumpProblem, dump_from_plain
from rerail.log_parsers.flight_recorder.recognise import rank_in_name

if TYPE_CHECKING:
    import subprocess

_WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True, slots=True)
class Limits:
    """What reading may cost; sizes in bytes, times in seconds.

    `memory_bytes` and `cpu_seconds` bound each reading process, the others each file. A dump of
    2000 entries with stack traces is about 3 MB.
    """

    file_bytes: int = 64 << 20
    unpacked_bytes: int = 128 << 20
    answer_bytes: int = 16 << 20
    output_bytes: int = 256 << 20
    memory_bytes: int = 1 << 30
    nodes: int = 2_000_000
    entries: int = 20_000
    seconds_per_file: int = 20
    cpu_seconds: int = 120
    files_per_reader: int = 64
    readers: int = 4
    lost_readers: int = 8


def load_dumps(
    paths: Sequence[str | os.PathLike[str]], *, limits: Limits | None = None
) -> list[Dump | DumpProblem]:
    """Read dumps (pickle or JSON, gzip allowed), one answer per path in the order given."""
    limits = limits or Limits()
    files = [os.path.abspath(os.fspath(path)) for path in paths]
    size = max(1, min(limits.files_per_reader, -(-len(files) // limits.readers)))
    # One reader is the quickest for a small job: starting another costs more than the reading.
    size = max(size, min(16, limits.files_per_reader))
    batches = [range(at, min(at + size, len(files))) for at in range(0, len(files), size)]
    answers: dict[int, dict[str, Any]] = {}
    if batches:
        from concurrent.futures import ThreadPoolExecutor  # only a job with dumps pays for it

        with ThreadPoolExecutor(min(limits.readers, os.cpu_count() or 1, len(batches))) as pool:
            for part in pool.map(lambda batch: _read_batch(files, batch, limits), batches):
                answers.update(part)
    return [_judge_answer(os.fspath(path), answers[number]) for number, path in enumerate(paths)]


def _judge_answer(path: str, answer: dict[str, Any]) -> Dump | DumpProblem:
    rank = rank_in_name(path)
    dump = answer.get("dump")
    if isinstance(dump, dict):
        return dump_from_plain(path, dump, rank)
    kind, text = answer["problem"]
    return DumpProblem(path, rank, str(kind), str(text))


def _read_batch(
    files: Sequence[str], numbers: Sequence[int], limits: Limits
) -> dict[int, dict[str, Any]]:
    """Read some of `files`, with a new reader whenever one is lost to a file."""
    answers: dict[int, dict[str, Any]] = {}
    left = list(numbers)
    for _ in range(limits.lost_readers):
        if not left:
            break
        found, started = _run_reader([files[n] for n in left], limits)
        answers.update({left[at]: answer for at, answer in found.items()})
        if started is not None and started not in found:
            why = "reading it took too long, or more memory than is allowed"
            answers[left[started]] = {"problem": ["timed_out", why]}
        elif not found:
            break  # the reader did not even begin: a new one would do the same
        left = [n for n in left if n not in answers]
    for number in left:
        answers[number] = {"problem": ["unreadable", "not read: too many readers were lost"]}
    return answers


def _run_reader(
    files: Sequence[str], limits: Limits
) -> tuple[dict[int, dict[str, Any]], int | None]:
    """Run one reader; return its answers by position and the last position it started."""
    import subprocess

    request = json.dumps({"limits": asdict(limits), "files": files}).encode()
    deadline = time.monotonic() + limits.seconds_per_file * len(files) + 10
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-X", "utf8", str(_WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
    ) as process:
        try:
            output = _exchange(process, request, deadline, limits.output_bytes)
        finally:
            process.kill()
    answers: dict[int, dict[str, Any]] = {}
    started = None
    for line in output:
        try:
            answer = json.loads(line)
        except ValueError:
            continue  # a reader that was killed leaves half a line
        if not isinstance(answer, dict) or not isinstance(answer.get("i"), int):
            continue
        if answer.get("at") == "start":
            started = answer["i"]
        elif 0 <= answer["i"] < len(files):
            answers[answer["i"]] = answer
    return answers, started


def _exchange(
    process: subprocess.Popen[bytes], request: bytes, deadline: float, most: int
) -> list[bytes]:
    """Send the request and collect complete lines until the reader ends or a limit is met."""
    import selectors

    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:  # cannot happen: both are pipes
        return []
    try:
        stdin.write(request)
        stdin.close()
    except BrokenPipeError:
        return []
    lines: list[bytes] = []
    rest: list[bytes] = []
    received = 0
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            chunk = os.read(stdout.fileno(), 1 << 16)
            if not chunk:
                break
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                lines.extend((b"".join(rest) + head).split(b"\n"))
                rest = []
            rest.append(tail)
            received += len(chunk)
            if received > most:
                break  # what is complete counts; the other files go to a new reader
    return lines
