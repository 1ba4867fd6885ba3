"""Kineto JSON of any size into columns: decoded piece by piece, so that memory stays bounded.

A piece is cut where an event ends; that the cut is right is proved by decoding it, because a cut
inside an event or a string is not JSON. With msgspec only the fields that are used are built.
Layouts: one object with `traceEvents` (PyTorch, any order of keys) or a bare list of events, plain
or gzip.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from rerail.errors import EvidenceError

PIECE = 4 << 20
_MOST_CUTS = 400
_MOST_HEAD = 64 << 20
"""Before the first event stand a few kilobytes; a small packed file may unpack to any size."""
_HINT = "export it again with profile.export_chrome_trace"
Decode = Callable[[bytes], list[Any]]


class TraceStream:
    """The events of one file in pieces; `head` holds the other keys once all pieces were read."""

    def __init__(self, path: Path, decode: Decode, piece: int = PIECE) -> None:
        self.path = path
        self.head: dict[str, Any] = {}
        self._decode = decode
        self._piece = piece
        self._count = 0

    def pieces(self) -> Iterator[list[Any]]:
        """Yield lists of decoded events.

        Raises:
            EvidenceError: the file is no trace, is cut off, or cannot be read.
        """
        try:
            with _open(self.path) as stream:
                yield from self._read(stream)
        except (OSError, EOFError, ValueError, RecursionError) as error:
            raise self._bad(f"{error} after {self._count:,} events") from None

    def _read(self, stream: IO[bytes]) -> Iterator[list[Any]]:
        data = self._after_head(stream)
        while True:
            more = stream.read(self._piece)
            if not more:
                break
            data += more
            if len(data) < self._piece:
                continue
            events, data = self._cut(data)
            if events:
                self._count += len(events)
                yield events
        yield self._tail(data)

    def _after_head(self, stream: IO[bytes]) -> bytes:
        data = stream.read(self._piece)
        if data[:512].lstrip()[:1] == b"[":
            return data[data.index(b"[") + 1 :]
        if data[:512].lstrip()[:1] != b"{":
            raise EvidenceError(
                f"{self.path}: not a readable trace (it does not begin as JSON)",
                subject=str(self.path), hint=_HINT,
            )  # fmt: skip
        while (at := data.find(b'"traceEvents"')) < 0:
            more = stream.read(self._piece)
            if not more:
                self._without_events(data)
            data += more
            if len(data) > _MOST_HEAD:
                raise self._bad("no traceEvents in its first 64 MB")
        while (begin := data.find(b"[", at)) < 0:
            more = stream.read(self._piece)
            if not more:
                raise self._bad("it is cut off before the first event")
            data += more
            if len(data) > _MOST_HEAD:
                raise self._bad("no event in its first 64 MB")
        self._keys(data[:at].rstrip().removesuffix(b",") + b"}")
        return data[begin + 1 :]

    def _without_events(self, data: bytes) -> None:
        try:
            json.loads(data)
        except ValueError as error:
            raise self._bad(str(error)) from None
        raise EvidenceError(
            f"{self.path}: not a Kineto trace, it has no traceEvents", subject=str(self.path),
            hint="profile.export_chrome_trace(path)",
        )  # fmt: skip

    def _cut(self, data: bytes) -> tuple[list[Any], bytes]:
        """Return the events up to the last whole one, and what is left."""
        at = len(data)
        for _ in range(_MOST_CUTS):
            at = data.rfind(b"}", 0, at)
            if at < 0:
                break
            rest = data[at + 1 : at + 257].lstrip()
            if rest[:1] != b"," or rest[1:].lstrip()[:1] != b"{":
                continue
            events = self._try(b"".join((b"[", memoryview(data)[: at + 1], b"]")))
            if events is not None:
                return events, data[data.index(b",", at + 1) + 1 :]
        if len(data) > 8 * self._piece:
            raise self._bad(f"what follows is not a list of events, after {self._count:,} events")
        return [], data

    def _tail(self, data: bytes) -> list[Any]:
        if not data.strip():
            raise self._bad(f"it is cut off after {self._count:,} events")
        at = len(data)
        while (at := data.rfind(b"]", 0, at)) >= 0:
            # The list of events ends after an event, or is empty.
            before = data[:at].rstrip()
            if before and before[-1:] not in (b"}", b","):
                continue
            events = self._try(b"[" + before.removesuffix(b",") + b"]")
            if events is not None:
                rest = data[at + 1 :].strip().removesuffix(b"}").strip().removeprefix(b",")
                self._keys(b"{" + rest + b"}")
                return events
        raise self._bad(f"it is cut off after {self._count:,} events")

    def _try(self, text: bytes) -> list[Any] | None:
        enabled = gc.isenabled()
        gc.disable()  # millions of small objects would be walked again and again
        try:
            return self._decode(text)
        except ValueError:
            return None
        finally:
            if enabled:
                gc.enable()

    def _keys(self, text: bytes) -> None:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(found, dict):
            self.head.update(found)

    def _bad(self, why: str) -> EvidenceError:
        return EvidenceError(
            f"{self.path}: not a readable trace ({why})", subject=str(self.path), hint=_HINT
        )


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    if packed:
        from isal import igzip

        unpack: Callable[..., IO[bytes]] = igzip.open
        return unpack(path, "rb")
    return path.open("rb")
