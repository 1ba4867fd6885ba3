"""The two lines for a loop that is not to be touched: iterations are learned from its calls.

    from rerail.tools.profiling.calls import watch
    watch("shared/profiles")

`next()` of PyTorch's data loaders and `step()` of its optimizers are watched (`trigger.IterationFinder`),
and each iteration drives a `WindowProfiler`. Where nothing is called for five average iterations, each rank
writes the stacks of its threads into the folder, once a stall: what `rerail diagnose` reads.
"""

from __future__ import annotations

import atexit
import faulthandler
import threading
import time
from pathlib import Path
from typing import Any

from rerail.tools.profiling.trigger import LOADER, OPTIMIZER, IterationFinder
from rerail.tools.profiling.window import WindowProfiler

STACKS = "stacks-rank{rank}.txt"
_LOOK_S = 1.0
_LEAST_STALL_S = 3.0


class CallWatcher:
    """Drives a `WindowProfiler` from the calls of loaders and optimizers of this process."""

    def __init__(self, profiler: WindowProfiler) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        self.profiler = profiler
        self._finder = IterationFinder()
        self._thread = threading.get_ident()
        self._last = time.monotonic()
        self._told = False
        self._end = threading.Event()
        loaders: Any = _BaseDataLoaderIter
        self._loaders = loaders
        self._next = next_of = loaders.__next__

        def watched(loader: Any) -> Any:
            # Before the batch is there: an iteration begins with the wait for its data.
            self.call(LOADER)
            return next_of(loader)

        self._loaders.__next__ = watched
        self._hook = register_optimizer_step_post_hook(lambda *_: self.call(OPTIMIZER))
        self._guard = threading.Thread(target=self._watch, name="rerail-stall", daemon=True)
        self._guard.start()
        atexit.register(self.close)

    @property
    def pattern(self) -> tuple[str, ...]:
        """Return the calls of one iteration, n and s, empty while they are not learned."""
        return self._finder.pattern

    def call(self, kind: str) -> None:
        """Take one call of a loader (n) or an optimizer (s) of the thread that trains."""
        if threading.get_ident() != self._thread:
            return
        self._last, self._told = time.monotonic(), False
        if self._finder.call(kind):
            self.profiler.step()

    def close(self) -> None:
        """Stop watching, and end a window that is open."""
        if self._end.is_set():
            return
        self._end.set()
        self._loaders.__next__ = self._next
        self._hook.remove()
        self._guard.join()
        self.profiler.close()

    def _watch(self) -> None:
        while not self._end.wait(_LOOK_S):
            since = time.monotonic() - self._last
            if self._told or since < _LEAST_STALL_S or not self.profiler.stalled(since):
                continue
            self._told = True
            path = self.profiler.folder / STACKS.format(rank=self.profiler.rank)
            with path.open("a", encoding="utf-8") as stream:
                stream.write(
                    f"rank {self.profiler.rank}: no call for {since:.1f} s behind iteration "
                    f"{self.profiler.iteration}\n"
                )
                stream.flush()
                faulthandler.dump_traceback(stream)


def watch(folder: str | Path, **options: Any) -> CallWatcher:
    """Watch this process; options as `WindowProfiler`. At the end of the process it ends by itself.

    Raises:
        UsageError: torch is not installed.
    """
    return CallWatcher(WindowProfiler(folder, **options))
