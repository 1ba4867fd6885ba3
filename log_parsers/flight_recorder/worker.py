"""Reads dump files in a process of its own and prints one JSON line for each.

A dump is a pickle that anybody in the job could have written. This module runs as a script in an
interpreter without site packages, takes its limits from the kernel before it opens a file, and
uses an unpickler that refuses every global, so a hostile dump can at worst end this process. It
imports nothing of rerail and knows nothing of what a dump means.

Input on stdin: `{"limits": {...}, "files": [path, ...]}`. Output: `{"i": n, "at": "start"}` before
a file is touched, then `{"i": n, "dump": {...}}` or `{"i": n, "problem": [kind, text]}`.
"""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import pickle
import resource
import signal
import stat
import sys
import zlib
from itertools import islice
from typing import Any, cast

ENTRY_KEYS = (
    "record_id",
    "pg_id",
    "process_group",
    "collective_seq_id",
    "seq_id",
    "p2p_seq_id",
    "op_id",
    "profiling_name",
    "time_created_ns",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "input_sizes",
    "input_dtypes",
    "output_sizes",
    "output_dtypes",
    "state",
    "retired",
    "timeout_ms",
    "is_p2p",
)
TOP_KEYS = ("version", "pg_config", "pg_status")
LONGEST_TEXT = 4096
LONGEST_LIST = 4096


class Refused(Exception):
    """A file that is not read, with the kind of problem and one sentence."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class PlainUnpickler(pickle.Unpickler):
    """An unpickler for numbers, strings, lists and dicts; it can neither import nor call."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Refuse every global: a dump needs none."""
        raise Refused("refused", f"the pickle asks for {module_name}.{global_name}"[:200])

    def persistent_load(self, pid: Any) -> Any:
        """Refuse persistent ids: a dump needs none."""
        raise Refused("refused", "the pickle asks for a persistent object")


def limit_process(limits: dict[str, int]) -> None:
    """Bound memory, processor time, files and processes of this process for good."""
    for what, value in (
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_CPU, limits["cpu_seconds"]),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 16),
        (resource.RLIMIT_NPROC, 0),
    ):
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))


def read_bytes(path: str, limits: dict[str, int]) -> bytes:
    """Read one regular file, unpacking gzip, never more than the limits allow."""
    try:
        # O_NONBLOCK: a pipe that somebody named like a dump must not block the reader.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        kind = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
        raise Refused(kind, error.strerror or "cannot be opened") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused("unreadable", "not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limits["file_bytes"] + 1)
    if len(data) > limits["file_bytes"]:
        raise Refused("too_large", f"larger than {limits['file_bytes']} bytes")
    if data[:2] != b"\x1f\x8b":
        return data
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
        try:
            data = unpacked.read(limits["unpacked_bytes"] + 1)
        except EOFError:
            raise Refused("truncated", "the gzip stream ends early") from None
        except (OSError, zlib.error):
            raise Refused("corrupt", "the gzip stream is damaged") from None
    if len(data) > limits["unpacked_bytes"]:
        raise Refused("too_large", f"unpacks to more than {limits['unpacked_bytes']} bytes")
    return data


def parse(data: bytes) -> Any:
    """Turn bytes into plain objects: JSON if they begin like JSON, a pickle otherwise."""
    if not data:
        raise Refused("truncated", "the file is empty")
    if data.lstrip()[:1] in (b"{", b"["):
        return parse_json(data)
    if data[0] != 0x80:
        raise Refused("not_a_dump", "neither a pickle nor JSON")
    return parse_pickle(data)


def parse_json(data: bytes) -> Any:
    """Read JSON text, telling text that ends early from text that is wrong."""
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        if error.pos >= len(error.doc.rstrip()) - 1 or "Unterminated" in error.msg:
            raise Refused("truncated", "the JSON text ends early") from None
        raise Refused("corrupt", f"not valid JSON at character {error.pos}") from None
    except UnicodeDecodeError:
        raise Refused("corrupt", "not valid JSON: bytes outside UTF-8") from None


def parse_pickle(data: bytes) -> Any:
    """Read a pickle of plain values, telling one that ends early from one that is wrong."""
    try:
        return PlainUnpickler(io.BytesIO(data)).load()
    except (Refused, MemoryError, RecursionError):
        raise
    except EOFError:
        raise Refused("truncated", "the pickle ends early") from None
    except Exception as error:  # damaged pickles raise errors of almost any type
        if isinstance(error, pickle.UnpicklingError):
            if "truncated" in str(error) or "exhausted" in str(error):
                raise Refused("truncated", "the pickle ends early") from None
        raise Refused("corrupt", f"the pickle is damaged ({type(error).__name__})") from None


class Budget:
    """Counts the nodes copied out of one dump; a dump that shares lists can be exponential."""

    def __init__(self, nodes: int) -> None:
        self.left = nodes

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Copy JSON-like values, cut long texts and lists, drop everything else."""
        self.left -= 1
        if self.left < 0 or depth > 8:
            raise Refused("too_large", "the dump is nested or long beyond reason")
        kind = type(value)
        if kind is int:
            return value if -(2**63) <= value < 2**63 else None
        if kind is str and value.isascii():
            return value[:LONGEST_TEXT]
        if value is None or kind is bool:
            return value
        if isinstance(value, float):
            return value if value == value and abs(value) < 2**63 else None
        if isinstance(value, str):
            # A backslash form of lone surrogates keeps the line valid for any JSON reader.
            return value[:LONGEST_TEXT].encode("utf-8", "backslashreplace").decode()
        if isinstance(value, list | tuple):
            return [self.plain(item, depth + 1) for item in value[:LONGEST_LIST]]
        if isinstance(value, dict):
            return {
                self.plain(key, depth + 1): self.plain(item, depth + 1)
                for key, item in islice(value.items(), LONGEST_LIST)
                if isinstance(key, str)
            }
        return None

    def ranks(self, config: Any) -> Any:
        """Copy a `pg_config`, whose rank lists may be longer than other texts and lists."""
        if not isinstance(config, dict):
            return {}
        groups = {}
        for name, group in islice(config.items(), LONGEST_LIST):
            if isinstance(name, str) and isinstance(group, dict):
                ranks = group.get("ranks")
                if isinstance(ranks, str):
                    ranks = [int(part) for part in ranks.strip("[] ").split(",") if _digits(part)]
                ranks = ranks if isinstance(ranks, list | tuple) else []
                self.left -= len(ranks)
                groups[self.plain(name)] = {
                    "desc": self.plain(group.get("desc")),
                    "ranks": [r for r in ranks if isinstance(r, int) and 0 <= r < 2**31],
                }
        return groups


def _digits(part: str) -> bool:
    part = part.strip()
    return part.isascii() and part.isdigit() and len(part) < 11


def user_frame(frames: Any) -> str | None:
    """Name the innermost stack frame outside PyTorch, as `file:line name`."""
    if not isinstance(frames, list | tuple):
        return None
    known = [frame for frame in frames[:64] if isinstance(frame, dict)]
    for frame in known:
        where = frame.get("filename")
        if isinstance(where, str) and "/torch/" not in where:
            break
    else:
        if not known:
            return None
        frame = known[0]
    return f"{frame.get('filename')}:{frame.get('line')} {frame.get('name')}"[:300]


def reduce_dump(raw: Any, limits: dict[str, int]) -> dict[str, Any]:
    """Keep what the analysis reads of a dump, newest entries first to survive the limits.

    Raises:
        Refused: the object is not a flight-recorder dump.
    """
    if isinstance(raw, list):  # the layout before version 2: a bare list of entries
        raw = {"entries": raw}
    if not isinstance(raw, dict):
        raise Refused("not_a_dump", "the file holds no dictionary")
    entries = raw.get("entries", [])
    if not isinstance(entries, list | tuple) or not (
        isinstance(raw.get("pg_config"), dict) or any(_is_entry(e) for e in entries[:4])
    ):
        raise Refused("not_a_dump", "no flight-recorder entries or process groups inside")
    budget = Budget(limits["nodes"])
    first = max(0, len(entries) - limits["entries"])
    kept: list[dict[str, Any]] = []
    for position, entry in enumerate(entries[first:], first):
        if not isinstance(entry, dict):
            continue
        row = {key: budget.plain(entry[key]) for key in ENTRY_KEYS if key in entry}
        row["frame"] = budget.plain(user_frame(entry.get("frames")))
        row["index"] = position
        kept.append(row)
    dump = {
        "version": budget.plain(raw.get("version")),
        "pg_config": budget.ranks(raw.get("pg_config")),
        "pg_status": budget.plain(raw.get("pg_status")),
        "rank": budget.plain(raw.get("rank")),
    }
    return {**dump, "entries": kept, "clipped": first > 0}


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and "profiling_name" in value and "state" in value


def read_one(path: str, limits: dict[str, int]) -> dict[str, Any]:
    """Read one file; every failure is an answer, so that the next file is still read."""
    try:
        return {"dump": reduce_dump(parse(read_bytes(path, limits)), limits)}
    except Refused as refused:
        return {"problem": [refused.kind, refused.text]}
    except (MemoryError, RecursionError):
        return {"problem": ["too_large", "reading it needs more memory than is allowed"]}
    except Exception as error:  # one odd file must not cost the others their answer
        return {"problem": ["corrupt", f"damaged ({type(error).__name__})"]}


def main() -> None:
    """Serve one request from stdin."""
    request = cast("dict[str, Any]", json.loads(sys.stdin.buffer.read()))
    limits = cast("dict[str, int]", request["limits"])
    limit_process(limits)
    gc.disable()  # the process is short-lived and makes no cycles worth collecting
    out = sys.stdout.buffer
    for number, path in enumerate(request["files"]):
        out.write(b'{"i": %d, "at": "start"}\n' % number)
        out.flush()
        # The default action of SIGALRM ends the process even inside one long C call.
        signal.setitimer(signal.ITIMER_REAL, limits["seconds_per_file"])
        answer = json.dumps({"i": number, **read_one(path, limits)}).encode()
        if len(answer) > limits["answer_bytes"]:
            answer = json.dumps({"i": number, "problem": ["too_large", "too much in it"]}).encode()
        out.write(answer + b"\n")
        out.flush()
    signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
