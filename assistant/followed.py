"""What was read so far of files that grow: logs from where the last look ended, files of numbers as a whole.

The older parts that a rotated log has are read in front of it. A log that is rotated (another inode) or truncated (it
became smaller, or holds other text where it was read already) while it is followed begins a new chapter: what was read
of it before no longer counts, nor do the parts that were moved away. First its end is read, where it lies beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rerail.log_parsers.collect import scanner_for
from rerail.log_parsers.following import FollowedFile
from rerail.log_parsers.rotated import joined
from rerail.log_parsers.series_files.recognise import kind_of
from rerail.log_parsers.sources import Source, rotated_parts
from rerail.log_parsers.survey import FileSurvey

MUCH_BYTES = 64 << 20
"""Files of numbers that are larger than this together are read again only every `SELDOM` looks."""
SELDOM = 10
_MOST_HELD = 256
"""Files that are held open between two looks: many systems let a process open 1,024."""
_LOOKED_INTO = 3
"""Parts of a rotated log that may be what was followed, the newest first."""
_PIECE = 1 << 20


class Followed:
    """Files by a key that stays the same from look to look; `key` makes it of a source."""

    def __init__(self, key: Callable[[Source], str]) -> None:
        self._key = key
        self._logs: dict[str, FollowedFile] = {}
        self._numbers: dict[str, tuple[Source, str, tuple[int, int]]] = {}
        self._read: list[FileSurvey] = []
        self._stale = False
        self._looks = 0
        self._past: set[int] = set()
        """Inodes of files that were rotated away, or lay beside a new chapter: they belong to an earlier one."""
        self._anew: set[str] = set()
        """Logs that began a new chapter: their older parts belong to an earlier one."""
        self._finished: set[str] = set()
        self._over: set[str] = set()
        """Logs that were read to the end of their chapter; the new one begins at the next look."""

    @property
    def over(self) -> bool:
        """Whether the next look need not wait: a new chapter is there already."""
        return bool(self._over)

    def __bool__(self) -> bool:
        """Tell whether anything was read."""
        return bool(self._numbers) or any(one.read_bytes for one in self._logs.values())

    def look(
        self, sources: Sequence[Source], keep: Callable[[str], bool] | None = None
    ) -> list[str]:
        """Read what is new of all sources; return what changed, a sentence each.

        What was read of a log that is no longer among the sources is forgotten, unless `keep` wants its key kept.
        """
        self._looks += 1
        self._finished, self._over = self._over, set()
        told: list[str] = []
        # The number of a file that is gone may soon be that of a new one.
        self._past &= {_inode(one) for one in sources} if self._past else set()
        lying = {self._key(one): one for one in sources if one.path is not None}
        # A log that was emptied, or whose new part holds nothing yet, is no evidence, but it lies there.
        lying |= {key: Source(log.path, log.name) for key, log in self._logs.items()
                  if key not in lying and _is_empty(log.path)}  # fmt: skip
        for key in [*self._logs, *self._numbers]:
            if key not in lying and not (keep and keep(key)):
                told.append(self._gone(key))
        # A file that was rotated keeps its inode under its new name: the one of the old name is looked at first.
        for key in [key for key in lying if key in self._logs]:
            told += self._chapter(key, lying[key])
        named = self._joined(lying)
        for key, source in named.items():
            if key not in self._logs and (kind := self._kind(key, source)) is not None:
                told += self._look_at_numbers(key, source, kind)
            elif key not in self._over:
                told += self._look_at(key, source)
        if self._stale and (self._size() <= MUCH_BYTES or self._looks % SELDOM == 1):
            self._read_numbers()
        return told

    def surveys(self) -> list[FileSurvey]:
        """Return the surveys of all that was read."""
        return [*(one.survey() for one in self._logs.values()), *self._read]

    def move(self, sources: Sequence[Source]) -> None:
        """Take the same files from where they lie now: another link to the same file, or a copy that went on."""
        for source in sources:
            known = self._logs.get(self._key(source))
            if known is None or source.path is None:
                continue
            try:
                inode = source.path.stat().st_ino
                copied = not source.path.is_symlink()
                if inode == known.inode or (copied and known.goes_on_in(source.path)):
                    known.move(source.path, inode)
            except OSError:
                continue

    def _gone(self, key: str) -> str:
        """Read a log that lies there no more to its end; forget it at the next look, or now where it said no more."""
        known = self._logs.get(key)
        rest = known.read_what_is_held() if known and key not in self._finished else None
        if known is not None and rest:
            self._over.add(key)
            return f"{known.name} +{rest:,} bytes, the last before it was gone"
        told = f"{self._forget(key)} is gone"
        if known is not None:
            all_read = rest is not None or key in self._finished
            print(f"rerail: {told}{_moved_to(known.path, all_read=all_read)}", file=sys.stderr)
        return told

    def _forget(self, key: str) -> str:
        log, numbers = self._logs.pop(key, None), self._numbers.pop(key, None)
        self._stale = self._stale or numbers is not None
        if log is not None:
            log.let_go()
        return log.name if log else numbers[0].name.rpartition("/")[2] if numbers else key

    def _kind(self, key: str, source: Source) -> str | None:
        known = self._numbers.get(key)
        return known[1] if known else kind_of(source)

    def _look_at_numbers(self, key: str, source: Source, kind: str) -> Iterator[str]:
        try:
            stat = source.path.stat() if source.path else None
        except OSError:
            return
        state = (stat.st_size, stat.st_mtime_ns) if stat else (0, 0)
        known = self._numbers.get(key)
        self._numbers[key] = (source, kind, state)
        if known is None or known[2] != state:
            self._stale = True
            yield f"{source.name.rpartition('/')[2]} {'changed' if known else 'is read'}"

    def _size(self) -> int:
        return sum(state[0] for _, _, state in self._numbers.values())

    def _read_numbers(self) -> None:
        from rerail.log_parsers.series_files.read import read_series_files

        self._stale = False
        self._read = read_series_files([(one, kind) for one, kind, _ in self._numbers.values()])

    def _joined(self, lying: Mapping[str, Source]) -> dict[str, Source]:
        """Return what is to be read: the parts of each rotated log as one, nothing of an earlier chapter."""
        now = {
            key: one for key, one in lying.items() if key in self._logs or not self._is_past(one)
        }
        alone = {key: one for key, one in now.items() if key in self._anew}
        rotated = rotated_parts([one.name for one in now.values()]) if alone else {}
        begun = {rotated[one.name].log for one in alone.values() if one.name in rotated}
        others = []
        for key, one in now.items():
            if key in alone:
                continue
            if key in self._logs or one.name not in rotated or rotated[one.name].log not in begun:
                others.append(one)
            else:
                self._past.add(_inode(one))  # also when the live file is gone
        named = {**{self._key(one): one for one in joined(others)}, **alone}
        for key, log in list(self._logs.items()):
            here = named.get(key)
            if (
                key in lying
                and key not in self._over
                and (here is None or self._keys(here.parts) != self._keys(log.parts))
            ):
                # It became a part, or has other parts than it had: all is read anew.
                self._forget(key)
        return named

    def _keys(self, parts: Sequence[Source]) -> list[str]:
        return [self._key(part) for part in parts]

    def _is_past(self, source: Source) -> bool:
        return _inode(source) in self._past

    def _look_at(self, key: str, source: Source) -> Iterator[str]:
        assert source.path is not None
        try:
            known = self._logs.get(key)
            if known is None:
                from rerail.assistant.pipeline import scan_plan

                plan = scan_plan()
                known = FollowedFile(
                    source, plan.signatures, scanner_for(plan, source.path.stat().st_size)
                )
                self._logs[key] = known
            new = known.look(hold=len(self._logs) <= _MOST_HELD)
        except OSError:
            return
        if new:
            yield f"{known.name} +{new:,} bytes"

    def _chapter(self, key: str, source: Source) -> Iterator[str]:
        """Forget what was read of a log that is another file now, or a smaller one, and say so."""
        assert source.path is not None
        known = self._logs[key]
        try:
            stat = source.path.stat()
            same = stat.st_ino == known.inode and stat.st_size >= known.read_bytes
            if same and not known.is_written_anew():
                return
        except OSError:
            return
        was = "truncated"
        if stat.st_ino != known.inode:
            was = "rotated"
            self._past.add(known.inode)
        if was == "rotated" and _is_answer(source):
            self._forget(key)
            yield f"{known.name} says something else"
            return
        self._anew.add(key)
        rest: int | None = 0
        if key not in self._finished:
            held = known.read_what_is_held() if was == "rotated" else None
            rest = held if held is not None else _read_rest(known)
        unread = ""
        if rest is None:
            unread = f"; whether it said more behind line {known.lines} is not known{_moved_to(known.path)}"
        elif rest:
            self._over.add(key)
            yield f"{known.name} +{rest:,} bytes, the last before it was {was}"
            return
        self._forget(key)
        print(f"rerail: {known.name} was {was}; a new chapter begins{unread}", file=sys.stderr)
        yield f"{known.name} was {was}: a new chapter"


def _moved_to(path: Path, *, all_read: bool = False) -> str:
    """Say where the last lines of a file that is gone may be, which nobody read: in a part that was moved away or packed."""
    parts = [] if all_read else _parts_beside(path)
    if parts is None:
        return ""
    if not parts:
        return "" if path.exists() else "; a new file of this name is read as soon as it is there"
    return f"; what it said last may be in {parts[0]}: rerail diagnose {path.parent / parts[0]}"


def _parts_beside(path: Path) -> list[str] | None:
    """Return the names of the other parts of a rotated log, by their names; None where nobody may look."""
    try:
        near = [one.name for one in path.parent.iterdir()]
    except OSError:
        return None
    log = rotated_parts([*near, path.name])
    if path.name not in log:
        return []
    same = (one for one in near if one in log and log[one].log == log[path.name].log)
    return sorted(one for one in same if one != path.name)


def _read_rest(known: FollowedFile) -> int | None:
    """Read to its end what a file said before it was moved away, packed or copied; None where that is not found."""
    beside = [known.path.with_name(name) for name in _parts_beside(known.path) or []]
    newest = sorted(beside, key=_changed_at, reverse=True)[:_LOOKED_INTO]
    return next((n for one in newest if (n := known.read_to_its_end(one)) is not None), None)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _inode(source: Source) -> int:
    """Return the inode of a file, or -1 for what is none now."""
    try:
        return source.path.stat().st_ino if source.path else -1
    except OSError:
        return -1


def _is_empty(path: Path) -> bool:
    try:
        return path.is_file() and not path.stat().st_size
    except OSError:
        return False


def _is_answer(source: Source) -> bool:
    """Tell whether a source is what somebody answered, and no log: it is asked for anew each time."""
    from rerail.domain.evidence import Stream

    copied = source.path is not None and not source.path.is_symlink()
    return copied and " " in source.name and source.origin.stream is not Stream.TRAIN


def path_of(source: Source) -> str:
    """Return the key of a file that was named or lies in a folder that was."""
    return str(source.path or Path(source.name))


def name_of(source: Source) -> str:
    """Return the key of what was found by the name of its job."""
    return source.name
