from typing import Any

class Table:
    def __init__(self, keys: bytes) -> None: ...
    def __len__(self) -> int: ...
    def put(self, text: bytes, most: int = ..., /) -> int: ...
    def tally(
        self, data: bytes, returns: bool, most: int, most_bytes: int, /
    ) -> tuple[bytes, bytes, bytes, bytes, bytes, list[bytes]]: ...
    def lines(self, data: bytes, ends: Any, rows: Any, zero: bool, /) -> tuple[bytes, bytes]: ...
    def streams(
        self,
        data: bytes,
        ends: Any,
        codes: Any,
        widths: Any,
        windows: Any,
        cuts: Any,
        parts: Any,
        names: Table,
        examples: list[bytes],
        streams: Any,
        windows_out: Any,
        first: int,
        most: int,
        streams_at_most: int,
        example: int,
        /,
    ) -> tuple[bytes, int, bytes]: ...

class Facts:
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add(
        self,
        data: bytes,
        ends: Any,
        streams: Any,
        offsets: Any,
        rows: Any,
        base: int,
        first_line: int,
        /,
    ) -> int: ...
    def add_sets(
        self,
        data: bytes,
        ends: Any,
        streams: Any,
        offsets: Any,
        rows: Any,
        sets: Any,
        bases: Any,
        first_line: int,
        most: int,
        /,
    ) -> tuple[bytes, bytes, bytes]: ...
    def firsts(self, first: int, least: int, most: int, /) -> bytes: ...
    def keys(self) -> bytes: ...
    def columns(self, order: Any, /) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]: ...

def begun(data: bytes, ends: Any, label: bytes, first: int, last: int, /) -> bytes: ...
def kept(
    lines: dict[int, bytes],
    data: bytes,
    ends: Any,
    rows: Any,
    first: int,
    room: int,
    longest: int,
    /,
) -> int: ...
def line_ends(data: bytes, /) -> bytes: ...
def record_fields(
    data: bytes, ends: Any, rows: Any, fronts: tuple[bytes, ...], /
) -> tuple[bytes, bytes]: ...
def step_lines(text: bytes, programs: list[bytes], /) -> tuple[bytes, bytes, bytes, bytes]: ...
def grouped(streams: Any, rows: Any, /) -> tuple[bytes, bytes, bytes, bytes]: ...
def taken(data: bytes, ends: Any, rows: Any, /) -> bytes: ...
def windows(data: bytes, ends: Any, rows: Any, offsets: Any, size: int, /) -> bytes: ...
