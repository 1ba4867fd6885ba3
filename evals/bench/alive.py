"""How long a terminal stays dark: `rerail chat` and the explanation of `rerail diagnose`, in a real pseudo-terminal.

The model is a fake on this machine that answers at once, so what is measured is our own time.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rerail.evals.bench.bars import Bar
from rerail.evals.bench.generate import Dataset
from rerail.evals.fake_model import behaviours as play
from rerail.evals.fake_model.server import Body, FakeModelServer, Reply

_CALL = [sys.executable, "-c", "from rerail.assistant.entry import main; main()"]
_LOG = "step 1 loss 2\nstep 2 loss 1\n[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
_PROMPT = b"\x1b[?2004h"
_LIMIT_S = 60.0
_CODES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """One command in a pseudo-terminal: what it has printed, and when."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self.began = time.monotonic()
        self.seen = b""
        self._child, self._end = pty.fork()
        if self._child == 0:
            os.execve(sys.executable, [*_CALL, *arguments], environment)  # noqa: S606

    def until(self, words: bytes, *, after: int = 0) -> float:
        """Return the time when the words stand behind place `after` of the screen.

        Raises:
            RuntimeError: They did not come within a minute, or the command ended before.
        """
        while words not in _CODES.sub(b"", self.seen)[after:] and words not in self.seen[after:]:
            if time.monotonic() - self.began > _LIMIT_S or not self._read():
                self.kill()
                raise RuntimeError(f"{words!r} did not come; the end was {self.seen[-200:]!r}")
        return time.monotonic()

    def more_than(self, size: int) -> float:
        """Return the time when more than `size` bytes were printed."""
        while len(self.seen) <= size:
            self._read()
            if time.monotonic() - self.began > _LIMIT_S:
                self.kill()
                raise RuntimeError("nothing more was printed")
        return time.monotonic()

    def type_in(self, keys: bytes) -> float:
        """Type, and return the time."""
        os.write(self._end, keys)
        return time.monotonic()

    def ended(self) -> float:
        """Wait for the end and return its time."""
        while self._read():
            if time.monotonic() - self.began > _LIMIT_S:
                self.kill()
                break
        os.waitpid(self._child, 0)
        return time.monotonic()

    def kill(self) -> None:
        """End the command by force."""
        os.kill(self._child, signal.SIGKILL)

    def _read(self) -> bool:
        if not select.select([self._end], [], [], 0.01)[0]:
            return True
        try:
            piece = os.read(self._end, 65536)
        except OSError:  # Linux: the other side is closed
            return False
        self.seen += piece
        if b"\x1b[6n" in piece:  # where is the cursor: every real terminal answers
            os.write(self._end, b"\x1b[1;1R")
        return bool(piece)


def measure(data: Dataset, *, runs: int) -> list[Bar]:
    """Measure both; the best of some runs, because other work on the machine only adds."""
    log = data.folder / "alive.log"
    log.write_text(_LOG, encoding="utf-8")
    with FakeModelServer(_answer) as server:
        environment = _environment(data.folder / "home", server.url)
        subprocess.run(
            [*_CALL, "diagnose", "-q", "--no-model", str(log)],
            env=environment, check=False, capture_output=True,
        )  # fmt: skip
        try:
            rounds = [
                {**_chat(environment), **_explained(environment, log)} for _ in range(runs + 1)
            ]
        except RuntimeError as error:
            return [Bar("alive", "rerail chat", 0.3, None, "", True, " s", str(error))]
    baseline = "wall time in a pseudo-terminal, a fake model that answers at once"
    return [
        Bar("alive", what, bar, min(one[what] for one in rounds), baseline, True, " s")
        for what, bar in _BARS.items()
    ]


_BARS = {
    "chat: start to input line": 1.5,
    "chat: dark after the first question": 0.3,
    "chat: first answer": 3.0,
    "chat: exit": 0.3,
    "explanation: dark after the verdict": 0.3,
    "explanation: verdict to first claim": 3.0,
    "explanation: exit": 0.3,
}


def _chat(environment: dict[str, str]) -> dict[str, float]:
    chat = Terminal(["chat"], environment)
    ready = chat.until(_PROMPT)
    size = len(chat.seen)
    # The echo of what is typed is no sign of life of ours; the line is sent once it stands there.
    chat.type_in(b"which rank is it")
    chat.until(b"rank is it", after=0)
    time.sleep(0.2)
    chat._read()
    asked = chat.type_in(b"\r")
    alive = chat.until(b"s  ", after=size)
    answered = chat.until(b"ran out of memory", after=0)
    chat.until(_PROMPT, after=len(chat.seen) - 1)
    quit_at = chat.type_in(b"/quit\r")
    return {
        "chat: start to input line": ready - chat.began,
        "chat: dark after the first question": alive - asked,
        "chat: first answer": answered - asked,
        "chat: exit": chat.ended() - quit_at,
    }


def _explained(environment: dict[str, str], log: Path) -> dict[str, float]:
    said = Terminal(["diagnose", str(log)], environment)
    verdict = said.until(b"INCIDENT")
    alive = said.until(b"asking fake")
    claim = said.until(b"structured: ")
    last = said.until(b"agrees with the rules")
    return {
        "explanation: dark after the verdict": alive - verdict,
        "explanation: verdict to first claim": claim - verdict,
        "explanation: exit": said.ended() - last,
    }


def _answer(body: Body) -> Reply:
    chat = "Answer with one JSON object" not in play.all_text(body)
    return play.chatty(body) if chat else play.echo(body)


def _environment(home: Path, url: str) -> dict[str, str]:
    return {
        **os.environ,
        "RERAIL_DATA_DIR": str(home / "alive"),
        "RERAIL_CACHE_DIR": str(home),
        "RERAIL_MODEL_URL": url,
        "RERAIL_MODEL": "fake",
        "RERAIL_MODEL_SAMPLES": "1",
        "TERM": "xterm",
        "PYTHONDONTWRITEBYTECODE": "",
    }
